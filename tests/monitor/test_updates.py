"""The step of a matrix in the operator norm."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core import store


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_step_is_measured_in_the_operator_norm(optimizer, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 5))
    stepper = optimizer(model.parameters(), lr=1e-2)
    inputs, ratios = torch.randn(64, 20), []
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for _ in range(31):
            before = [layer.weight.detach().clone() for layer in model[::2]]
            stepper.zero_grad()
            (model(inputs) - inputs[:, :5]).square().mean().backward()
            stepper.step()
            monitor.step()
            pairs = zip(model[::2], before, strict=True)
            ratios.append(
                [torch.linalg.matrix_norm(x.weight - w, 2) / torch.linalg.matrix_norm(x.weight, 2) for x, w in pairs]
            )
    found = [line["columns"].get("spectral_update") for line in store.read(monitor.path).steps]
    assert [i for i, told in enumerate(found) if told is not None] == [
        0,
        1,
        3,
        7,
        15,
        25,
    ]  # each ten steps and doubling
    for step in (15, 25):
        for one, other in zip(found[step], ratios[step], strict=True):
            assert one == pytest.approx(float(other.detach()), rel=0.1)


def test_every_eighth_row_stands_for_a_large_matrix(tmp_path):
    torch.manual_seed(0)
    layer = nn.Linear(300, 400, bias=False)
    with ng.Monitor(layer, tmp_path, every=1) as monitor:
        for _ in range(31):
            layer(torch.randn(8, 300)).square().mean().backward()
            with torch.no_grad():
                layer.weight.mul_(0.95)
            monitor.step()
    found = store.read(monitor.path).series("spectral_update", 0)
    assert found[-1][1] == pytest.approx(0.05 / 0.95, rel=0.02)

"""A gradient belongs to the weights before the step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.monitor.before import SizesBefore


@pytest.mark.parametrize("every", [1, 3, None])
@pytest.mark.parametrize("rate", [1e-3, 2.0])
@pytest.mark.parametrize("width", [8, 400])  # of a large weight only some rows are compared
def test_the_scale_free_gradient_is_that_of_the_weights_it_was_taken_at(tmp_path, every, rate, width):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, width), nn.Linear(width, width, bias=False), nn.Linear(width, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    true = {}
    with ng.Monitor(model, tmp_path, optimizer=optimizer, every=every) as monitor:
        for step in range(1, 7):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 6)).square().mean()
            loss.backward()
            weight = model[1].weight
            true[step] = float(weight.detach().norm() * weight.grad.norm())
            optimizer.step()
            monitor.step(loss=loss)
    found = dict(store.read(tmp_path).series("scale_free_gradient", "1"))
    assert 1 in found or every == 3  # the longest step of all, relative to the weights
    for step, value in found.items():
        assert value == pytest.approx(true[step], rel=1e-4 if rate > 1 else 0.1)


def test_a_long_step_that_was_not_expected_leaves_the_norm_before_it_unknown():
    before = SizesBefore()
    before.take([{"frobenius": 2.0, "update": 0.01}], 5)
    assert before.of(0, {"frobenius": 9.0}, 8.0, 6) == 2.0  # read at the step before
    assert before.of(0, {"frobenius": 9.0}, 8.0, 7) is None
    assert before.of(0, {"frobenius": 9.0}, None, 7) is None  # its length is not known, and the norm is another
    assert before.of(0, {"frobenius": 2.1}, None, 7) == before.of(0, {"frobenius": 2.1}, 0.1, 7) == 2.1
    assert before.of(0, {"frobenius": 9.0, "frobenius_before": 3.0}, 8.0, 7) == 3.0

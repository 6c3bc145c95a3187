"""Margins that can be compared, and accuracy under noise that does not depend on the scale of weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge import gauge
from normgauge.core.errors import InputError
from normgauge.geometry.hessian import margins, noise_accuracy
from tests.geometry.hessian.made import data, fitted, net
from tests.instrument.trace.test_untouched import assert_untouched, snapshot


def linear() -> nn.Linear:
    model = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    return model


def test_margins_of_a_linear_map_are_distances():
    x, y = torch.tensor([[3.0, 1.0], [1.0, 3.0], [2.0, 1.0]]), torch.tensor([0, 1, 1])
    found = margins(linear(), [(x, y)])
    assert found.values == pytest.approx((2, 2, -1))
    assert found.slopes == pytest.approx((2**0.5,) * 3)  # between the first two classes
    assert found.by_slope.quantiles[0] == pytest.approx(-1 / 2**0.5)
    assert found.accuracy == pytest.approx(2 / 3) and found.by_upper is None and found.log10_upper is None


def test_a_proved_bound_is_never_above_the_local_slope():
    model, (x, y) = fitted(net()).double(), data()
    reading = gauge(model, x.double(), scope="global")
    found = margins(model, [(x, y)], reading)
    assert found.log10_upper == pytest.approx((reading.log_upper + math.log(2) / 2) / math.log(10))
    for value, slope in zip(found.values, found.slopes, strict=True):
        assert abs(value) / 10**found.log10_upper <= abs(value) / slope
    shown = found.to_json()
    assert shown["by_upper"]["quantiles"]["50%"] < shown["by_slope"]["quantiles"]["50%"]


def test_one_output_is_a_signed_margin():
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[1.0, 2.0], [-1.0, 1.0]])
    for labels in (torch.tensor([1, 0]), torch.tensor([1.0, -1.0])):
        found = margins(model, [(x, labels)], 2.0)
        out = (model(x).squeeze(1) * torch.tensor([1.0, -1.0])).tolist()
        assert found.values == pytest.approx(tuple(out))
        assert found.by_upper.mean == pytest.approx(sum(out) / 4)


def test_dead_samples_are_left_out_and_bad_input_is_refused():
    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.gain + 0 * x[:, :3]

    x, y = data()
    assert margins(Dead(), [(x, y)], math.inf).by_slope is None
    assert margins(Dead(), [(x, y)], math.inf).by_upper is None
    with pytest.raises(InputError, match="positive Lipschitz"):
        margins(net(), [(x, y)], -1.0)
    with pytest.raises(InputError, match="one class number each"):
        margins(net(), [(x, y.float())])
    with pytest.raises(InputError, match="pairs"):
        margins(net(), [x])
    embedding = nn.Sequential(nn.Embedding(5, 3))
    with pytest.raises(InputError, match="floating input"):
        margins(embedding, [(torch.tensor([1, 2]), torch.tensor([0, 1]))])

    class Several(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return (super().forward(x),) * 2

    with pytest.raises(InputError, match="returns a tensor"):
        margins(Several(6, 3), [(x, y)])


def test_noise_does_not_see_the_scale_of_the_weights():
    model, batch = fitted(net(nn.BatchNorm1d(8, eps=1e-12))), [data()]
    before = snapshot(model)
    rows = noise_accuracy(model, batch, (0.0, 0.1, 1.0), draws=6, mode="train")
    assert_untouched(before, model)
    assert rows[0].accuracy > 0.9 and rows[0].standard_error == 0.0
    assert rows[0].accuracy >= rows[1].accuracy > rows[2].accuracy
    assert rows[2].standard_error > 0 and rows[2].draws == 6
    with torch.no_grad():
        model[0].weight.mul_(100)
        model[0].bias.mul_(100)
    again = noise_accuracy(model, batch, (0.0, 0.1, 1.0), draws=6, mode="train")
    assert [row.accuracy for row in again] == pytest.approx([row.accuracy for row in rows], abs=0.01)
    assert [row.margin for row in again] == pytest.approx([row.margin for row in rows], rel=1e-3)


def test_noise_is_as_long_as_asked():
    seen: list[float] = []

    class Listening(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(float((self.weight - own).norm() / own.norm()))
            return super().forward(x)

    model = Listening(6, 3)
    own = model.weight.detach().clone()
    noise_accuracy(model, [data()], (0.5,), draws=200)
    assert math.sqrt(sum(s * s for s in seen) / len(seen)) == pytest.approx(0.5, 0.05)
    assert noise_accuracy(model, [data()], (0.5,), seed=1) != noise_accuracy(model, [data()], (0.5,), seed=2)


@pytest.mark.parametrize(("sigmas", "draws"), [((), 8), ((-1.0,), 8), ((0.1,), 1)], ids=str)
def test_bad_noise_is_refused(sigmas, draws):
    with pytest.raises(InputError, match="noise levels"):
        noise_accuracy(net(), [data()], sigmas, draws=draws)

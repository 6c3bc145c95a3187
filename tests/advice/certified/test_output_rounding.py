"""The rounding of an output, held against the same network in extended precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from normgauge.advice.certified.output_rounding import output_rounding
from normgauge.instrument.local import amplify
from normgauge.instrument.session import Options, opened
from tests.advice.certified.nets import Residual, settled

LONG = np.longdouble


def extended(layer: nn.Module, x):
    """The layer in numbers of 64 binary digits."""
    values = {name: value.detach().double().numpy().astype(LONG) for name, value in layer.state_dict().items()}
    match layer:
        case nn.Sequential():
            for inner in layer:
                x = extended(inner, x)
            return x
        case Residual():
            return x + extended(layer.inner, x)
        case nn.Linear():
            return x @ values["weight"].T + values["bias"]
        case nn.ReLU():
            return np.maximum(x, 0)
        case nn.Tanh():
            return np.tanh(x)
        case nn.BatchNorm1d():
            spread = np.sqrt(values["running_var"] + LONG(layer.eps))
            return (x - values["running_mean"]) / spread * values["weight"] + values["bias"]
        case nn.LayerNorm():
            centred = x - x.mean(1, keepdims=True)
            spread = np.sqrt((centred**2).mean(1, keepdims=True) + LONG(layer.eps))
            return centred / spread * values["weight"] + values["bias"]
        case nn.Softmax():
            grown = np.exp(x - x.max(1, keepdims=True))
            return grown / grown.sum(1, keepdims=True)
        case Multiplied():
            left, right = (extended(inner, x) for inner in (layer.left, layer.right))
            return (left[:, :, None] * right[:, None]).sum(1) if layer.outer else left * right
    raise AssertionError(layer)


class Multiplied(nn.Module):
    """Two branches, entry by entry or as a matrix with one column and one with one row, summed."""

    def __init__(self, left: nn.Module, right: nn.Module, outer: bool = False) -> None:
        super().__init__()
        self.left, self.right, self.outer = left, right, outer

    def forward(self, x):
        left, right = self.left(x), self.right(x)
        return (left[:, :, None] @ right[:, None]).sum(1) if self.outer else left * right


def shifted(size: float) -> nn.Linear:
    """A layer whose biases cancel what its weights give, up to a few digits."""
    layer = nn.Linear(30, 30)
    with torch.no_grad():
        layer.weight.mul_(size)
        layer.bias.mul_(size)
    return layer


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 5))


CASES = {
    "plain": plain,
    "large": lambda: nn.Sequential(shifted(1e6), nn.Tanh(), shifted(1e6), nn.ReLU(), nn.Linear(30, 5)),
    "batch": lambda: nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 5)),
    "products": lambda: nn.Sequential(
        Multiplied(shifted(1.0), shifted(10.0)), Multiplied(shifted(1.0), nn.Tanh(), True)
    ),
    "softmax": lambda: nn.Sequential(
        shifted(0.03), Multiplied(nn.Softmax(1), shifted(9.0)), shifted(9.0), nn.Softmax(1)
    ),
    "layer": lambda: nn.Sequential(shifted(100.0), nn.LayerNorm(30), Residual(shifted(1.0)), nn.LayerNorm(30)),
}


def measured(model: nn.Module, x: torch.Tensor):
    """The bound, and how far the output in float64 is from that in extended precision, sample by sample."""
    with opened(model, x, Options(search=False, pictures=False)) as session:
        found = output_rounding(session)
        outputs = session.trace.end.tensor.detach().numpy().astype(LONG)
    truth = extended(model, x.double().numpy().astype(LONG))
    return found, np.sqrt(((outputs - truth) ** 2).sum(1)).astype(float)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_the_rounding_is_enclosed(name, seed):
    torch.manual_seed(seed)
    x = torch.randn(6, 30) * 10 ** (seed - 1) + 3 * seed
    model = settled(CASES[name](), x)
    found, off = measured(model, x)
    assert bool(found.proved.isfinite().all()) and (off > 0).any()
    assert all(gap <= float(bound) for gap, bound in zip(off, found.proved, strict=True))


def test_the_comparison_can_fail(monkeypatch):
    monkeypatch.setattr(amplify.Amplifier, "value_error", lambda self, value: 0.0)
    torch.manual_seed(0)
    x = torch.randn(6, 30)
    found, off = measured(settled(plain(), x), x)
    assert any(gap > float(bound) for gap, bound in zip(off, found.proved, strict=True))


class Cast(nn.Linear):
    def forward(self, x):
        return super().forward(x).exp()


def test_a_step_whose_rounding_is_not_known_encloses_nothing():
    with opened(Cast(4, 3), torch.ones(2, 4), Options(search=False, pictures=False)) as session:
        found = output_rounding(session)
    assert all(math.isinf(bound) for bound in found.proved.tolist()) and 0 < found.measured < 1e-12

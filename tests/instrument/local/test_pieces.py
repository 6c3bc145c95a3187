"""The linear maps of steps: what is pushed is the Jacobian."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.local.pieces import linear_piece
from normgauge.instrument.session import Options, opened


class Call(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


WEIGHT, KERNEL = (torch.randn(s, dtype=torch.float64) for s in ((5, 6), (4, 2, 3, 3)))
STEPS = {
    "linear": (nn.Linear(6, 5), (2, 6)),
    "function": (Call(lambda x: F.linear(x, WEIGHT, WEIGHT[:, 0])), (2, 6)),
    "conv": (nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=1), (1, 2, 7, 7)),
    "groups": (nn.Conv2d(4, 4, 3, groups=2), (1, 4, 5, 5)),
    "transposed": (nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (1, 2, 4, 4)),
    "conv function": (Call(lambda x: F.conv2d(x, KERNEL, padding=1)), (1, 2, 5, 5)),
    "one axis": (nn.Conv1d(2, 3, 3, padding=2), (1, 2, 6)),
    "batch norm": (nn.BatchNorm2d(3).eval(), (1, 3, 4, 4)),
    "average": (nn.AvgPool2d(2), (1, 2, 4, 4)),
    "adaptive": (nn.AdaptiveAvgPool2d(1), (1, 2, 5, 4)),
    "flatten": (nn.Flatten(), (1, 2, 3)),
    "fixed shape": (Call(lambda x: x.view(1, 6)), (1, 2, 3)),
    "permute": (Call(lambda x: x.permute(0, 2, 1)), (1, 2, 3)),
    "slice": (Call(lambda x: x[:, 1:]), (1, 4)),
    "pad": (Call(lambda x: F.pad(x, (1, 2), value=7.0)), (1, 4)),
    "shifted": (Call(lambda x: x + 3.0), (1, 4)),
    "scaled": (Call(lambda x: x * 2.5), (1, 4)),
    "divided": (Call(lambda x: x / 3.0), (1, 4)),
    "mean": (Call(lambda x: x.mean(1, keepdim=True)), (1, 4)),
    "product": (Call(lambda x: x @ WEIGHT.T), (2, 6)),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_push_is_the_jacobian(name: str) -> None:
    torch.manual_seed(0)
    model, shape = STEPS[name]
    model.double()
    x = torch.randn(shape, dtype=torch.float64)
    with opened(model, x, Options(search=False)) as session, torch.no_grad():
        session.together = True
        parts = session.composed(Scope.parse("point"))
        (step,) = session.trace.steps
        rule, transfer = parts.rules[step.index], parts.transfers[step.outputs[0].index]
        assert rule is not None
        gains = tuple(float(g.log[0].exp()) for g in transfer.gains)
        piece = linear_piece(step, rule.id, gains, torch.float64)
        assert piece is not None
        tangents = torch.randn(3, *shape, dtype=torch.float64)
        pushed = piece.push([tangents])
    whole = model.double()
    for tangent, got in zip(tangents, pushed, strict=True):
        want = whole(x + tangent) - whole(x)
        assert torch.allclose(got, want, rtol=1e-9, atol=1e-9)


def test_what_is_not_affine_is_no_piece() -> None:
    with opened(Call(lambda x: x * x), torch.randn(1, 3), Options(search=False)) as session:
        (step,) = session.trace.steps
        assert linear_piece(step, "combine.multiply", (1.0, 1.0), torch.float32) is None


class Sums(nn.Module):
    """Whatever function of its input."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: (x * 1e-18 + 1) * 1e18, 1.0),
        (lambda x: x * 1e-9 + 1000, 1e-9),
        (lambda x: (x * 1e-16 + 1) - 1, 1e-16),
        (lambda x: 3000 - x * 1e-13, 1e-13),
        (lambda x: torch.add(x * 1e-13, torch.full((4,), 3000.0)), 1e-13),
        (lambda x: torch.sub(torch.full((4,), 3000.0), x, alpha=1e-13), 1e-13),
        (lambda x: torch.full((4,), 3000.0).add(other=x * 1e-13), 1e-13),
        (lambda x: (x * 1e-13).clone().add_(3000.0), 1e-13),
    ],
)
def test_a_small_slope_beside_a_large_constant_is_not_lost(function, slope) -> None:
    for scope in ("point", "ball:0.3", "global"):
        reading = ng.gauge(Sums(function), torch.randn(3, 4), scope, search=False)
        assert reading.evidence == "proved" and slope * (1 - 1e-7) <= reading.upper <= slope * 1.001

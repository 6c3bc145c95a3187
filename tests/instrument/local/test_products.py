"""Products, softmaxes and attention, however they are written: Jacobians at a point, no slope in a ball above."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Evidence, Scope
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.session import Options, opened
from tests.instrument.local.nets import Attention, Fn, Gate, Squeezed, jacobian_norm, product_case, steepest

pytestmark = pytest.mark.usefixtures("brief_search")


def swept(model: nn.Module, x: Tensor, radius: float) -> Swept:
    with opened(model, x, Options(search=False)) as session, torch.no_grad():
        return swept_ball(session.trace, session.composed(Scope.parse("point")), 0, radius, session.native, 1)


WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x * x,
    "over rows": lambda x: x * x[:, :1],
    "over a new axis": lambda x: x[:, :, None, :] * x[:, None],
    "three times": lambda x: x * x.softmax(2) * x.mean((1, 2), keepdim=True),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "matmul over a batch": lambda x: x[0] @ torch.stack([x[0].T, 2 * x[0].T]),
    "matmul with a vector": lambda x: x @ x[0, 0],
    "bmm": lambda x: torch.bmm(x.tanh().transpose(1, 2), x),
    "mm": lambda x: torch.mm(x[0], x[0].T),
    "mv": lambda x: torch.mv(x[0], x[0, 1]),
    "outer": lambda x: torch.outer(x[0, 0], x[0, 1])[None],
    "dot": lambda x: torch.dot(x[0, 0], x[0, 1]).reshape(1, 1),
    "einsum, turned": lambda x: torch.einsum("bij,bkj->kbi", x, x.sin()),
    "einsum, dots": lambda x: torch.einsum("...ij,...jk", x, x.transpose(1, 2)),
    "softmax": lambda x: (3 * x).softmax(2),
    "softmax of columns": lambda x: x.softmax(1) * x,
    "softmin": lambda x: F.softmin(2 * x, 2),
    "log_softmax": lambda x: torch.log_softmax(2 * x, 2),
    "glu": lambda x: F.glu(torch.cat([x, 2 * x], 1), 1),
    "attention": lambda x: F.scaled_dot_product_attention(x, 2 * x, x.sin(), scale=0.7),
    "causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "masked": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(3, 3).tril(1).bool()[None]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_at_a_point_it_is_the_jacobian_and_in_a_ball_no_slope_is_above(name: str) -> None:
    torch.manual_seed(3)
    model, x = Fn(WRITTEN[name]), torch.randn(1, 3, 4, dtype=torch.float64)
    here = jacobian_norm(model, x)
    assert here <= swept(model, x, 0.0).bound() == pytest.approx(here, rel=1e-7)
    for radius in (1e-3, 0.3):
        found = swept(model, x, radius).improved(1e-3, 30).bound()
        assert steepest(model, x, radius, 40) <= found <= here * (1 + 40 * radius) + 40 * radius


def test_a_square_is_bounded_by_its_steepest_slope() -> None:
    model, x = Fn(lambda x: x * x), torch.tensor([[1.5]], dtype=torch.float64)
    assert swept(model, x, 0.25).improved(1e-6, 60).bound() == pytest.approx(3.5, rel=1e-4)


def test_a_softmax_whose_logits_move_far_has_slopes_up_to_a_half() -> None:
    model, x = Fn(lambda x: x.softmax(1)), torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64)
    assert 0.5 <= swept(model, x, 50.0).improved(1e-4, 40).bound() <= 0.5 + 1e-6
    flat = torch.tensor([[0.0, 60.0, 1.0]], dtype=torch.float64)  # and none at all where it is decided
    assert swept(model, flat, 1.0).bound() < 1e-9


@pytest.mark.parametrize("seed", range(16))
def test_no_slope_in_a_ball_is_above_the_bound(seed: int) -> None:
    model, x, radius = product_case(seed)
    found = swept(model, x, radius)
    low = steepest(model.double(), x.double(), radius, 40, seed)
    assert low <= found.improved(1e-3, 30).bound() <= found.bound() < math.inf


@pytest.mark.parametrize("made", [lambda: Gate(4, "swiglu"), lambda: Attention(4, "module"), lambda: Squeezed(4)])
def test_a_small_ball_meets_the_point_and_is_far_below_the_balanced_bound(made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = made().eval()
    x = torch.randn({Gate: (1, 4), Attention: (1, 3, 4), Squeezed: (1, 4, 3, 3)}[type(model)])
    point, small, ball = ng.readings(model, x, ("point", "ball:1e-6", "ball:0.1"), search=False)
    assert [r.method for r in (point, small, ball)] == ["jacobian", "open units", "open units"]
    assert all(r.evidence is Evidence.PROVED for r in (point, small, ball))
    assert point.log_upper <= small.log_upper <= point.log_upper + 1e-4
    assert small.log_upper < ball.log_upper < ball.log_balanced - 0.05


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(2) / (2 + x.tanh()),
        lambda x: F.scaled_dot_product_attention(x, torch.ones(1, 3, 4, dtype=x.dtype), x),
        lambda x: torch.einsum("bij,bij->bij", x, x) + torch.einsum("bii->b", x[:, :, :3])[:, None, None],
    ],
)
def test_what_is_not_followed_is_said(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(NotCarried):
        swept(Fn(function), torch.randn(1, 3, 4, dtype=torch.float64), 0.1)


def test_a_product_that_writes_into_a_factor_is_left_to_the_other_bounds() -> None:
    ones = torch.ones(4, 4, dtype=torch.float64)
    reading = ng.gauge(Fn(lambda x: (x.tanh() @ ones).mul_(3.0)), torch.zeros(1, 2, 4).double(), scope="ball:0.1")
    assert reading.evidence is Evidence.PROVED and 12.0 <= reading.upper <= 12.01


def test_over_all_inputs_a_product_is_left_to_its_rule() -> None:
    with pytest.raises(NotCarried, match="may be of any size"):
        swept(Fn(lambda x: x * x), torch.randn(1, 3, dtype=torch.float64), math.inf)


def test_open_units_that_need_too_much_memory_are_given_up(monkeypatch) -> None:
    monkeypatch.setattr("normgauge.instrument.local.blocks.MOST_ENTRIES", 30)
    for function in (lambda x: x * x, lambda x: x.softmax(1), lambda x: x.tanh()):
        with pytest.raises(NotCarried, match="too much memory"):
            swept(Fn(function), torch.randn(1, 6, dtype=torch.float64), 0.1)

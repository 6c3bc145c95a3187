"""Bounded normalizers: their constant holds everywhere, is reached, and conversions keep what they should."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import gpt


def cases() -> list[tuple[str, nn.Module, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    made = [
        ("layer", nn.LayerNorm(7), torch.randn(5, 7, generator=draw)),
        ("layer2", nn.LayerNorm((3, 4)), torch.randn(5, 3, 4, generator=draw)),
        ("rms", nn.RMSNorm(7), torch.randn(5, 7, generator=draw)),
        ("group", nn.GroupNorm(2, 6), torch.randn(5, 6, 4, generator=draw)),
        ("bare", nn.LayerNorm(7, elementwise_affine=False), torch.randn(5, 7, generator=draw)),
    ]
    for _, norm, _ in made:
        if norm.weight is not None:
            nn.init.normal_(norm.weight, std=3.0, generator=draw)
    return made


def steepest(norm: nn.Module, x: Tensor, turns: int = 60) -> float:
    """The largest slope that a search finds: samples shrink towards constants, where normalizers are steepest."""
    worst = 0.0
    for size in (1.0, 0.1, 1e-2, 1e-3, 1e-5, 0.0):
        point = size * x[:1].double() + 3.0 * (size < 0.05) * (not isinstance(norm, nn.RMSNorm))
        jacobian = torch.autograd.functional.jacobian(norm, point)
        worst = max(worst, float(torch.linalg.matrix_norm(jacobian.reshape(point.numel(), -1), 2)))
    point = 0.3 * x[:1].double()
    for _ in range(turns):
        point = point.detach().requires_grad_()
        jacobian = torch.autograd.functional.jacobian(norm, point, create_graph=True)
        slope = torch.linalg.matrix_norm(jacobian.reshape(point.numel(), -1), 2)
        worst = max(worst, float(slope.detach()))
        (way,) = torch.autograd.grad(slope, point)
        point = point + 0.02 * way / way.norm().clamp_min(1e-12)
    return worst


@pytest.mark.parametrize(("name", "norm", "x"), cases(), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("constant", [0.5, 2.0, 40.0])
def test_the_constant_holds_everywhere(name: str, norm: nn.Module, x: Tensor, constant: float) -> None:
    made = ng.bounded(norm, constant=constant, floor=0.25)
    reading = ng.gauge(made, x, scope="global", pictures=False, effort="quick")
    assert reading.log_upper <= torch.tensor(constant).log() + 1e-6
    assert reading.log_lower <= reading.log_upper
    found = steepest(made.double(), x)
    assert found <= constant * (1 + 1e-6)
    top = min(constant, 4.0 if norm.weight is None else 4.0 * float(norm.weight.detach().abs().max()))
    assert found >= 0.5 * top


@pytest.mark.parametrize(("name", "norm", "x"), cases(), ids=lambda v: v if isinstance(v, str) else "")
def test_there_and_back(name: str, norm: nn.Module, x: Tensor) -> None:
    model = nn.Sequential(norm, nn.Identity())
    made = ng.bounded(model, constant=1e6, floor=1e-3)
    assert type(model[0]) is type(norm) and made is not model
    assert torch.allclose(made(x), model(x), atol=1e-2)
    back = ng.unbounded(made)
    assert type(back[0]) is type(norm)
    assert torch.allclose(back(x), model(x), atol=1e-6)


def test_a_transformer_gets_a_finite_constant() -> None:
    torch.manual_seed(0)
    model = gpt(vocab=12, width=16, depth=1, heads=2, context=6).eval()
    tokens = torch.randint(0, 12, (2, 6))
    before, after = (
        ng.gauge(m, tokens, scope="global", search=False, pictures=False, effort="quick").log10_upper
        for m in (model, ng.bounded(model, constant=1.0, floor=0.5))
    )
    assert after < before - 2
    cap = ng.cap(ng.bounded(model, constant=1.0, floor=0.5), tokens, log10=0.0)
    assert cap() <= 0.0 and cap.uncontrolled == ()


def test_gains_learn_below_the_constant_and_stop_at_it() -> None:
    made = ng.bounded(nn.LayerNorm(4), constant=2.0, floor=0.5)
    assert torch.equal(made.gains(), torch.ones(4))
    with torch.no_grad():
        made.weight.mul_(3.0)
    assert float(made.gains().detach().abs().max()) == pytest.approx(1.0)
    assert "constant=2" in repr(made)


@pytest.mark.parametrize("given", [{"constant": 0.0}, {"floor": -1.0}, {"constant": float("inf")}])
def test_constants_that_are_none(given: dict[str, float]) -> None:
    with pytest.raises(ng.NormgaugeError, match="positive constant"):
        ng.bounded(nn.LayerNorm(3), **given)


def test_models_without_one() -> None:
    with pytest.raises(ng.NormgaugeError, match="no LayerNorm"):
        ng.bounded(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ng.NormgaugeError, match="no bounded"):
        ng.unbounded(nn.Sequential(nn.Linear(2, 2)))

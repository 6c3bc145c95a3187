"""Slopes that are gathered are those of the plain formulas."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.control.gathered_slopes import GatheredWeights


def drawn(*shape: int) -> Tensor:
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("shape", [(1, 4, 3), (2, 4, 3), (1, 4, 3, 2), (2, 4, 3, 2, 2)])
def test_slopes_are_those_of_the_plain_formulas(shape: tuple[int, ...]) -> None:
    weights, x, q, r = drawn(*shape), drawn(shape[0], 3), drawn(3), drawn(4)

    def gathered() -> Tensor:
        own = GatheredWeights(weights.unbind())
        total = own.rows(0, q).sin().sum() + own.columns(0, r).cos().sum()
        return total + own.times(x).sin().sum() if weights.ndim == 3 else total

    def plain() -> Tensor:
        squares = weights[0].square().flatten(2).sum(2) if weights.ndim > 3 else weights[0].square()
        total = (squares @ q).sin().sum() + (r @ squares).cos().sum()
        return total + (weights @ x[..., None]).sin().sum() if weights.ndim == 3 else total

    leaves = (weights, x, q, r)
    assert torch.allclose(gathered(), plain())
    wanted, got = (torch.autograd.grad(f(), leaves, allow_unused=True) for f in (plain, gathered))
    for one, other in zip(wanted, got, strict=True):
        assert one is other is None or torch.allclose(one, other)


def test_parts_that_are_not_asked_for_leave_nothing_behind() -> None:
    weights, q = drawn(2, 4, 3), drawn(3)
    own = GatheredWeights(weights.unbind())
    first = torch.autograd.grad(own.rows(1, q).sum(), weights, retain_graph=True)[0]
    assert torch.equal(first[0], torch.zeros(4, 3, dtype=torch.float64))
    assert torch.allclose(first, torch.autograd.grad(own.rows(1, q).sum(), weights)[0])


def test_a_value_that_is_dropped_frees_its_graph() -> None:
    own = GatheredWeights([drawn(4, 3)])
    gone = weakref.ref(own._slopes)
    value = own.rows(0, drawn(3)).sum()
    gc.disable()
    try:
        del own, value
        assert gone() is None
    finally:
        gc.enable()


def test_a_map_that_was_zero_is_followed_once_it_is_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    with torch.no_grad():
        model[2].weight.zero_()
    penalty = ng.penalty(model, torch.randn(3, 6), every=1, by="layer", target=-9.0)
    with torch.no_grad():
        model[2].weight.copy_(torch.randn(4, 5))
        for _ in range(40):
            penalty()
    fresh = ng.penalty(model, torch.randn(3, 6), every=1).layers()
    assert penalty.layers()["2"] == pytest.approx(fresh["2"], abs=1e-3)

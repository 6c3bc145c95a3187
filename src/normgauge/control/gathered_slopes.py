"""Weights whose gradient is a few outer products: they are gathered, and one pass over the weights writes them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Parts = list[tuple[Tensor, Tensor]]


class GatheredWeights:
    """Weights of one shape, (maps, out, in, …), as linear maps and as maps of channels by their squares.

    The slope of Wx is one outer product, that of (W∘W)q is W times one: taken one by one they cost a pass over the
    weights each and as many to add them up, which is most of what a penalty costs a small network.

    Attributes:
        fixed: the weights without their gradient, one on top of the other.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = weights
        self.fixed = _stacked([weight.detach() for weight in weights])
        self._slopes = _Slopes(self.fixed)
        self._token: Tensor = _Gathered.apply(self._slopes, *weights)

    @property
    def whole(self) -> Tensor:
        """The same with their gradient, for what is no outer product."""
        return _stacked(self._weights)

    def times(self, x: Tensor) -> Tensor:
        """W x of every matrix, (maps, in) to (maps, out)."""
        return _Times.apply(self._token, x, self._slopes)

    def rows(self, index: int, q: Tensor) -> Tensor:
        """Σ_c W_rc² q_c of one map, squares summed over a kernel."""
        return _Squared.apply(self._token, q, self._slopes, index, False)

    def columns(self, index: int, q: Tensor) -> Tensor:
        """Σ_r q_r W_rc² of one map."""
        return _Squared.apply(self._token, q, self._slopes, index, True)


class _Slopes:
    """What came together of a gradient; the graph holds it, and it holds nothing of the graph."""

    def __init__(self, fixed: Tensor) -> None:
        self.fixed = fixed
        self.products: Parts = []
        self.squared: list[Parts] = [[] for _ in fixed]
        self._squares: tuple[Tensor, ...] = ()

    def squares(self, index: int) -> Tensor:
        """The squared weights of one map between channels, summed over a kernel: (out, in)."""
        if not self._squares:
            squares = self.fixed.square()
            self._squares = (squares if squares.ndim == 3 else squares.flatten(3).sum(3)).unbind()
        return self._squares[index]

    def taken(self) -> list[Tensor | None]:
        """The gradient of each: Σ l rᵀ + 2W∘Σ l rᵀ, the first of products, the second of squares."""
        self._squares = ()  # whose memory is large, and still warm
        found = [self._map(index) for index in range(len(self.fixed))]
        self.products, self.squared = [], [[] for _ in self.fixed]
        return found

    def _map(self, index: int) -> Tensor | None:
        """That of one map: parts are added one by one, which is faster than a product with so few columns."""
        found: Tensor | None = None
        weight = self.fixed[index]
        for left, right in self.squared[index]:
            found = torch.outer(2 * left, right) if found is None else found.addr_(left, right, alpha=2)
        if found is not None:
            found = (
                found.mul_(weight)
                if weight.ndim == 2
                else found.reshape(*found.shape, *[1] * (weight.ndim - 2)) * weight
            )
        for left, right in self.products:
            found = torch.outer(left[index], right[index]) if found is None else found.addr_(left[index], right[index])
        return found


class _Gathered(torch.autograd.Function):
    """Stands for the weights: its gradient comes last, when all that was made of them has left its part."""

    @staticmethod
    def forward(ctx: Any, own: _Slopes, *weights: Tensor) -> Tensor:
        ctx.own = own
        return own.fixed.new_zeros(())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.own.taken()


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, x: Tensor, own: _Slopes) -> Tensor:
        ctx.own = own
        ctx.save_for_backward(x)
        return (own.fixed @ x[..., None])[..., 0]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor | None, None]:
        ctx.own.products.append((slope, *ctx.saved_tensors))
        inner = (ctx.own.fixed.mT @ slope[..., None])[..., 0] if ctx.needs_input_grad[1] else None
        return slope.new_zeros(()), inner, None


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, q: Tensor, own: _Slopes, index: int, columns: bool) -> Tensor:
        ctx.how = own, index, columns
        ctx.save_for_backward(q)
        return q @ own.squares(index) if columns else own.squares(index) @ q

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        (q,), (own, index, columns) = ctx.saved_tensors, ctx.how
        own.squared[index].append((q, slope) if columns else (slope, q))
        square, inner = own.squares(index), None
        if ctx.needs_input_grad[1]:
            inner = square @ slope if columns else slope @ square
        return slope.new_zeros(()), inner, None, None, None


def _stacked(weights: Sequence[Tensor]) -> Tensor:
    return weights[0][None] if len(weights) == 1 else torch.stack(list(weights))  # of one that would be a copy

"""A function measured through the tape and the composition, beside its dense Jacobian."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.core.bound import Scope
from normgauge.instrument.compose import Composition, compose
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.expand import expansion_of
from normgauge.instrument.rules.flow import Context, Flow, Transfer
from normgauge.instrument.trace import record_trace

SLACK = 1e-6


class Wrapped(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def composed(function: Callable[[Tensor], Any], x: Tensor, scope: str = "global", samples: int = 1) -> Composition:
    def pick(out: Any) -> tuple[Tensor, list[str]]:
        return (out[0] if isinstance(out, tuple) else out), []

    model = Wrapped(function)
    trace = record_trace(model, (x,), {}, x, pick, REGISTRY.is_leaf, lambda target: None)
    return compose(trace, REGISTRY, Context(Scope.parse(scope), samples))


def last(
    function: Callable[[Tensor], Any], x: Tensor, scope: str = "global", samples: int = 1
) -> tuple[Transfer, Flow]:
    """Transfer and flow of the output."""
    parts = composed(function, x, scope, samples)
    assert parts.trace.output is not None
    return parts.transfers[parts.trace.output.index], parts.flows[parts.trace.output.index]


def bound(function: Callable[[Tensor], Any], x: Tensor, scope: str = "global", samples: int = 1) -> float:
    """The proved constant, largest over the samples."""
    return math.exp(float(composed(function, x, scope, samples).log_upper.max()))


def jacobian_norm(function: Callable[[Tensor], Any], x: Tensor) -> float:
    leaf = x.detach().clone().requires_grad_()
    out = function(leaf)
    return dense_norm_of(out[0] if isinstance(out, tuple) else out, leaf)


def dense_norm_of(out: Tensor, leaf: Tensor) -> float:
    """‖∂out/∂leaf‖₂, row by row (torch's own jacobian loads half of torch first)."""
    rows = [torch.autograd.grad(entry, leaf, retain_graph=True, allow_unused=True)[0] for entry in out.reshape(-1)]
    dense = torch.stack([torch.zeros_like(leaf) if row is None else row for row in rows]).flatten(1)
    return float(torch.linalg.matrix_norm(dense, 2))


def affine_norm(function: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """‖J‖₂ of an affine map, column by column."""
    with torch.no_grad():
        units = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
        start = function(torch.zeros_like(x))
        dense = torch.stack([(function(unit) - start).reshape(-1) for unit in units])
    return float(torch.linalg.matrix_norm(dense, 2))


def inside(flow: Flow, out: Tensor, samples: int = 1, axis: int = 0) -> bool:
    """Whether an output lies within the ranges and row lengths the flow promises."""
    rows = Context(Scope.parse("global"), samples).rows(out, axis)
    length = torch.linalg.vector_norm(rows, dim=2).amax(1)
    above, below = rows.amin((1, 2)) >= flow.low - 1e-9, rows.amax((1, 2)) <= flow.high + 1e-9
    return bool((above & below & (length <= flow.norm + 1e-9)).all())


def check(
    function: Callable[[Tensor], Any],
    x: Tensor,
    scope: str = "global",
    exact: bool = False,
    linear: bool = False,
    tries: int = 3,
) -> float:
    """Assert that no Jacobian in the scope exceeds the bound, and that outputs keep their ranges; return the bound."""
    parts = composed(function, x, scope)
    assert parts.trace.output is not None
    flow = parts.flows[parts.trace.output.index]
    upper = math.exp(float(flow.slope.max()))
    radius = Scope.parse(scope).radius
    found = 0.0
    for k in range(tries):
        moved = x
        if k:
            noise = torch.randn_like(x)
            moved = x + (noise if math.isinf(radius) else noise / noise.norm() * radius * (0.999 if k == 1 else 0.5))
        if not linear:
            found = max(found, jacobian_norm(function, moved))
        elif k == 0:
            found = affine_norm(function, x)
        with torch.no_grad():
            out = function(moved)
            out = out[0] if isinstance(out, tuple) else out
        assert inside(flow, out)
        with torch.no_grad():
            centre = function(x)
            centre = centre[0] if isinstance(centre, tuple) else centre
        difference = (out - centre).reshape(1, *(out.shape or (1,)))
        assert float(difference.norm()) <= float(flow.radius.max()) * (1 + 1e-9) + 1e-12
        assert float(torch.linalg.vector_norm(difference, dim=-1).max()) <= float(flow.row.max()) * (1 + 1e-9) + 1e-12
    assert found <= upper * (1 + 1e-12)
    if exact:
        assert found > 0.99 * upper  # a bound of 0.99 times this one would be caught
        assert abs(found - upper) <= SLACK * upper, (found, upper)
    return upper


class Called(nn.Module):
    """A module called in a way of one's own."""

    def __init__(self, module: nn.Module, how: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.module, self.how = module, how

    def forward(self, x: Tensor) -> Any:
        return self.how(self.module, x)


def first(out: Any) -> Any:
    """The first tensor of nested tuples."""
    while isinstance(out, tuple):
        out = out[0]
    return out


def expanded_uppers(module: nn.Module, how: Callable[[nn.Module, Tensor], Any], x: Tensor) -> list[float]:
    """Bounds at a point, on a small ball and everywhere of a layer measured by its equations.

    Asserts that the equations agree with the layer, that every step has a rule, and that no bound is below the slope.
    """
    model = Called(module.double().eval(), how)
    with sdpa_kernel(SDPBackend.MATH):
        trace = record_trace(model, (x,), {}, x, lambda out: (first(out), []), REGISTRY.is_leaf, expansion_of)
        assert trace.steps and not any(step.trouble for step in trace.steps)
        found = jacobian_norm(lambda x: first(model(x)), x)
        uppers = []
        for scope in ("point", "ball:0.02", "global"):
            parts = compose(trace, REGISTRY, Context(Scope.parse(scope), 1))
            assert parts.transfers and not any(t.unknown for t in parts.transfers.values()), [
                t.unknown for t in parts.transfers.values()
            ]
            uppers.append(math.exp(min(float(parts.log_upper), 700.0)))
    assert found <= uppers[0] * (1 + 1e-9) and uppers[0] <= uppers[1] * (1 + 1e-9)
    assert uppers[1] < 1e290
    return uppers

"""The layer under test, the points of a scope it is tried at, and the slopes it has there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.bound import Scope

ROUNDING = 1e-13  # of the outputs' size: what their difference may lose
SCALES = (1.0, 1e-3, 30.0)
CLIMB = 16  # steps uphill for each quantity
SHARPEN = 6  # steps uphill for the slope, each a dense Jacobian


class OneStep(nn.Module):
    """A network of one layer."""

    def __init__(self, layer: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        """The layer's output, or the first of several."""
        out = self.layer(x)
        return out[0] if isinstance(out, tuple | list) else out


@dataclass(frozen=True, slots=True)
class Bench:
    """The layer under test, the point it is measured at and the generator all random choices come from."""

    model: OneStep
    x: Tensor
    mode: str
    generator: torch.Generator
    memory: dict[str, Tensor]

    def rewind(self) -> None:
        """Reset buffers and random numbers to how they were."""
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.memory[name])
        torch.default_generator.manual_seed(0)

    def function(self, x: Tensor) -> Tensor:
        """The layer as a map of one tensor; state and random numbers are the same at every call."""
        self.rewind()
        return self.model(x)

    def noise(self) -> Tensor:
        """A standard normal tensor of the input's shape."""
        return torch.randn(self.x.shape, dtype=torch.float64, generator=self.generator)


def make_bench(target: Callable[..., Any], inputs: Tensor | Sequence[int], mode: str, seed: int) -> Bench:
    """Build the network in float64; random weights and inputs come from ``seed``."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        model = OneStep(target() if is_factory(target) else target).double().train(mode == "train")
        x = inputs.detach().double() if isinstance(inputs, Tensor) else torch.randn(tuple(inputs), dtype=torch.float64)
        memory = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        return Bench(model, x, mode, torch.Generator().manual_seed(seed), memory)
    finally:
        torch.set_rng_state(state)


def is_factory(target: Callable[..., Any]) -> bool:
    """Whether a target is called to make the layer: a class of modules, or a callable that takes nothing."""
    if isinstance(target, type | nn.Module):
        return isinstance(target, type)
    try:
        return not inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


def probe_points(bench: Bench, scope: Scope) -> Iterator[tuple[str, Tensor]]:
    """Named points of the scope: the centre; in a ball its inside and surface; anywhere, inputs of several scales."""
    yield "the centre", bench.x
    if scope.kind == "global":
        for scale in SCALES:
            yield f"a random point of scale {scale:g}", scale * bench.noise()
        yield "a nearly constant point", 0.5 + 1e-6 * bench.noise()
        yield "a nearly zero point", 1e-6 * bench.noise()
        peak = 1e-3 * bench.noise()
        peak.view(-1)[peak.numel() // 2] = 5.0
        yield "a lone peak", peak
    elif scope.kind == "ball":
        for count, part in enumerate((0.999, 0.5, 1e-3, 0.999)):
            shift, sample = torch.zeros_like(bench.x), count % len(bench.x)
            shift[sample] = bench.noise()[sample]  # one sample moves: a ball of it, and of the batch as one point
            yield f"sample {sample} at {part:g} of the radius", bench.x + part * scope.radius / shift.norm() * shift


def uphill(bench: Bench, scope: Scope) -> Iterator[tuple[str, Tensor]]:
    """Named points found by gradient steps in the scope: high and low entries, long rows, far outputs, steep slopes."""
    if scope.kind == "point":
        return
    with torch.no_grad():
        centre = bench.function(bench.x * 1.0)
    goals: dict[str, Callable[[Tensor], Tensor]] = {
        "the highest entry found": lambda out: out.max(),
        "the lowest entry found": lambda out: -out.min(),
        "the longest row found": lambda out: _row_lengths(out).max(),
    }
    if scope.kind == "ball":
        goals["the farthest output found"] = lambda out: (out - centre).norm()
        goals["the farthest row found"] = lambda out: _row_lengths(out - centre).max()
    for name, goal in goals.items():
        yield name, _climbed(bench, scope, goal)
    yield "the steepest point found", _sharpened(bench, scope)


def _row_lengths(out: Tensor) -> Tensor:
    return torch.linalg.vector_norm(out, dim=-1) if out.ndim else out.abs()


def _within(bench: Bench, scope: Scope, x: Tensor) -> Tensor:
    """``x`` pulled into the ball of the whole batch."""
    if scope.kind == "global":
        return x
    shift = x - bench.x
    return bench.x + shift * (0.999 * scope.radius / shift.norm().clamp_min(1e-300)).clamp_max(1.0)


def _stride(scope: Scope, x: Tensor) -> float:
    return 0.3 * (1 + float(x.norm())) if scope.kind == "global" else 0.5 * scope.radius


def _climbed(bench: Bench, scope: Scope, goal: Callable[[Tensor], Tensor]) -> Tensor:
    """The best point of a walk along normalized gradients, the steps growing shorter where they overshoot."""
    x = _within(bench, scope, bench.x + 1e-3 * _stride(scope, bench.x) * bench.noise())
    best, top, part = x, -math.inf, 1.0
    for _ in range(CLIMB):
        leaf = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            out = bench.function(leaf * 1.0)
            value = goal(out) if out.numel() and not out.is_complex() else None
        if value is None or not value.requires_grad or not math.isfinite(value.item()):
            break
        if value.item() > top:
            best, top = leaf.detach(), value.item()
        else:
            part /= 2
        (slope,) = torch.autograd.grad(value, leaf, allow_unused=True)
        if slope is None or not 0 < float(slope.norm()) < math.inf:
            break
        x = _within(bench, scope, best + part * _stride(scope, best) * slope / slope.norm())
    return best


def _sharpened(bench: Bench, scope: Scope) -> Tensor:
    """A point at which the Jacobian is longer than at the centre: uphill on uᵀJ(x)v with its singular vectors."""
    best, part = bench.x, 1.0
    top, right = jacobian_norm(bench.function, best)
    for _ in range(SHARPEN):
        leaf = best.detach().clone().requires_grad_()
        try:
            with torch.enable_grad():
                out = bench.function(leaf * 1.0)
                pushed = out.detach() * 0 + _pushed(bench, best, right)
                (pulled,) = torch.autograd.grad(out, leaf, pushed, create_graph=True)
                (slope,) = torch.autograd.grad((pulled * right).sum(), leaf, allow_unused=True)
        except RuntimeError:  # no second derivative, or none that is not zero
            break
        if slope is None or not 0 < float(slope.norm()) < math.inf:
            break
        x = _within(bench, scope, best + part * _stride(scope, best) * slope / slope.norm())
        value, direction = jacobian_norm(bench.function, x)
        if value > top:
            best, top, right = x, value, direction
        else:
            part /= 4
    return best


def _pushed(bench: Bench, x: Tensor, right: Tensor) -> Tensor:
    """The left singular vector that belongs to ``right``, from a difference of outputs."""
    reach = 1e-5 * (1 + float(x.norm()))
    with torch.no_grad():
        change = bench.function(x + reach * right) - bench.function(x - reach * right)
    return change / change.norm().clamp_min(1e-300)


def secant(bench: Bench, a: Tensor, b: Tensor) -> float:
    """The slope between two points, less its rounding."""
    with torch.no_grad():
        first, second = bench.function(a), bench.function(b)
    gap = float((a - b).norm())
    seen = float((first - second).norm()) - ROUNDING * float(first.norm() + second.norm())
    return seen / gap if gap > 0 else 0.0


def dense_jacobian(out: Tensor, leaf: Tensor) -> Tensor:
    """The Jacobian of ``out`` in the leaf it was computed from, one row an entry, row by row."""
    entries = out.reshape(-1) if out.requires_grad else ()
    ask: dict[str, Any] = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    rows = [torch.autograd.grad(entry, leaf, **ask)[0].reshape(-1) for entry in entries]
    return torch.stack(rows) if rows else torch.zeros(out.numel(), leaf.numel(), dtype=leaf.dtype)


def jacobian_norm(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, Tensor]:
    """‖J(x)‖₂ from the dense Jacobian, row by row, and the direction that attains it."""
    leaf = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        dense = dense_jacobian(function(leaf * 1.0), leaf)  # layers that write in place may not write to a leaf
    if not dense.numel() or not bool(torch.isfinite(dense).all()):  # nothing there, or nothing found within float64
        return 0.0, torch.zeros_like(x)
    _, sizes, right = torch.linalg.svd(dense, full_matrices=False)
    return float(sizes[0]), right[0].reshape(x.shape)

"""Steep points and secants of a whole network, found with torch alone: nothing of the library's own search."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.instrument.trace.true_slopes import TrueSlopes
from tests.fuzz.nets import Case

ASTRAY = 1e-5  # how far autograd may be off where a search ends: std of a constant row, 1e-9 from it
ROUNDING = 1e-11  # of the outputs: normalizers divide what float64 loses by √ε


def jacobian(case: Case, x: Tensor) -> Tensor | None:
    """The dense Jacobian (outputs, inputs); None where autograd refuses (some in-place chains)."""
    leaf = x.detach().clone().requires_grad_()
    with (
        TrueSlopes()
    ):  # torch's own are off by 6e-8 for two activations; contracts/test_backward_is_derivative holds them
        out = case.function(leaf)
    try:
        rows = [torch.autograd.grad(y, leaf, retain_graph=True, allow_unused=True)[0] for y in out.reshape(-1)]
    except RuntimeError:
        return None
    return torch.stack([torch.zeros_like(leaf) if r is None else r for r in rows]).flatten(1)


def top(matrix: Tensor) -> tuple[float, Tensor]:
    """Largest singular value and its right vector."""
    _, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    return float(sizes[0]), right[0]


def inside(case: Case, x: Tensor, radius: float, together: bool) -> Tensor:
    """``x`` pulled into the ball: of the whole batch, or of each sample where samples are measured one by one."""
    shift = x - case.start
    size = shift.norm() if together else shift.flatten(1).norm(dim=1).reshape(-1, *[1] * (x.ndim - 1))
    return case.start + shift * (0.999 * radius / torch.clamp_min(size, 1e-300)).clamp_max(1.0)


def wander(case: Case, radius: float, together: bool, generator: torch.Generator) -> Iterator[Tensor]:
    """Points of the scope: at random, at several scales, nearly constant, on the surface of the ball."""
    x = case.start
    noise = torch.randn(x.shape, dtype=x.dtype, generator=generator)
    if radius == float("inf"):
        mean = x.flatten(1).mean(1).reshape(-1, *[1] * (x.ndim - 1))
        yield from (noise, 1e-3 * noise, 30 * noise, mean + 1e-5 * noise, 0.1 * x, x + noise)
    else:
        yield inside(case, x + 1e9 * noise, radius, together)
        yield inside(case, x + 0.5 * radius * noise / max(1.0, float(noise.norm())), radius, together)
        yield inside(case, torch.full_like(x, float(x.mean())) + 1e-6 * noise, radius, together)


def secant(case: Case, a: Tensor, b: Tensor) -> float:
    """A slope that was seen, less its rounding."""
    with torch.no_grad():
        fa, fb = case.function(a), case.function(b)
    gap = float((a - b).norm())
    seen = float((fa - fb).norm()) - ROUNDING * float(1 + fa.norm() + fb.norm())
    return seen / gap if gap > 0 and seen == seen else 0.0


def per_sample_slopes(case: Case, x: Tensor) -> list[float]:
    """‖columns of J that belong to each sample‖: at most the bound of that sample."""
    dense = jacobian(case, x)
    if dense is None or not bool(torch.isfinite(dense).all()):
        return []
    blocks = dense.reshape(len(dense), len(x), -1)
    return [float(torch.linalg.matrix_norm(blocks[:, i], 2)) for i in range(len(x))]


def steady(case: Case, x: Tensor, sigma: float) -> float:
    """A slope less twice what it wobbles by when its point is shaken by a few ε.

    Next to a singular point autograd divides one rounding error by another.
    """
    generator = torch.Generator().manual_seed(0)
    found = [sigma]
    for _ in range(4):
        dense = jacobian(case, x * (1 + 1e-15 * torch.randn(x.shape, dtype=x.dtype, generator=generator)))
        if dense is not None and bool(torch.isfinite(dense).all()):
            found.append(top(dense)[0])
    return min(found) - 2 * (max(found) - min(found))


def steepest(case: Case, radius: float, together: bool, effort: int, limit: float = float("inf")) -> tuple[float, str]:
    """The largest slope found in the scope, and where; Jacobians above ``limit`` are looked at twice."""
    generator = torch.Generator().manual_seed(case.seed)
    best, where = 0.0, "nowhere"

    def offer(value: float, place: str) -> None:
        nonlocal best, where
        if value > best:
            best, where = value, place

    points = [case.start] if radius == 0 else [case.start, *wander(case, radius, together, generator)]
    if radius not in (0.0, float("inf")):
        points[0] = inside(case, case.start, radius, together)
    for i, x in enumerate(points):
        dense = jacobian(case, x)
        if dense is None or not bool(torch.isfinite(dense).all()):
            direction = torch.randn(x.shape, dtype=x.dtype, generator=generator)
        else:
            sigma, right = top(dense)
            offer(sigma if sigma <= limit else steady(case, x, sigma), f"Jacobian at point {i}")
            direction = right.reshape(x.shape)
        if radius:
            for length in (1e-3, 0.1, 3.0):
                ends = [x + s * min(length, radius) * direction for s in (0.5, -0.5)]
                if radius != float("inf"):
                    ends = [inside(case, e, radius, together) for e in ends]
                offer(secant(case, *ends), f"secant of length {length} at point {i}")
    if radius and effort:
        for start in (points[0], points[1]):
            offer(*climb(case, start, radius, together, effort))
    return best, where


def climb(case: Case, start: Tensor, radius: float, together: bool, effort: int) -> tuple[float, str]:
    """Projected gradient steps on uᵀJ(x)v, the singular vectors taken afresh at every point that is steeper."""
    x, stride = start, 0.3 * (1 + float(start.norm())) if radius == float("inf") else 0.7 * radius
    dense = jacobian(case, x)
    if dense is None or not bool(torch.isfinite(dense).all()):
        return 0.0, "nowhere"
    top_value, right = top(dense)
    for _ in range(effort):
        uphill = slope_of_slope(case, x, dense @ right, right)
        if uphill is None:
            break
        there = x + stride * uphill
        if radius != float("inf"):
            there = inside(case, there, radius, together)
        tried = jacobian(case, there)
        if tried is not None and bool(torch.isfinite(tried).all()) and top(tried)[0] > top_value:
            x, dense = there, tried
            top_value, right = top(dense)
        else:
            stride /= 4
    return top_value * (1 - ASTRAY), "the end of a climb"


def slope_of_slope(case: Case, x: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """The unit direction in which uᵀJ(x)v grows; None where autograd has none."""
    leaf = x.detach().clone().requires_grad_()
    try:
        out = case.function(leaf)
        (pulled,) = torch.autograd.grad(out, leaf, left.reshape(out.shape), create_graph=True)
        (uphill,) = torch.autograd.grad((pulled * right.reshape(x.shape)).sum(), leaf, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return None
    if uphill is None or not 0 < float(uphill.norm()) < float("inf"):
        return None
    return uphill / uphill.norm()

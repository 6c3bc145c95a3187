"""Slopes between two points: a check on autograd, and a bound where it has nothing to say."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, TINY_SINGLE
from normgauge.instrument.probe.jacobian import TopPair
from normgauge.instrument.probe.linearize import SampleMap, row_norms, unit_rows

AGREEMENT = 0.1
SMOOTH = 1e-6  # what curvature may take from a difference quotient
HALVINGS = 14
NOISE = (1e-15, 1e-12, 1e-9)  # moves far below a secant's length, as parts of the point's norm


class SecantSlopes(NamedTuple):
    """Slopes met, one a sample, and the two lengths that show each: ``rise`` / ``run``. All (samples,)."""

    slope: Tensor
    run: Tensor
    rise: Tensor


def confirmed_slopes(network: SampleMap, points: Tensor, pair: TopPair) -> SecantSlopes:
    """The Jacobian's slopes where the network itself moves as they say, 0 elsewhere.

    uᵀ(f(x + h v) − f(x)) / h → uᵀJ v = σ as h → 0, so a backward pass that is not the derivative (a straight-through
    quantizer, a detached branch) gives itself away.

    Args:
        network: the network.
        points: x, (samples, inputs).
        pair: the Jacobian's pairs there.

    Returns:
        σ, or the quotient where that is smaller, if some step h agrees within a tenth; with h and the rise
        uᵀ(f(x + h v) − f(x)), less its rounding error, of the first step that does.
    """
    here = network.values(points)
    noise = 8 * network.eps * row_norms(here) + TINY
    run, rise = network.steps(points), torch.zeros_like(pair.sigma)
    agreed = torch.zeros_like(pair.sigma, dtype=torch.bool)
    for shrink in (1.0, 1e-2, 1e2, 1e-4, 1e-5):
        step = (network.steps(points) * shrink).clamp(max=network.reach)
        moved = network.values(points + step[:, None] * pair.right)
        found = ((moved - here) * pair.left).sum(1) - noise
        better = ~agreed & ((found / step - pair.sigma).abs() < (rise / run - pair.sigma).abs())
        run, rise = torch.where(better, step, run), torch.where(better, found, rise)
        agreed = (rise / run - pair.sigma).abs() <= AGREEMENT * pair.sigma
        if bool(agreed.all()):
            break
    # beside a singular point autograd may be a percent too steep; the quotient is a slope the network really has
    backed = torch.minimum(pair.sigma, rise / run * (1 + SMOOTH))
    return SecantSlopes(torch.where(agreed, backed, 0.0), run, rise)


def rounding_noise(network: SampleMap, points: Tensor, direction: Tensor, here: Tensor) -> Tensor:
    """Bound on the error of the outputs at ``points``: four times the largest response to moves of 1e-15 … 1e-9.

    Larger than the error itself, since it holds the true response too; it also sees a network that works in float32
    inside, whose steps are 1e-8 of its values. ``here`` are the outputs at the points.
    """
    size = row_norms(points).clamp(min=TINY_SINGLE)[:, None]
    steps = [(part * size).clamp(max=network.reach) for part in NOISE]
    moves = [row_norms(network.values(points + step * direction) - here) for step in steps]
    return 4 * torch.stack(moves).amax(0) + 64 * network.eps * row_norms(here) + TINY


def secant_slopes(network: SampleMap, near: Tensor, far: Tensor, halvings: int = HALVINGS) -> SecantSlopes:
    """The steepest secant found inside each segment, less its rounding error.

    Of the two halves of a segment one is at least as steep as the whole, so halving never loses:
    ‖f(b) − f(a)‖ / ‖b − a‖ ≤ max(‖f(m) − f(a)‖ / ‖m − a‖, ‖f(b) − f(m)‖ / ‖b − m‖).

    Holds:  below the constant on any convex set that holds the segments, differentiable or not.

    Args:
        network: the network.
        near: first ends, (samples, inputs).
        far: second ends.
        halvings: how often each segment is halved.

    Returns:
        Slopes of at least 0; 0 where the ends coincide or the network diverged. ``rise`` is less its rounding error.
    """
    low, high = network.values(near), network.values(far)
    along = unit_rows(far - near)
    noise = torch.maximum(rounding_noise(network, near, along, low), rounding_noise(network, far, -along, high))
    shortest = max(1e-6, 1e5 * network.eps)  # a part of the points' size: they are rounded where the network works
    best = _slopes(near, far, low, high, noise, shortest)
    for _ in range(halvings):
        middle = (near + far) / 2
        between = network.values(middle)
        halves = ((near, middle, low, between), (middle, far, between, high))
        first, second = (_slopes(*half, noise, shortest).slope for half in halves)
        lower = (first >= second)[:, None]
        near, far = torch.where(lower, near, middle), torch.where(lower, middle, far)
        low, high = torch.where(lower, low, between), torch.where(lower, between, high)
        found = _slopes(near, far, low, high, noise, shortest)
        best = SecantSlopes(
            *(torch.where(found.slope > best.slope, new, old) for new, old in zip(found, best, strict=True))
        )
    return best


def _slopes(near: Tensor, far: Tensor, low: Tensor, high: Tensor, noise: Tensor, shortest: float) -> SecantSlopes:
    run, rise = row_norms(far - near), row_norms(high - low) - 2 * noise
    slope = rise / torch.where(run > 0, run, 1.0)
    good = slope.isfinite() & (slope > 0) & (run > shortest * (row_norms(near) + row_norms(far)))
    return SecantSlopes(torch.where(good, slope, 0.0), run, rise)

"""Slopes between two points: a check on autograd, and a bound where it has nothing to say."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.probe.jacobian import TopPair
from normgauge.probe.linearize import SampleMap, norms, unit

AGREEMENT = 0.1
HALVINGS = 14
NOISE = (1e-15, 1e-12, 1e-9)  # moves far below a secant's length, as parts of the point's norm


def confirmed(network: SampleMap, points: Tensor, pair: TopPair) -> Tensor:
    """Where the network itself moves as its Jacobian says.

    uᵀ(f(x + h v) − f(x)) / h → uᵀJ v = σ as h → 0, so a backward pass that is not the derivative (a straight-through
    quantizer, a detached branch) gives itself away.

    Args:
        network: the network.
        points: x, (samples, inputs).
        pair: the Jacobian's pairs there.

    Returns:
        bool (samples,): some step h agrees within a tenth.
    """
    here = network.values(points)
    agreed = pair.sigma <= 0
    for shrink in (1.0, 1e-2, 1e2, 1e-4, 1e-5):
        step = (network.steps(points) * shrink).clamp(max=network.reach)
        moved = network.values(points + step[:, None] * pair.right)
        slope = ((moved - here) * pair.left).sum(1) / step
        agreed = agreed | ((slope - pair.sigma).abs() <= AGREEMENT * pair.sigma)
        if bool(agreed.all()):
            break
    return agreed


def rounding_noise(network: SampleMap, points: Tensor, direction: Tensor) -> Tensor:
    """Bound on the error of the outputs at ``points``: four times the largest response to moves of 1e-15 … 1e-9.

    Larger than the error itself, since it holds the true response too; it also sees a network that works in float32
    inside, whose steps are 1e-8 of its values.
    """
    here = network.values(points)
    size = norms(points).clamp(min=1e-30)[:, None]
    steps = [(part * size).clamp(max=network.reach) for part in NOISE]
    moves = [norms(network.values(points + step * direction) - here) for step in steps]
    return 4 * torch.stack(moves).amax(0) + 64 * torch.finfo(here.dtype).eps * norms(here)


def secant_slopes(network: SampleMap, near: Tensor, far: Tensor) -> Tensor:
    """The steepest secant found inside each segment, less its rounding error.

    Of the two halves of a segment one is at least as steep as the whole, so halving never loses:
    ‖f(b) − f(a)‖ / ‖b − a‖ ≤ max(‖f(m) − f(a)‖ / ‖m − a‖, ‖f(b) − f(m)‖ / ‖b − m‖).

    Holds:  below the constant on any convex set that holds the segments, differentiable or not.

    Args:
        network: the network.
        near: first ends, (samples, inputs).
        far: second ends.

    Returns:
        (samples,), at least 0; 0 where the ends coincide or the network diverged.
    """
    low, high = network.values(near), network.values(far)
    along = unit(far - near)
    noise = torch.maximum(rounding_noise(network, near, along), rounding_noise(network, far, -along))
    best = _slope(near, far, low, high, noise)
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        between = network.values(middle)
        first = _slope(near, middle, low, between, noise) >= _slope(middle, far, between, high, noise)
        lower = first[:, None]
        near, far = torch.where(lower, near, middle), torch.where(lower, middle, far)
        low, high = torch.where(lower, low, between), torch.where(lower, between, high)
        best = torch.maximum(best, _slope(near, far, low, high, noise))
    return best


def _slope(near: Tensor, far: Tensor, low: Tensor, high: Tensor, noise: Tensor) -> Tensor:
    length = norms(far - near)
    slope = (norms(high - low) - 2 * noise) / torch.where(length > 0, length, 1.0)
    good = slope.isfinite() & (slope > 0) & (length > 1e-6 * (norms(near) + norms(far)))
    return torch.where(good, slope, 0.0)

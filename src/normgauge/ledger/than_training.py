"""Claims of Than 2025 on training: quoted rates, Corollaries 18 and 19.

A rate is checked by running a method on a hard instance and counting its steps, and by its units: steps do not change
when the loss is multiplied by c or the weights are measured in another unit, so a formula that does is no rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw

claims = Family("T", "Than 2025")


def convex_steps(n: int, slope: float, radius: float) -> int:
    """Steps a subgradient method takes on slope·max(w_i) over the ball until it is below the starting gap.

    The oracle answers with a coordinate it has not named yet, as it may: all of them are largest.
    """
    w = torch.zeros(n, dtype=torch.float64)
    best = -slope * radius / math.sqrt(n)
    for step in range(1, 2 * n):
        w[int(w.argmax())] -= radius / math.sqrt(n)  # argmax names the first of several
        if slope * float(w.max()) < 1e-9 * best:  # below where it started, at 0
            return step
    return 2 * n


@claims.add(
    "rate.convex",
    "section 5.1 (quoting Bubeck 2015)",
    Verdict.WRONG,
    "A first-order method needs on the order of (L/α)² steps to come within α of the minimum of a convex function.",
    "Θ((LR/α)²): the distance R to the minimum belongs in it, otherwise the number depends on the unit of the weights.",
)
def rate_convex(draw: Draw) -> Iterator[Finding | Curve]:
    """max-of-coordinates: one new coordinate a step; subgradient descent from above."""
    n, slope = draw.integer(5, 40), float(draw.uniform(1, low=0.5, high=3.0))
    radius = float(draw.uniform(1, low=2.0, high=5.0))
    alpha = slope * radius / math.sqrt(n)
    steps = convex_steps(n, slope, radius)
    yield equal("steps on slope·max(w) until the gap is below α", steps, predicted=(slope * radius / alpha) ** 2)
    yield refutes("the same, against (L/α)²", steps, published=(slope / alpha) ** 2)
    t = draw.integer(20, 60)
    rows, target = draw.normal(8, 6), draw.normal(6)
    lipschitz = float(rows.norm(dim=1).max())
    away, gaps = draw.normal(6), []
    w = target + radius * away / away.norm()
    for _ in range(t):
        values = rows @ (w - target)
        worst = int(values.abs().argmax())
        gaps.append(float(values.abs().max()))
        w = w - radius / (lipschitz * math.sqrt(t)) * rows[worst] * values[worst].sign()
    yield below("best gap of T subgradient steps on max|aᵢ·(w−w*)|", min(gaps), predicted=lipschitz * radius / t**0.5)


def strong_steps(n: int, slope: float, mu: float) -> int:
    """Steps of dual averaging on slope·max(w_i) + (μ/2)‖w‖² until it is below the starting gap."""
    w = torch.zeros(n, dtype=torch.float64)
    best = -(slope**2) / (2 * mu * n)
    for step in range(1, 2 * n):
        w[int(w.argmax())] -= slope / (mu * n)
        if slope * float(w.max()) + mu / 2 * float(w @ w) < 1e-9 * best:
            return step
    return 2 * n


def brute_minimum(n: int, slope: float, mu: float) -> float:
    """The minimum of slope·max(w_i) + (μ/2)‖w‖², over a fine grid of w = −t·1: by symmetry it lies there."""
    grid = torch.linspace(0, 3 * slope / (mu * n), 30001, dtype=torch.float64)
    return float((-slope * grid + mu / 2 * n * grid**2).min())


@claims.add(
    "rate.strong",
    "section 5.1 (quoting Bubeck 2015)",
    Verdict.WRONG,
    "A first-order method needs on the order of L/α steps on a strongly convex function.",
    "Ω(L²/(μα)): L/α changes with the unit of the weights while the steps do not.",
)
def rate_strong(draw: Draw) -> Iterator[Finding | Curve]:
    """The hard instance again, with a quadratic; then the same one with weights in another unit."""
    n, slope = draw.integer(5, 40), float(draw.uniform(1, low=0.5, high=3.0))
    mu, unit = float(draw.uniform(1, low=0.3, high=2.0)), float(draw.uniform(1, low=2.0, high=5.0))
    alpha = -brute_minimum(n, slope, mu)
    steps = strong_steps(n, slope, mu)
    reach = slope / mu  # the ball that holds the minimum; the largest subgradient there is slope + μ·reach
    lipschitz = slope + mu * reach
    yield equal("steps until the gap is below α", steps, predicted=lipschitz**2 / (8 * mu * alpha), rel=1e-6)
    again = strong_steps(n, slope / unit, mu / unit**2)
    ratio = ((lipschitz / unit) ** 2 / (mu / unit**2 * alpha)) / (lipschitz**2 / (mu * alpha))
    yield equal("steps with weights in another unit, over steps before", again / steps, predicted=ratio)
    yield refutes("the same, against L/α", again / steps, published=(lipschitz / unit / alpha) / (lipschitz / alpha))


@claims.add(
    "rate.stationary",
    "section 5.1 (quoting Zhang et al. 2020)",
    Verdict.LOOSE,
    "Generalized-gradient methods need at least L/α steps to reach an α-stationary point of a nonsmooth function.",
    "No finite number suffices: ‖∇‖ = L but at one point. Only (δ, α)-Goldstein points are reached, and δ "
    "sets the cost.",
)
def rate_stationary(draw: Draw) -> Iterator[Finding | Curve]:
    """L|w − θ| by bisection: never stationary; within δ after log₂(R/δ) steps."""
    slope, theta = float(draw.uniform(1, low=0.5, high=3.0)), float(draw.uniform(1, low=0.1, high=0.9))
    alpha, doublings = slope / float(draw.uniform(1, low=2.0, high=5.0)), draw.integer(5, 20)
    delta = 2.0**-doublings
    low, high, needed, smallest = 0.0, 1.0, 0, math.inf
    for step in range(1, 41):
        middle = (low + high) / 2
        gradient = slope if middle > theta else -slope
        low, high = (low, middle) if gradient > 0 else (middle, high)
        smallest = min(smallest, abs(gradient))
        needed = needed or (step if high - low <= delta else 0)
    yield below("L/α, against the steps that did not suffice", slope / alpha, predicted=40)
    yield equal("smallest gradient met in 40 steps", smallest, predicted=slope)
    yield exceeds("the same, against the α asked for", smallest, published=alpha)
    yield equal("steps until gradients of both signs lie within δ", needed, predicted=math.log2(1 / delta))


def goldstein_steps(slope: float, start: float, delta: float) -> int:
    """Steps of length δ down slope·|w| until gradients of both signs lie within δ."""
    w, steps = start, 0
    while slope * (w - delta) > 0:
        w, steps = w - delta, steps + 1
    return steps


def goldstein_rate(lipschitz: float, gap: float, delta: float, alpha: float) -> float:
    """L²Δ/(δα³), without its constant."""
    return lipschitz**2 * gap / (delta * alpha**3)


@claims.add(
    "rate.nonconvex",
    "section 5.1 (quoting Davis et al., Tian et al. 2022)",
    Verdict.WRONG,
    "α-stationary points of nonconvex Lipschitz functions are found with on the order of L/α² evaluations.",
    "Õ(L²Δ/(δα³)) for (δ, α)-Goldstein points, or Õ(d·LΔ/(δα²)) with d weights; L/α² has no Δ, no δ and no "
    "right units.",
)
def rate_nonconvex(draw: Draw) -> Iterator[Finding | Curve]:
    """Goldstein steps on a slope, counted, with the loss and the weights in other units."""
    slope, delta = float(draw.uniform(1, low=0.5, high=3.0)), float(draw.uniform(1, low=0.01, high=0.1))
    start = (draw.integer(5, 60) + 0.5) * delta
    c, unit = (float(draw.uniform(1, low=2.0, high=5.0)) for _ in range(2))
    steps = goldstein_steps(slope, start, delta)
    rate = goldstein_rate(slope, slope * start, delta, slope)
    yield equal("steps on slope·|w|, α = L", steps, predicted=math.floor(rate))
    for what, (a, b) in (("loss × c", (c, 1.0)), ("weights × c", (1 / unit, unit))):
        again = goldstein_steps(slope * a, start * b, delta * b)
        same = goldstein_rate(slope * a, slope * start * a * b, delta * b, slope * a / 3)
        base = goldstein_rate(slope, slope * start, delta, slope / 3)
        yield equal(f"steps over steps before, {what}", again / steps, predicted=same / base)
        printed = (slope * a / (slope * a / 3) ** 2) / (slope / (slope / 3) ** 2)
        yield refutes(f"the same, {what}, against L/α²", again / steps, published=printed)

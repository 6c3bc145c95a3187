"""Checks: steps and samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from normgauge.generalization.bounds.cells import tau_published
from normgauge.ledger.claim import Found, below, equal, exceeds
from normgauge.ledger.draw import Draw, draw_counts, variation
from normgauge.ledger.nets import decade
from normgauge.zoo import extremal

DELTA = 0.1


def oracle_steps(n: int, slope: float, length: float, mu: float = 0.0) -> int:
    """Steps of ``length`` along the coordinates an oracle names, until slope·max(w_i) + (μ/2)‖w‖² is below its start.

    It names one it has not named yet, as it may: all of them are largest.
    """
    w = torch.zeros(n, dtype=torch.float64)
    for step in range(1, 2 * n):
        w[int(w.argmax())] -= length
        if slope * float(w.max()) + mu / 2 * float(w @ w) < -1e-9 * slope * length:
            return step
    return 2 * n


def rate_convex(draw: Draw) -> Found:
    n, t, (slope, radius) = draw.integer(5, 40), draw.integer(20, 60), draw.uniform(2, low=0.5, high=5.0).tolist()
    alpha = slope * radius / math.sqrt(n)  # what −slope·max(w) is at most in the ball
    steps = oracle_steps(n, slope, radius / math.sqrt(n))
    yield equal("steps on slope·max(w) until the gap is below α", steps, predicted=(slope * radius / alpha) ** 2)
    rows, away, gaps = draw.normal(8, 6), draw.normal(6), []
    lipschitz, w = float(rows.norm(dim=1).max()), radius * away / away.norm()
    for _ in range(t):
        worst = int((rows @ w).abs().argmax())
        gaps.append(float((rows @ w)[worst].abs()))
        w = w - radius / (lipschitz * math.sqrt(t)) * rows[worst] * (rows @ w)[worst].sign()
    yield below("best gap of T subgradient steps on max|aᵢ·w|", min(gaps), predicted=lipschitz * radius / math.sqrt(t))


def brute_minimum(n: int, slope: float, mu: float) -> float:
    """The minimum of slope·max(w_i) + (μ/2)‖w‖², over a fine grid of w = −t·1: by symmetry it lies there."""
    grid = torch.linspace(0, 3 * slope / (mu * n), 30001, dtype=torch.float64)
    return float((-slope * grid + mu / 2 * n * grid**2).min())


def rate_strong(draw: Draw) -> Found:
    n, slope, mu = draw.integer(5, 40), *draw.uniform(2, low=1.0, high=2.0).tolist()
    alpha, steps = -brute_minimum(n, slope, mu), oracle_steps(n, slope, slope / (mu * n), mu)
    lipschitz = slope + mu * (slope / mu)  # the largest subgradient in the ball that holds the minimum
    yield equal("steps until the gap is below α", steps, predicted=lipschitz**2 / (8 * mu * alpha), rel=1e-6)
    yield below("the same with L for L²/μ, L ≥ μ", lipschitz / (8 * alpha), predicted=steps)


def rate_stationary(draw: Draw) -> Found:
    slope, theta = float(draw.uniform(1, low=0.5, high=3.0)), float(draw.uniform(1, low=0.1, high=0.9))
    alpha, doublings = slope / float(draw.uniform(1, low=2.0, high=5.0)), draw.integer(5, 20)
    low, high, needed, smallest = 0.0, 1.0, 0, math.inf
    for step in range(1, 41):
        middle = (low + high) / 2
        gradient = slope if middle > theta else -slope
        low, high = (low, middle) if gradient > 0 else (middle, high)
        smallest = min(smallest, abs(gradient))
        needed = needed or (step if high - low <= 2.0**-doublings else 0)
    yield below("L/α, against the steps that did not suffice", slope / alpha, predicted=40)
    yield equal("smallest gradient met in 40 steps", smallest, predicted=slope)
    yield exceeds("the same, against the α asked for", smallest, published=alpha)
    yield equal("steps until gradients of both signs lie within δ = 2⁻ᵏ", needed, predicted=doublings)


def goldstein_steps(slope: float, start: float, delta: float) -> int:
    """Steps of length δ down slope·|w| until gradients of both signs lie within δ."""
    w, steps = start, 0
    while slope * (w - delta) > 0:
        w, steps = w - delta, steps + 1
    return steps


def goldstein_rate(lipschitz: float, gap: float, delta: float, alpha: float, power: int = 3) -> float:
    """L²Δ/(δα³), or LΔ/(δα²) with ``power`` 2, without constants."""
    return lipschitz ** (power - 1) * gap / (delta * alpha**power)


def rate_nonconvex(draw: Draw) -> Found:
    slope, delta = float(draw.uniform(1, low=0.5, high=3.0)), float(draw.uniform(1, low=0.01, high=0.1))
    start, c = (draw.integer(5, 60) + 0.5) * delta, float(draw.uniform(1, low=2.0, high=5.0))
    steps = goldstein_steps(slope, start, delta)
    for power, law in ((2, "LΔ/(δα²)"), (3, "L²Δ/(δα³)")):
        for what, (a, b) in (("", (1.0, 1.0)), (", loss × c", (c, 1.0)), (", weights × c", (1 / c, c))):
            told = goldstein_rate(slope * a, slope * start * a * b, delta * b, slope * a, power)
            again = goldstein_steps(slope * a, start * b, delta * b)
            yield equal(f"steps on slope·|w| to α = L, by {law}{what}", again, predicted=math.floor(told))
    error = (slope**2 * slope * start / (delta * steps)) ** (1 / 3)
    yield below("gradient left before the last of T steps, against (L²Δ/(δT))^(1/3)", slope, predicted=error)


def c18(draw: Draw) -> Found:
    n, gains, h = draw.integer(2, 5), draw.uniform(3, low=0.5, high=3.0).tolist(), draw.uniform(4, low=0.1)
    weight, target = draw.uniform(n, 4, low=0.1), draw.uniform(n, low=0.5)
    for scale in (1.0, 100.0):
        net, p = extremal([scale * a for a in gains], [n] * 4), scale**3 * math.prod(gains)

        def gradient(w: torch.Tensor) -> torch.Tensor:
            leaf = w.clone().requires_grad_()
            loss = (net((leaf @ h).relu()[None])[0] - target).square().sum() / 2  # noqa: B023
            return torch.autograd.grad(loss, leaf)[0]

        first = gradient(weight)
        size = p * float((p * weight @ h - target).norm() * h.norm())
        yield equal(f"gradient in W_i, s_{{i+1}}···s_K = {p:.3g}", first.norm(), predicted=size)
        left = gradient(weight - first / (p**2 * h @ h)).norm()
        yield equal("the same after one step", left, predicted=0.0, scale=first.norm())


def t1(draw: Draw) -> Found:
    n, m, slope, trials = draw.integer(4, 12), draw.integer(80, 200), float(draw.uniform(1, low=0.2, high=2.0)), 300
    x = draw.uniform(trials, m)
    gaps = slope * (0.5 - (x * n - (x * n).floor()).mean(1)).abs() / n
    met = torch.stack([((x * n).floor() == i).any(1) for i in range(n)]).sum(0)
    limits = torch.tensor([slope / n * (1 + tau_published(int(t), n, m, DELTA)) for t in met])
    yield below("share of draws that break (6)", float((gaps > limits).double().mean()), predicted=DELTA)
    p = torch.full((n,), 1 / n, dtype=torch.float64)
    sides = float(variation(p, draw_counts(draw, p, m, trials)).max())
    yield below("largest gap of any model constant on cells", sides, predicted=tau_published(n, n, m, DELTA))
    large, constant = 1e14, (math.sqrt(2) + 1) * math.sqrt(n * math.log(2 * m / DELTA))
    yield equal("√m·g, m large", math.sqrt(large) * tau_published(n, m, large, DELTA), predicted=constant, rel=1e-4)


def smaller_constants(draw: Draw) -> Found:
    m, slope, fine = draw.integer(10, 40), float(draw.uniform(1, low=2.0, high=9.0)), 100_000
    x, grid = draw.uniform(m).sort().values, (torch.arange(fine) + 0.5) / fine
    loss = slope * (torch.searchsorted(x, grid) / m - grid).sign().cumsum(0) / fine  # the one misjudged most
    gap = float(loss.mean() - loss[(x * fine).long()].mean())
    low, high = x - torch.arange(m) / m, (torch.arange(m) + 1) / m - x
    apart = float((low * low.abs() + high * high.abs()).sum() / 2)  # ∫ of the distance of quantiles
    yield equal("largest gap of a loss with constant L", gap, predicted=slope * apart, rel=1e-3)
    flat = abs(slope / 2 - float((0 - slope * x).abs().mean()))
    yield exceeds("gap of the network 0 for labels L·x, against ‖h‖_Lip", flat, published=0.0)


def lla(draw: Draw) -> Found:
    size, c, (tau, slope) = decade(draw, -2, -1), decade(draw, 0.5, 1), draw.uniform(2, low=0.5, high=3.0).tolist()

    def samples(mu: float) -> float:
        low, high = 10.0, 1e30
        for _ in range(200):
            m = math.sqrt(low * high)
            low, high = (m, high) if math.log(m) / (mu * math.sqrt(m)) > size else (low, m)
        return low

    few, many = samples(0.1), samples(0.1 / c)
    logs = math.log(many) / math.log(few)
    yield equal("samples for noise μ/c, over those for μ", many / few, predicted=(c * logs) ** 2)
    yield below("c², against the same", c**2, predicted=many / few)
    grid = torch.logspace(-6, 12, 180_001, dtype=torch.float64)

    def power(bound: Callable[[float], torch.Tensor]) -> float:
        return math.log10(float(bound(1e9).min() / bound(1e6).min())) / 3

    found = power(lambda m: tau * grid**2 / 2 + 1 / (grid * math.sqrt(m)))
    yield equal("power of m in (LLA), at the best μ", found, predicted=-1 / 3, rel=1e-5)
    for n in (1, draw.integer(2, 10)):
        found = power(lambda m: slope * grid ** (-1 / n) + (grid / m).sqrt())  # noqa: B023
        yield equal(f"power of m in (13), best even cells in {n} dimensions", found, predicted=-1 / (n + 2), rel=1e-5)

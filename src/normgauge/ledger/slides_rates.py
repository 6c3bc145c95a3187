"""Claims of Than's slides of 2023: Theorem 1 and the rates of optimization."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.generalization.bounds.cells import tau_published
from normgauge.ledger.cells import draw_counts, variation
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.than_training import convex_steps, goldstein_rate, goldstein_steps

claims = Family("S", "Than 2023")
DELTA = 0.1


@claims.add(
    "T1",
    "Theorem 1, (6)",
    Verdict.LOOSE,
    "|F(P) − F(D)| ≤ Σ(m_i/m)λ_iL_i + g with probability 1−δ, λ_i the diameter of cell i.",
    "True on both sides; the mean distance to the samples does for the diameter, and a smaller slack for g (T.T20.13).",
)
def t1(draw: Draw) -> Iterator[Finding | Curve]:
    """A sawtooth of slope L over equal cells of a line, simulated: both signs of the gap."""
    n, m, slope, trials = draw.integer(4, 12), draw.integer(80, 200), float(draw.uniform(1, low=0.2, high=2.0)), 300
    x = draw.uniform(trials, m)
    loss = slope * (x * n - (x * n).floor()) / n
    gaps = (slope / (2 * n) - loss.mean(1)).abs()
    met = torch.stack([((x * n).floor() == i).any(1) for i in range(n)]).sum(0)
    top = slope / n  # C, the largest loss
    limits = torch.tensor([slope / n + top * tau_published(int(t), n, m, DELTA) for t in met])
    yield below("share of draws that break (6)", float((gaps > limits).double().mean()), predicted=DELTA)
    p = torch.full((n,), 1 / n, dtype=torch.float64)
    sides = variation(p, draw_counts(draw, p, m, trials))
    yield below(
        "largest gap of any model constant on cells, either sign",
        float(sides.max()),
        predicted=tau_published(n, n, m, DELTA),
    )
    line = torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]
    mean = float(torch.cdist(line, line).mean())
    yield equal("mean distance in a cell over its diameter, on a line", mean, predicted=1 / 3, rel=0.01)


@claims.add(
    "T1.smaller",
    "slide after Theorem 1",
    Verdict.UNSUPPORTED,
    "A network with a smaller Lipschitz constant may generalize better.",
    "A bound that grows with L ranks nothing: the constant model has L = 0 and a gap, the steep true "
    "function has none.",
)
def t1_smaller(draw: Draw) -> Iterator[Finding | Curve]:
    """Targets t(x) = a·x on a line: the model h = t against h = 0."""
    m, slope = draw.integer(10, 40), float(draw.uniform(1, low=2.0, high=9.0))
    x = draw.uniform(m)
    steep = abs(0.0 - float((slope * x - slope * x).abs().mean()))
    flat = abs(slope / 2 - float((slope * x).abs().mean()))
    yield equal("gap of the steep model", steep, predicted=0.0, scale=1.0)
    yield exceeds("gap of the constant model, against that of the steep one", flat, published=steep)
    yield equal(
        "the same: the spread of the samples, times a", flat, predicted=slope * abs(0.5 - float(x.mean())), rel=1e-6
    )


@claims.add(
    "T1.rate",
    "slides on generalization",
    Verdict.UNSUPPORTED,
    "The gap is ω·Π‖γ_k/σ_k‖ + O(m^(−1/2)).",
    "The constant behind O is C(√2+1)√(|T|ln(2N/δ)), and |T| grows with m as cells get small: at |T| = m it "
    "does not fall.",
)
def t1_rate(draw: Draw) -> Iterator[Finding | Curve]:
    """√m·g for few cells and for as many as samples."""
    met, cells = draw.integer(5, 50), draw.integer(50, 500)
    m = 1e14
    constant = (math.sqrt(2) + 1) * math.sqrt(met * math.log(2 * cells / DELTA))
    yield equal("√m·g, m large", math.sqrt(m) * tau_published(met, cells, m, DELTA), predicted=constant, rel=1e-4)
    few, many = (tau_published(k, k, k, DELTA) for k in (1e3, 4e3))
    yield refutes("g at |T| = N = m, four times the samples, over before", many / few, published=1 / math.sqrt(4))
    yield exceeds("g there", many, published=1.0)


@claims.add(
    "rate.lower",
    "slide on iteration complexity",
    Verdict.LOOSE,
    "Any gradient method takes at least ‖F‖_Lip/α steps to an α-stationary point of a nonconvex function.",
    "No finite number suffices (T.rate.stationary); for Goldstein points the cost is set by Δ and δ as well.",
)
def rate_lower(draw: Draw) -> Iterator[Finding | Curve]:
    """slope·|w|, steps of length δ: the count is Δ/(δL), whatever L/α is."""
    slope, delta, n = (
        float(draw.uniform(1, low=0.5, high=3.0)),
        float(draw.uniform(1, low=0.01, high=0.1)),
        draw.integer(20, 90),
    )
    start, alpha = (n + 0.5) * delta, slope / 2
    steps = goldstein_steps(slope, start, delta)
    yield below("L/α, against the steps counted", slope / alpha, predicted=steps)
    yield equal("steps counted", steps, predicted=math.floor(slope * start / (delta * slope)))
    yield equal(
        "steps with a third of δ, over before",
        (goldstein_steps(slope, start, delta / 3) + 1) / (steps + 0.5),
        predicted=3.0,
        rel=0.05,
    )


@claims.add(
    "rate.nonconvex",
    "slide on convergence rates",
    Verdict.HOLDS,
    "After T steps the error is of order (‖F‖²_Lip/T)^(1/3) for nonconvex functions.",
    "(L²Δ/(δT))^(1/3): what Õ(L²Δ/(δα³)) steps give, with the Δ and δ the slide leaves out; in them it has "
    "the right units.",
)
def rate_nonconvex(draw: Draw) -> Iterator[Finding | Curve]:
    """The error at which the law allows T steps, found by bisection; steps on a slope stay below the law."""
    slope, gap, delta = (float(draw.uniform(1, low=0.5, high=3.0)) for _ in range(3))
    t = float(draw.integer(10, 1000))
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if goldstein_rate(slope, gap, delta, middle) > t else (low, middle)
    yield equal("error after T steps, by the law", low, predicted=(slope**2 * gap / (delta * t)) ** (1 / 3))
    c = float(draw.uniform(1, low=2.0, high=5.0))
    scaled = goldstein_rate(c * slope, c * gap, delta, c * low) / goldstein_rate(slope, gap, delta, low)
    yield equal("the law with the loss times c, over before", scaled, predicted=1.0)
    short = 0.01 * gap
    yield below(
        "steps on a slope",
        goldstein_steps(slope, gap / slope, short),
        predicted=goldstein_rate(slope, gap, short, slope),
    )


@claims.add(
    "rate.convex",
    "slide on convergence rates",
    Verdict.HOLDS,
    "After T steps the error is of order ‖F‖_Lip/√T for convex functions.",
    "LR/√T with the distance R to the minimum; it is attained.",
)
def rate_convex(draw: Draw) -> Iterator[Finding | Curve]:
    """The hard function of T coordinates: its gap lasts until step T."""
    n, slope, radius = draw.integer(5, 40), *(float(v) for v in draw.uniform(2, low=0.5, high=3.0))
    corner = torch.full((n,), -radius / math.sqrt(n), dtype=torch.float64)
    gap = -slope * _largest(corner)
    yield equal("gap after T−1 steps", gap, predicted=slope * radius / math.sqrt(convex_steps(n, slope, radius)))


def _largest(w: Tensor) -> float:
    return float(w.max())

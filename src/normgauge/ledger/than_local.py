"""Lemmas 2 and 3 of Than 2025 made local, and what they leave out: balls, displacements, gains, RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import decade, layer_norm

claims = Family("T", "Than 2025")

HOLDS, LOOSE, WRONG, UNSUPPORTED = Verdict.HOLDS, Verdict.LOOSE, Verdict.WRONG, Verdict.UNSUPPORTED

TINY = 1e-14  # an ε small enough to be none at all next to variances of 1


def parts(x: Tensor) -> tuple[float, Tensor]:
    """σ and the unit vector along the centred x."""
    y = x - x.mean()
    return float(y.square().mean().sqrt()), y / y.norm()


def sideways(draw: Draw, unit: Tensor) -> Tensor:
    """A random unit vector orthogonal to ``unit`` and to the constant vectors."""
    t = draw.normal(len(unit))
    t = t - t.mean()
    t = t - (t @ unit) * unit
    return t / t.norm()


def around(x: Tensor, radius: float, angle: float, aside: Tensor) -> Tensor:
    """The point at ``radius`` from x, turned by ``angle`` from the centred x towards ``aside``."""
    return x + radius * (math.cos(angle) * parts(x)[1] + math.sin(angle) * aside)


def moved(x: Tensor, other: Tensor, eps: float) -> float:
    """How far LayerNorm's output moves from x to ``other``."""
    return float((layer_norm(other, eps) - layer_norm(x, eps)).norm())


def tangent(q: float) -> float:
    """The angle at which a ray from the origin touches a ball of radius q around a unit vector."""
    return math.pi / 2 + math.asin(q)


@claims.add(
    "L2.ball",
    "Lemma 2, made local",
    HOLDS,
    "A data-dependent constant 1/σ can hold only near the data: over a ball the smallest σ decides.",
    "Over ‖x − x0‖ ≤ r: σ ≥ s = max(0, σ0 − r/√n), and the constant is max|γ|/√(s² + ε), attained at x0 − r·ŷ.",
    backs=("normgauge.rules.spread.smallest_spread",),
)
def over_a_ball(draw: Draw) -> Iterator[Finding | Curve]:
    """The worst point of the ball, random points of it, and a ball that holds a constant vector."""
    n, eps, q = draw.integer(3, 20), decade(draw, -4, -1), float(draw.uniform(1, low=0.1, high=0.95))
    x = draw.normal(n)
    sigma, unit = parts(x)
    r = q * math.sqrt(n) * sigma

    def slope(v: Tensor) -> float:
        return norm(jacobian(lambda u: layer_norm(u, eps), v))

    bound = 1 / math.sqrt((sigma - r / math.sqrt(n)) ** 2 + eps)
    yield equal("slope at the worst point", slope(x - r * unit), predicted=bound)
    steps = draw.normal(8, n)
    found = max(slope(x + r * step / step.norm()) for step in steps)
    yield below("largest slope of eight others", found, predicted=bound)
    wide = slope(x - math.sqrt(n) * sigma * unit)
    yield equal("a ball of radius √n σ0 or more", wide, predicted=eps**-0.5)
    grid = [k / 20 for k in range(21)]
    lines = (
        ("over the ball", tuple(1 / math.sqrt((sigma - k * sigma) ** 2 + eps) for k in grid)),
        ("at its worst point", tuple(slope(x - k * math.sqrt(n) * sigma * unit) for k in grid)),
        ("at its centre", (slope(x),) * len(grid)),
    )
    yield Curve("LayerNorm on a ball around x0", "radius / (√n σ0)", "slope", tuple(grid), lines, log_y=True)


@claims.add(
    "L2.chord",
    "Lemma 2, used to carry a radius",
    LOOSE,
    "Over a ball of radius ρ the output moves by at most ρ times the constant.",
    "It moves by at most 2√n·sin(½ asin q), q = ρ/(√n σ_ε0) < 1, reached as ε → 0; never by more than √n(1 + σ0/σ_ε0).",
    backs=("normgauge.rules.spread.displacement",),
)
def displacement(draw: Draw) -> Iterator[Finding | Curve]:
    """The touching point for a tiny ε, a search for a large one, and a ball that holds the mirror image."""
    n, q, eps = draw.integer(3, 20), float(draw.uniform(1, low=0.2, high=0.95)), decade(draw, -2, 0)
    x = draw.normal(n)
    (sigma, unit), root = parts(x), math.sqrt(n)
    aside, r = sideways(draw, unit), q * root * sigma
    chord = 2 * root * math.sin(math.asin(q) / 2)
    found = moved(x, around(x, r, tangent(q), aside), TINY)
    yield equal("displacement at the touching point", found, predicted=chord)
    yield below("displacement against ρ × constant", found, predicted=r / math.sqrt((sigma - r / root) ** 2 + TINY))
    size = math.sqrt(sigma**2 + eps)
    found = max(moved(x, around(x, r * s, k * math.pi / 60, aside), eps) for k in range(61) for s in (0.5, 1.0))
    chord = 2 * root * math.sin(math.asin(r / root / size) / 2)
    yield below("largest displacement of a search, ε not small", found, predicted=chord)
    yield below("chord against ρ × constant", chord, predicted=r / math.sqrt((sigma - r / root) ** 2 + eps))
    mirror = moved(x, x - 1e6 * root * sigma * unit, eps)
    yield equal("displacement beyond the origin", mirror, predicted=root * (1 + sigma / size))
    grid = [k / 20 for k in range(1, 20)]
    lines = (
        ("ρ × constant", tuple(k * root * sigma / math.sqrt((sigma - k * sigma) ** 2 + 1e-5) for k in grid)),
        ("chord", tuple(2 * root * math.sin(math.asin(k) / 2) for k in grid)),
        ("found", tuple(moved(x, around(x, k * root * sigma, tangent(k), aside), 1e-5) for k in grid)),
    )
    yield Curve("How far LayerNorm's output can move", "q = ρ/(√n σ0)", "displacement", tuple(grid), lines, log_y=True)


@claims.add(
    "L3.chord",
    "Lemma 3, used to carry a radius",
    LOOSE,
    "Over a ball the groups of GroupNorm all move, so their bounds add up.",
    "They share one radius: the displacement is at most the largest single group's chord, if q_g < 1 for every group.",
)
def groups_share_a_radius(draw: Draw) -> Iterator[Finding | Curve]:
    """The whole radius spent on the weakest group, and spread over all of them at random."""
    count, n, q = draw.integer(2, 5), draw.integer(3, 8), float(draw.uniform(1, low=0.2, high=0.95))
    x = draw.normal(count, n) * draw.normal(count, 1).exp()
    sigmas = torch.stack([(group - group.mean()).square().mean().sqrt() for group in x])
    asides = [sideways(draw, parts(group)[1]) for group in x]
    weakest, r = int(sigmas.argmin()), q * math.sqrt(n) * float(sigmas.min())

    def spent(shares: Tensor) -> float:
        there = x.clone()
        for g in range(count):
            share = float(shares[g]) * r
            there[g] = around(x[g], share, tangent(share / math.sqrt(n) / float(sigmas[g])), asides[g])
        out = [F.group_norm(v.reshape(1, -1), count, eps=TINY) for v in (there, x)]
        return float((out[0] - out[1]).norm())

    chords = [2 * math.sqrt(n) * math.sin(math.asin(r / math.sqrt(n) / float(s)) / 2) for s in sigmas]
    alone = spent(torch.eye(count)[weakest])
    yield equal("all of the radius on the weakest group", alone, predicted=max(chords), published=sum(chords))
    shares = draw.normal(10, count)
    found = max(spent(share.abs() / share.norm()) for share in shares)
    yield below("largest displacement of ten random shares", found, predicted=max(chords))
    yield below("and against the sum", found, predicted=sum(chords))


@claims.add(
    "L2.affine",
    "section 3, gains left out",
    WRONG,
    "Leaving out the gains and shifts of LayerNorm loses nothing of substance.",
    "β never matters; |γ|₍₃₎ ≤ σ_ε‖J‖ ≤ |γ|₍₁₎ (third and first largest); everywhere ‖diag(γ)(I − 11ᵀ/n)‖/√ε.",
)
def layer_norm_gains(draw: Draw) -> Iterator[Finding | Curve]:
    """Random gains, equal gains, two large gains that the input faces, and a constant input."""
    n, eps = draw.integer(3, 20), decade(draw, -5, -2)
    x, gamma, beta = draw.normal(n), draw.normal(n).exp() * draw.normal(n).sign(), draw.normal(n)

    def slope(v: Tensor, gains: Tensor) -> float:
        return norm(jacobian(lambda u: F.layer_norm(u, (n,), gains, beta, eps), v))

    sigma, unit = parts(x)
    size = math.sqrt(sigma**2 + eps)
    order = gamma.abs().sort(descending=True).values
    tenfold = torch.full((n,), 10.0, dtype=torch.float64)
    yield refutes("slope with all gains 10, against none", slope(x, tenfold), published=1 / size)
    yield below("slope against the largest gain", slope(x, gamma), predicted=order[0] / size)
    yield below("third largest gain against the slope", order[2] / size, predicted=slope(x, gamma))
    centring = torch.eye(n).double() - 1 / n
    exact = gamma[:, None] * (centring - (sigma / size) ** 2 * torch.outer(unit, unit)) / size
    yield equal("slope", slope(x, gamma), predicted=norm(exact))
    yield equal("equal gains", slope(x, order[:1].expand(n)), predicted=order[0] / size)
    facing, two = torch.zeros(n).double(), torch.zeros(n).double()
    facing[0], facing[1], two[:2] = 1.0, -1.0, order[0]
    spread = math.sqrt(2 / n + eps)
    least = order[0] * math.sqrt((n - 2) / n)
    yield equal("two gains alone, facing the input: below both", slope(facing, two) * spread, predicted=least)
    level = draw.normal(1).expand(n)
    everywhere = norm(gamma[:, None] * centring) / math.sqrt(eps)
    yield equal("slope at a constant vector", slope(level, gamma), predicted=everywhere)


@claims.add(
    "RMS",
    "section 1, RMSNorm",
    UNSUPPORTED,
    "RMSNorm belongs to the methods that control capacity; no constant is given.",
    "‖J‖ = 1/ρ_ε with ρ_ε = √(‖x‖²/n + ε) for n ≥ 2, ε/ρ_ε³ for n = 1; everywhere 1/√ε, which is 2896 in float32 with "
    "torch's default.",
    backs=("norm_layer.rms_norm",),
)
def rms_norm(draw: Draw) -> Iterator[Finding | Curve]:
    """Singular values, a single entry, zero, and torch's default ε in single precision."""
    n, eps = draw.integer(2, 15), decade(draw, -3, 0)
    x = draw.normal(n)
    values = torch.linalg.svdvals(jacobian(lambda v: F.rms_norm(v, (n,), eps=eps), x))
    rho = math.sqrt(float(x @ x) / n + eps)
    yield equal(f"slope, n = {n}", values[0], predicted=1 / rho)
    yield equal("n − 1 directions on", values[n - 2], predicted=1 / rho)
    yield equal("along x", values[n - 1], predicted=eps / rho**3)
    one = norm(jacobian(lambda v: F.rms_norm(v, (1,), eps=eps), x[:1]))
    yield equal("slope of one entry", one, predicted=eps / (float(x[0]) ** 2 + eps) ** 1.5)
    zero = torch.zeros(n, requires_grad=True)
    (slope,) = torch.autograd.grad(F.rms_norm(zero, (n,))[0], zero)
    yield equal("default ε in float32, at zero", slope[0], predicted=2**11.5, rel=1e-6)


@claims.add(
    "RMS.affine",
    "section 1, RMSNorm with gains",
    UNSUPPORTED,
    "RMSNorm with gains belongs to the methods that control capacity; no constant is given.",
    "|γ|₍₂₎ ≤ ρ_ε‖J‖ ≤ |γ|₍₁₎; the lower end is met where x lies along the largest gain.",
)
def rms_norm_gains(draw: Draw) -> Iterator[Finding | Curve]:
    """Random gains, equal gains, and an input along the largest gain."""
    n, eps = draw.integer(2, 15), decade(draw, -6, -4)
    x, gamma = draw.normal(n), draw.normal(n).clamp(-2, 2).exp()
    order = gamma.sort(descending=True).values

    def scaled(v: Tensor, gains: Tensor) -> float:
        rho = math.sqrt(float(v @ v) / n + eps)
        return rho * norm(jacobian(lambda u: F.rms_norm(u, (n,), gains, eps), v))

    yield below("slope against the largest gain", scaled(x, gamma), predicted=order[0])
    yield below("second largest gain against the slope", order[1], predicted=scaled(x, gamma))
    yield equal("equal gains", scaled(x, order[:1].expand(n)), predicted=order[0])
    along = torch.eye(n).double()[int(gamma.argmax())]
    yield equal("x along the largest gain", scaled(along, gamma), predicted=order[1])

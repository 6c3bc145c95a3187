"""Claims of Than 2025 on layer normalization: Eqs. 2-3, Lemma 2, and Lemma 23 with its proof."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import decade, layer_norm

claims = Family("T", "Than 2025")

HOLDS, LOOSE = Verdict.HOLDS, Verdict.LOOSE


def spread(x: Tensor, eps: float) -> float:
    """√(σ² + ε) with the biased variance, written out."""
    return math.sqrt(float(((x - x.sum() / len(x)) ** 2).sum()) / len(x) + eps)


@claims.add(
    "E2",
    "Eqs. 2-3",
    HOLDS,
    "LayerNorm subtracts the mean of a vector's entries and divides by √(their biased variance + ε).",
    "Exact; its output never reaches length √n.",
)
def layer_norm_definition(draw: Draw) -> Iterator[Finding | Curve]:
    """The module against the formula, and the length of the output."""
    n, eps = draw.integer(2, 12), decade(draw, -6, 0)
    x, weight = draw.normal(n) * decade(draw, -2, 2), draw.normal(n)
    out, formula = layer_norm(x, eps), (x - x.sum() / n) / spread(x, eps)
    yield equal("output, along a random direction", weight @ out, predicted=weight @ formula)
    yield below("length of the output", out.norm(), predicted=math.sqrt(n))
    large = layer_norm(1e9 * x, eps)
    yield equal("its length for a huge input", large.norm(), predicted=math.sqrt(n))


@claims.add(
    "L2",
    "Lemma 2, at a point",
    HOLDS,
    "The slope of LayerNorm at x is at most 1/√(σ²(x) + ε).",
    "Equality for n ≥ 3: singular values 1/σ_ε (n − 2 times), ε/σ_ε³ along x − mean, 0 along 1.",
    backs=("norm_layer.layer_norm", "recognise.written_out_norm"),
)
def lemma_2(draw: Draw) -> Iterator[Finding | Curve]:
    """All singular values of the Jacobian."""
    n, eps = draw.integer(3, 20), decade(draw, -3, 0)
    x = draw.normal(n)
    values = torch.linalg.svdvals(jacobian(lambda v: layer_norm(v, eps), x))
    sigma = spread(x, eps)
    yield equal(f"slope, n = {n}", values[0], predicted=1 / sigma)
    yield equal("still the same, n − 2 directions on", values[n - 3], predicted=1 / sigma)
    yield equal("along the centred input", values[n - 2], predicted=eps / sigma**3)
    yield equal("along the mean", values[n - 1], predicted=0.0, scale=1 / sigma)
    scales = [10 ** (k / 8 - 2) for k in range(33)]
    found = [torch.linalg.svdvals(jacobian(lambda v: layer_norm(v, 0.01), s * x[:3])) for s in scales]
    lines = (
        ("largest singular value", tuple(float(f[0]) for f in found)),
        ("along the centred input", tuple(float(f[1]) for f in found)),
        ("1/√(σ²+ε)", tuple(1 / spread(s * x[:3], 0.01) for s in scales)),
    )
    yield Curve("LayerNorm, ε = 0.01, n = 3", "scale of x", "slope", tuple(scales), lines, log_x=True, log_y=True)


@claims.add(
    "L2.narrow",
    "Lemma 2 for n = 1, 2",
    LOOSE,
    "The bound 1/√(σ² + ε) is stated for every n.",
    "For n = 2 the slope is ε/σ_ε³ (only the sign is left), for n = 1 it is 0; the bound is off by 1 + σ²/ε.",
    backs=("normgauge.rules.spread.steepest",),
)
def lemma_2_narrow(draw: Draw) -> Iterator[Finding | Curve]:
    """Two entries, one entry, and two equal entries, where the bound is met."""
    eps, x = decade(draw, -4, -1), draw.normal(2)
    slope, printed = norm(jacobian(lambda v: layer_norm(v, eps), x)), 1 / spread(x, eps)
    yield below("slope of two entries", slope, predicted=printed)
    yield equal("slope of two entries", slope, predicted=eps / spread(x, eps) ** 3, published=printed, rel=1e-7)
    yield equal("bound over slope", printed / slope, predicted=1 + float((x[0] - x[1]) ** 2) / 4 / eps, rel=1e-7)
    same = x[:1].expand(2)
    slope = norm(jacobian(lambda v: layer_norm(v, eps), same))
    yield equal("slope of two equal entries", slope, predicted=1 / spread(same, eps))
    yield equal("slope of one entry", norm(jacobian(lambda v: layer_norm(v, eps), x[:1])), predicted=0.0, scale=1.0)


@claims.add(
    "L2.global",
    "Lemma 2, everywhere",
    HOLDS,
    "The Lipschitz constant of LayerNorm is at most 1/σ with σ the smallest √(σ² + ε) over all of Rⁿ.",
    "That smallest value is √ε whatever the data are: the constant is 1/√ε, 316 at ε = 1e-5, reached at constant x.",
)
def lemma_2_global(draw: Draw) -> Iterator[Finding | Curve]:
    """At a constant vector, and at points of all sizes."""
    n, eps = draw.integer(2, 10), decade(draw, -6, -1)
    level = draw.normal(1).expand(n)
    yield equal("slope at a constant vector", norm(jacobian(lambda v: layer_norm(v, eps), level)), predicted=eps**-0.5)
    sizes = 10 ** draw.uniform(10, low=-6, high=1)
    slopes = [norm(jacobian(lambda v: layer_norm(v, eps), s * draw.normal(n))) for s in sizes]
    yield below("largest slope of ten points", max(slopes), predicted=eps**-0.5)
    default = norm(jacobian(lambda v: nn.LayerNorm(n).double()(v), level))
    yield equal("slope with the default ε", default, predicted=100 * math.sqrt(10))


@claims.add(
    "E15",
    "Eqs. 15-18",
    HOLDS,
    "With respect to the centred vector y, ∂z_i/∂y_t = (δ_it − y_i y_t/(‖y‖² + nε))/σ_ε.",
    "Exact; nothing to add.",
)
def lemma_23_centred(draw: Draw) -> Iterator[Finding | Curve]:
    """The division alone, differentiated by autograd as a map of a free y."""
    n, eps = draw.integer(2, 9), decade(draw, -4, 0)
    y = draw.normal(n)
    y = y - y.mean()
    slopes = jacobian(lambda v: v / (v.square().mean() + eps).sqrt(), y)
    i, t = draw.integer(1, n), draw.integer(0, 1)
    sigma = spread(y, eps)
    yield equal("one entry off the diagonal", slopes[i, t], predicted=-y[i] * y[t] / (y @ y + n * eps) / sigma)
    yield equal("one on it", slopes[i, i], predicted=(1 - y[i] ** 2 / (y @ y + n * eps)) / sigma)


@claims.add(
    "L23",
    "Lemma 23",
    HOLDS,
    "The Jacobian of LayerNorm is (1/σ_ε)(I − yyᵀ/(‖y‖² + nε))(I − 11ᵀ/n) with y the centred input.",
    "Exact for every n; the zero matrix for n = 1.",
)
def lemma_23(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense Jacobian between random vectors, entry by entry and for a single entry."""
    n, eps = draw.integer(2, 12), decade(draw, -5, 0)
    x, left, right = draw.normal(n), draw.normal(n), draw.normal(n)
    slopes = jacobian(lambda v: layer_norm(v, eps), x)
    y, centring = x - x.sum() / n, torch.eye(n).double() - 1 / n
    formula = (torch.eye(n) - torch.outer(y, y) / (y @ y + n * eps)) @ centring / spread(x, eps)
    yield equal("between random vectors", left @ slopes @ right, predicted=left @ formula @ right, scale=norm(slopes))
    yield equal("its trace", slopes.trace(), predicted=formula.trace())
    yield equal("n = 1", norm(jacobian(lambda v: layer_norm(v, eps), x[:1])), predicted=0.0, scale=1.0)


@claims.add(
    "E19",
    "Eqs. 19-24",
    HOLDS,
    "Both matrices of Lemma 23 have norm at most 1, hence the slope is at most 1/σ_ε.",
    "Tight for n ≥ 3, where one direction meets norm 1 in both; the second shrinks y by nε/(‖y‖² + nε) only.",
)
def proof_of_lemma_2(draw: Draw) -> Iterator[Finding | Curve]:
    """Singular values of the two factors, and of their product."""
    n, eps = draw.integer(3, 12), decade(draw, -3, 0)
    x = draw.normal(n)
    y = x - x.mean()
    centring = jacobian(lambda v: v - v.mean(), x)
    shrinking = jacobian(lambda v: v / (v.square().mean() + eps).sqrt(), y) * spread(y, eps)
    yield equal("norm of the centring", norm(centring), predicted=1.0)
    yield equal("norm of the shrinking", norm(shrinking), predicted=1.0)
    kept = n * eps / float(y @ y + n * eps)
    yield equal("what the shrinking leaves of y", (shrinking @ y).norm() / y.norm(), predicted=kept)
    yield equal("norm of the product", norm(shrinking @ centring), predicted=1.0)
    alone = jacobian(lambda v: v - v.mean(), x[:1])
    yield equal("the centring of a single entry", norm(alone), predicted=0.0, scale=1.0)

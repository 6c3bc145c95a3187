"""Claims of Akbar on conditioning, linear networks and margins of linear classifiers: sections 6 and 7.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import Found, flatten, nullity, project, size, split, standardize

claims = Family("A", "Akbar")


@claims.add(
    "whiten",
    "section 7.1",
    Verdict.WRONG,
    "Batch norm whitens features, so that the Hessian becomes the identity and κ = 1",
    "It standardizes them one by one. Two features with correlation ρ keep κ = (1+ρ)/(1−ρ): 199 at ρ = 0.99.",
)
def whitening(draw: Draw) -> Found:
    """Condition number of the covariance of two standardized features with a given correlation."""
    rho = float(draw.uniform(1, low=0.3, high=0.995))
    m = draw.integer(10, 40)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, 2)], 1))[0][:, 1:]
    features = torch.stack([basis[:, 0], rho * basis[:, 0] + math.sqrt(1 - rho**2) * basis[:, 1]], 1)
    hat = standardize(features * torch.tensor([100.0, 0.1], dtype=torch.float64) + draw.normal(2))
    values = torch.linalg.eigvalsh(hat.T @ hat / m)
    kappa = float(values[-1] / values[0])
    yield refutes("condition number behind batch norm", kappa, published=1.0)
    yield equal("condition number behind batch norm", kappa, predicted=(1 + rho) / (1 - rho), rel=1e-7)


@claims.add(
    "whiten.scale",
    "section 7.1",
    Verdict.HOLDS,
    "Batch norm on the inputs removes ill-conditioning that comes from features of different size",
    "Exactly that part: uncorrelated features of any scale give κ = 1 behind it.",
)
def scales_removed(draw: Draw) -> Found:
    """Orthogonal features of very different scale, before and behind batch norm."""
    m, n = draw.integer(10, 30), draw.integer(2, 6)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, n)], 1))[0][:, 1:]
    scales = torch.logspace(-2, 2, n, dtype=torch.float64)
    hat = standardize(basis * scales + 1)
    values = torch.linalg.eigvalsh(hat.T @ hat / m)
    yield equal("condition number behind batch norm", values[-1] / values[0], predicted=1.0)
    before = torch.linalg.eigvalsh((basis * scales).T @ (basis * scales))
    yield equal(
        "condition number before it", before[-1] / before[0], predicted=float(scales[-1] / scales[0]) ** 2, rel=1e-6
    )


@claims.add(
    "deeplinear",
    "section 6.1",
    Verdict.WRONG,
    "In deep linear networks batch norm removes the zero modes that come from symmetries",
    "Their number stays: with h hidden units h² without and with batch norm, h more with its gain; "
    "each unit's own scale is now one of them.",
)
def zero_modes(draw: Draw) -> Found:
    """Idle directions of a two-layer linear network, plain, with batch norm, and with its gain.

    The outputs reach the matrices of rank h in all three; what the parameters have beyond that is idle. Derived here.
    """
    h = draw.integer(2, 4)
    d, k = h + draw.integer(0, 2), h + draw.integer(0, 2)
    x = draw.normal(4 * d, d)
    x = x - x.mean(0)
    start = [draw.normal(h, d), draw.normal(k, h), draw.uniform(h, low=0.5, high=2.0)]

    def outputs(flat: Tensor, kind: str) -> Tensor:
        first, second, gamma = split(flat, start if kind == "gain" else [*start[:2], start[2][:0]])
        z = x @ first.T
        hidden = z if kind == "plain" else standardize(z)
        return (hidden * gamma if kind == "gain" else hidden) @ second.T

    plain, batch = (nullity(lambda f, k=kind: outputs(f, k), flatten(*start[:2])) for kind in ("plain", "batch"))  # type: ignore[misc]
    gain = nullity(lambda f: outputs(f, "gain"), flatten(*start))
    yield refutes("idle directions with batch norm", batch, published=0)
    yield equal("idle directions without", plain, predicted=h**2)
    yield equal("idle directions with batch norm", batch, predicted=h**2)
    yield equal("idle directions with batch norm and gain", gain, predicted=h**2 + h)


@claims.add(
    "deeplinear.plain",
    "section 6.1",
    Verdict.HOLDS,
    "Without batch norm, a factor α in one layer of a linear network is undone by 1/α in another",
    "And any invertible matrix by its inverse.",
)
def plain_pairs(draw: Draw) -> Found:
    """The product of two layers under a factor and under a matrix."""
    d, h = draw.integer(2, 5), draw.integer(2, 5)
    first, second, probe = draw.normal(h, d), draw.normal(3, h), draw.normal(3, d)
    alpha, mix = float(draw.uniform(1, low=0.1, high=10.0)), draw.orthogonal(h) * 2
    truth = project(second @ first, probe)
    yield equal("product with α and 1/α", project((second / alpha) @ (alpha * first), probe), predicted=truth)
    yield equal(
        "product with a matrix and its inverse", project(second @ mix.T / 4 @ (mix @ first), probe), predicted=truth
    )


@claims.add(
    "deeplinear.convex",
    "section 6.1",
    Verdict.UNSUPPORTED,
    "A deep linear network with batch norm behaves like a convex quadratic",
    "Not even one unit does: on the way from w to −w the loss is 0, then 2, above the chord of a convex function.",
)
def not_convex(draw: Draw) -> Found:
    """Loss at a point between a good weight and its opposite, against the chord a convex loss stays under."""
    n = draw.integer(2, 5)
    x, w = draw.normal(30, n), draw.normal(n)
    target = standardize(x @ w)

    def loss(w: Tensor) -> float:
        return 0.5 * float((standardize(x @ w) - target).square().mean())

    yield equal("loss at w", loss(w), predicted=0.0, scale=1.0)
    yield equal("loss at −w", loss(-w), predicted=2.0)
    share = float(draw.uniform(1, low=0.55, high=0.95))  # of the way from w to −w
    middle = (1 - share) * w - share * w
    yield exceeds("loss on the way from w to −w, against the chord", loss(middle), published=2 * share)


@claims.add(
    "6.svm",
    "section 6.1, margins",
    Verdict.HOLDS,
    "For a linear classifier with functional margin 1, the distance to the boundary is 1/‖w‖",
    "Exact. Behind batch norm ‖w‖ says nothing about it: the distance depends on the direction alone.",
)
def margin_length(draw: Draw) -> Found:
    """Distance of the nearest sample to the boundary, by walking to it, against 1/‖w‖."""
    n = draw.integer(2, 5)
    w = draw.normal(n)
    x = draw.normal(20, n)
    signed = (x @ w).abs()
    w = w / signed.min()  # functional margin 1
    nearest = x[int(signed.argmin())]
    foot = nearest - w * (w @ nearest) / (w @ w)
    yield equal("distance to the boundary", size(nearest - foot), predicted=1 / size(w))
    yield equal("the foot is on the boundary", w @ foot, predicted=0.0, scale=1.0)


@claims.add(
    "6.maxmargin",
    "section 6.1, margins",
    Verdict.UNSUPPORTED,
    "Batch norm with a little weight decay gives nearly the largest margin",
    "Its loss picks the direction, decay does not change it: with one far cluster that direction has a smaller margin.",
)
def margin_of_batch_norm(draw: Draw) -> Found:
    """Two dimensions: the best direction of a batch-norm classifier, by search, against the widest one.

    Each class has points at (1, 0) and at (far, 3). Batch norm pays for spread, so that it tilts until both are equally
    far from the boundary, and the near ones lose their distance.
    """
    far = float(draw.uniform(1, low=6.0, high=9.0))
    plus = torch.tensor([[1.0, 0.0]] * 10 + [[far, 3.0]] * 10, dtype=torch.float64)
    x = torch.cat([plus, -plus]) + 0.05 * draw.normal(40, 2)
    y = torch.tensor([1.0] * 20 + [-1.0] * 20, dtype=torch.float64)
    turns = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    values = x @ torch.stack([turns.cos(), turns.sin()])  # (samples, directions)
    losses = torch.nn.functional.softplus(-y[:, None] * standardize(values)).mean(0)
    margins = (values[:20].min(0).values - values[20:].max(0).values) / 2
    best = int(losses.argmin())
    yield exceeds(
        "widest margin, against that of batch norm's direction", margins.max(), published=float(margins[best]), by=0.1
    )
    tilt = math.atan2(1 - far, 3.0)  # where (1, 0) and (far, 3) project alike
    yield equal("batch norm's direction", turns[best], predicted=tilt, rel=3e-2)

"""Claims of a summary page of Than 2025: mechanisms, failure signs, open questions, experiments to run."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.examples import BatchNormNet
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("Q", "Summary page of Than 2025")
EPS = 1e-5


@claims.add(
    "LN",
    "component map",
    Verdict.WRONG,
    "‖LN‖_Lip ≤ (1 − 1/n)/σ.",
    "Exactly 1/σ_ε at a point, for n ≥ 3; there is no factor 1 − 1/n.",
)
def layer(draw: Draw) -> Iterator[Finding | Curve]:
    """The Jacobian at a random input."""
    n = draw.integer(3, 40)
    x = draw.normal(n)
    sigma = math.sqrt(float(x.var(correction=0)) + EPS)
    found = norm(jacobian(lambda v: F.layer_norm(v, (n,), eps=EPS), x))
    yield exceeds("‖J‖", found, published=(1 - 1 / n) / sigma)
    yield equal("the same", found, predicted=1 / sigma)


@claims.add(
    "GN",
    "component map, design tradeoffs",
    Verdict.WRONG,
    "Smaller groups and narrower layers are penalized more.",
    "At the same σ the constant is 1/σ_ε for every group size from 3 on: size does not count.",
)
def group(draw: Draw) -> Iterator[Finding | Curve]:
    """One vector repeated in groups: the same σ in groups of n and of 2n."""
    n, groups = draw.integer(3, 8), 2 * draw.integer(1, 4)
    x = draw.normal(n).repeat(groups)
    small = norm(jacobian(lambda v: F.group_norm(v[None], groups, eps=EPS)[0], x))
    large = norm(jacobian(lambda v: F.group_norm(v[None], groups // 2, eps=EPS)[0], x))
    printed = (1 - 1 / n) / (1 - 1 / (2 * n))
    yield refutes("constant with groups of n over groups of 2n", small / large, published=printed)
    yield equal("the same", small / large, predicted=1.0)
    yield equal("constant", small, predicted=1 / math.sqrt(float(x.var(correction=0)) + EPS))


@claims.add(
    "attribution",
    "key results",
    Verdict.WRONG,
    "Unnormalized networks can have constants up to 10^50, as ResNet-18 shows.",
    "ResNet-18 has 20 BatchNorm layers, so its product of norms is about no unnormalized net and is a choice of scale.",
)
def attribution(draw: Draw) -> Iterator[Finding | Curve]:
    """Its normalizers, counted; what they let the product be."""
    from normgauge.zoo import resnet18

    with torch.random.fork_rng(devices=[]):
        net = resnet18()
    count = sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    yield refutes("normalizers in ResNet-18", count, published=0)
    yield equal("the same", count, predicted=20)
    width, t = draw.integer(5, 9), 10 ** float(draw.uniform(1, low=0.5, high=3.0))
    small = BatchNormNet.drawn(draw, count, width)
    other = small.rescaled([torch.full((width,), t, dtype=torch.float64)] * count)
    x = draw.normal(5, width)
    apart = float((small(x) - other(x)).abs().max())
    yield equal("outputs in another scale", apart, predicted=0.0, scale=float(small(x).abs().max()))
    moved = other.log_weights - small.log_weights
    yield equal("decades the product moved in 20 layers", moved, predicted=20 * math.log10(t))


@claims.add(
    "break",
    "mechanism 1, break condition",
    Verdict.HOLDS,
    "If variances stay below 1, the exponential reduction turns into an increase.",
    "Yes: K layers of σ multiply the constant by σ^(−K), at fixed weights; but σ itself is a choice of scale.",
)
def reversal(draw: Draw) -> Iterator[Finding | Curve]:
    """W = I with σ on either side of 1."""
    depth, width = draw.integer(2, 6), draw.integer(3, 7)
    x, ones = draw.uniform(width, low=0.5, high=2.0), torch.ones(width, dtype=torch.float64)
    for side, sigma in (("< 1", draw.uniform(1, low=0.3, high=0.9)), ("> 1", draw.uniform(1, low=1.1, high=3.0))):

        def net(v: Tensor, var: Tensor = sigma**2 * ones) -> Tensor:
            for _ in range(depth):
                v = torch.relu(F.batch_norm(v[None], 0 * ones, var, eps=0.0)[0])
            return v

        yield equal(f"constant of W = I, σ {side}", norm(jacobian(net, x)), predicted=float(sigma) ** -depth)


@claims.add(
    "failure.batch",
    "failure signatures",
    Verdict.HOLDS,
    "Small batches make BatchNorm's variance estimates unreliable.",
    "For normal data the estimate from m values has relative standard deviation √(2/(m−1)).",
)
def batch(draw: Draw) -> Iterator[Finding | Curve]:
    """Many batches of two sizes."""
    for m in (draw.integer(4, 10), draw.integer(40, 80)):
        spread = float(draw.normal(20_000, m).var(1).std())
        yield equal(
            f"relative spread of the variance of {m} values", spread, predicted=math.sqrt(2 / (m - 1)), rel=0.06
        )


@claims.add(
    "failure.width",
    "failure signatures",
    Verdict.WRONG,
    "Very narrow layers are over-penalized by LayerNorm.",
    "n = 2 is a step: slope ε/σ_ε³ away from equal entries, 1/√ε at them, outputs ±1. n = 1 puts out 0. From "
    "3 on 1/σ_ε.",
)
def narrow(draw: Draw) -> Iterator[Finding | Curve]:
    """LayerNorm on two numbers, on one, and on equal ones."""
    x = draw.normal(2)
    x[1] = x[0] + float(draw.uniform(1, low=0.5, high=2.0))
    sigma = math.sqrt(float(x.var(correction=0)) + EPS)
    found = norm(jacobian(lambda v: F.layer_norm(v, (2,), eps=EPS), x))
    yield refutes("‖J‖ on two numbers", found, published=(1 - 1 / 2) / sigma)
    yield equal("the same", found, predicted=EPS / sigma**3)
    level = norm(jacobian(lambda v: F.layer_norm(v, (2,), eps=EPS), x[:1].expand(2)))
    yield equal("‖J‖ on two equal numbers", level, predicted=1 / math.sqrt(EPS))
    alone = norm(jacobian(lambda v: F.layer_norm(v, (1,), eps=EPS), x[:1]))
    yield equal("‖J‖ on one number", alone, predicted=0.0, scale=1.0)


@claims.add(
    "failure.growth",
    "failure signatures",
    Verdict.GAUGE,
    "Weight norms that grow in spite of normalization are a sign of failure.",
    "Before a normalizer the norm is a choice of scale: growth changes the effective learning rate, not the function.",
)
def growth(draw: Draw) -> Iterator[Finding | Curve]:
    """Weights of every channel of a BatchNorm net times a scale of its own."""
    depth, width = draw.integer(2, 5), draw.integer(5, 10)
    net, x = BatchNormNet.drawn(draw, depth, width), draw.normal(20, width)
    other = net.rescaled([draw.uniform(width, low=2.0, high=50.0) for _ in range(depth)])
    apart = float((net(x) - other(x)).abs().max())
    yield equal("largest change of an output", apart, predicted=0.0, scale=float(net(x).abs().max()))
    yield moves("product of weight norms", 10**net.log_weights, 10**other.log_weights)
    yield equal("log10 of the folded bound", other.log_folded, predicted=net.log_folded)


@claims.add(
    "OQ1",
    "open question 1",
    Verdict.UNSUPPORTED,
    "How γ and β enter the constants is open.",
    "It is known: β not at all; |γ|₍₃₎ ≤ σ_ε‖J‖ ≤ |γ|₍₁₎ for LayerNorm, max|γ_c|/σ_c exactly for BatchNorm.",
)
def affine(draw: Draw) -> Iterator[Finding | Curve]:
    """LayerNorm's Jacobian with random γ, with and without β, and with equal γ."""
    n = draw.integer(4, 20)
    x, gamma, beta = draw.normal(n), draw.normal(n), draw.normal(n)
    sigma = math.sqrt(float(x.var(correction=0)) + EPS)
    found = norm(jacobian(lambda v: F.layer_norm(v, (n,), gamma, beta, eps=EPS), x))
    order = gamma.abs().sort(descending=True).values
    yield below("σ_ε‖J‖, against |γ|₍₁₎", found * sigma, predicted=float(order[0]))
    yield below("|γ|₍₃₎, against σ_ε‖J‖", float(order[2]), predicted=found * sigma)
    without = norm(jacobian(lambda v: F.layer_norm(v, (n,), gamma, eps=EPS), x))
    yield equal("‖J‖ with β, against without", found, predicted=without)
    even = norm(jacobian(lambda v: F.layer_norm(v, (n,), order[:1].expand(n), eps=EPS), x))
    yield equal("σ_ε‖J‖ for equal γ", even * sigma, predicted=float(order[0]))


@claims.add(
    "OQ2",
    "open question 2",
    Verdict.UNSUPPORTED,
    "Whether the analysis extends to ResNets and Transformers is open.",
    "It does: a residual block has at most 1 + L, attained; attention on bounded tokens has a finite "
    "constant (X.attention).",
)
def residual(draw: Draw) -> Iterator[Finding | Curve]:
    """Pre-normalized residual blocks: the Jacobian against the product of 1 + L."""
    depth, n = draw.integer(2, 4), draw.integer(3, 8)
    weights, x = [draw.normal(n, n) / math.sqrt(n) for _ in range(depth)], 3 * draw.normal(n)

    def net(v: Tensor) -> Tensor:
        for w in weights:
            v = v + w @ F.layer_norm(v, (n,), eps=EPS)
        return v

    bound, v = 1.0, x
    for w in weights:
        bound *= 1 + norm(w) / math.sqrt(float(v.var(correction=0)) + EPS)
        v = v + w @ F.layer_norm(v, (n,), eps=EPS)
    yield below("‖J‖ of a pre-normalized residual net", norm(jacobian(net, x)), predicted=bound)
    c = float(draw.uniform(1, low=0.1, high=2.0))
    yield equal("‖J‖ of x + c·x", norm(jacobian(lambda u: u + c * u, x)), predicted=1 + c)


@claims.add(
    "OQ3",
    "open question 3",
    Verdict.UNSUPPORTED,
    "What is guaranteed where variances are small is open.",
    "1/√ε is the ceiling, attained; and for any inputs outputs lie within 2√n·max|γ| of each other, however "
    "small σ is.",
)
def small_variance(draw: Draw) -> Iterator[Finding | Curve]:
    """σ down to nothing: the slope approaches the ceiling; distances stay under the cap, opposite inputs reach it."""
    n, eps = draw.integer(3, 12), 10 ** float(draw.uniform(1, low=-6.0, high=-2.0))
    direction, gamma = draw.normal(n), float(draw.uniform(1, low=0.5, high=2.0))
    sizes = tuple(10.0**k for k in range(-8, 2))
    ones = torch.full((n,), gamma, dtype=torch.float64)
    slopes = [norm(jacobian(lambda v: F.layer_norm(v, (n,), ones, eps=eps), s * direction)) for s in sizes]
    yield below("steepest slope", max(slopes), predicted=gamma / math.sqrt(eps))
    yield equal("the same, σ → 0", slopes[0], predicted=gamma / math.sqrt(eps), rel=1e-6)
    far = 1e4 * (direction - direction.mean())
    apart = F.layer_norm(far, (n,), ones, eps=eps) - F.layer_norm(-far, (n,), ones, eps=eps)
    yield equal(
        "distance of the outputs of x and −x", float(apart.norm()), predicted=2 * math.sqrt(n) * gamma, rel=1e-6
    )
    some = F.layer_norm(draw.normal(30, n) * 10 ** draw.uniform(30, 1, low=-6.0, high=3.0), (n,), ones, eps=eps)
    yield below(
        "largest distance of 30 outputs", float(torch.cdist(some, some).max()), predicted=2 * math.sqrt(n) * gamma
    )
    lines = (("slope", tuple(slopes)), ("1/√ε", (gamma / math.sqrt(eps),) * len(sizes)))
    yield Curve(
        "Slope of LayerNorm as the variance goes to 0",
        "scale of the input",
        "‖J‖",
        sizes,
        lines,
        log_x=True,
        log_y=True,
    )


@claims.add(
    "local",
    "mechanism 3; next check 3",
    Verdict.HOLDS,
    "Local constants near the data suffice for the bound, and are smaller than the global one.",
    "Yes, where they hold over the whole cell; with LayerNorm the global constant is useless (1/√ε a layer) and the "
    "local one is not. The slack g dominates either way.",
)
def local(draw: Draw) -> Iterator[Finding | Curve]:
    """LayerNorm over a ball: the certified local constant is attained and far below the global one."""
    n, share = draw.integer(4, 20), float(draw.uniform(1, low=0.1, high=0.8))
    x = 2 * draw.normal(n)
    y = x - x.mean()
    sigma = math.sqrt(float(y.square().mean()))
    radius = share * math.sqrt(n) * sigma
    nearest = x - radius * y / y.norm()  # the point of the ball with the least variance
    bound = 1 / math.sqrt((sigma - radius / math.sqrt(n)) ** 2 + EPS)
    found = norm(jacobian(lambda v: F.layer_norm(v, (n,), eps=EPS), nearest))
    yield equal("largest slope in the ball", found, predicted=bound)
    others = x + radius * F.normalize(draw.normal(20, n), dim=1)
    steepest = max(norm(jacobian(lambda v: F.layer_norm(v, (n,), eps=EPS), row)) for row in others)
    yield below("slopes elsewhere in the ball", steepest, predicted=bound)
    yield below("local over global constant", bound * math.sqrt(EPS), predicted=0.1)


claims.trained(
    "E1",
    "first experiment 1: variance monitoring; next check 1",
    Verdict.GAUGE,
    "Logging σ² shows that variances grow and Π1/σ is exponentially small.",
    "Logged for five optimizers, batch sizes, learning rates and starts: 10^−15 without decay, 10^+14 with "
    "L2 in Adam's "
    "gradient (rms, ResNet-18), at one accuracy; σ grows with the number and size of steps until decay takes over.",
    "than2025/optimizers",
)
claims.trained(
    "E2",
    "first experiment 2: ablation; next check 2",
    Verdict.WRONG,
    "More normalization layers at fixed depth and width give a smaller generalization gap.",
    "+2.0 ± 0.2 points of gap a normalizer over 30 nets, since training is faster; at equal training "
    "accuracy one to nine "
    "normalizers do not differ (−0.01 ± 0.05 points each).",
    "than2025/count",
)
claims.trained(
    "E3",
    "first experiment 3: weight norm tracking",
    Verdict.WRONG,
    "Without normalization the product of weight norms grows exponentially in training.",
    "The MLP without normalizers goes from 10^4.1 to 10^6.5 (10^12 without decay) over ten layers and 100 "
    "epochs; it is "
    "the normalized net whose product moves by 89 decades, a choice of scale.",
    "than2025/fig1",
)
claims.trained(
    "small",
    "break condition; failure signatures",
    Verdict.WRONG,
    "Where input variances stay below 1 the benefit of normalization reverses.",
    "ResNet-18 has σ < 1 in 1 to 18 of 20 layers depending on the optimizer, at gaps of 22 to 24 points throughout.",
    "than2025/below",
)

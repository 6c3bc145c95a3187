"""Checks: normalizers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve
from normgauge.ledger.claim import Found, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.nets import batch_norm, decade, layer_norm, running
from normgauge.zoo import resnet18


def batch_norm_definition(draw: Draw) -> Found:
    m, n = draw.integer(3, 12), draw.integer(1, 6)
    module, x, weight = batch_norm(draw, n), draw.normal(m, n), draw.normal(m, n)
    mean, var = running(module)
    formula = (x - mean) / (var + module.eps).sqrt()
    yield equal("eval output, along a random direction", (weight * module(x)).sum(), predicted=(weight * formula).sum())
    module.train().momentum = 1.0
    centred = x - x.sum(0) / m
    biased = (centred**2).sum(0) / m
    formula = centred / (biased + module.eps).sqrt()
    yield equal("train output: the biased variance", (weight * module(x)).sum(), predicted=(weight * formula).sum())
    kept = biased * m / (m - 1)
    yield equal("variance kept: the unbiased one", running(module)[1].sum(), predicted=kept.sum())


def batch_norm_slope(draw: Draw) -> Found:
    n = draw.integer(2, 8)
    module, c = batch_norm(draw, n), draw.integer(0, n)
    slopes = jacobian(lambda x: module(x[None]), draw.normal(n))
    own = 1 / math.sqrt(float(running(module)[1][c]) + module.eps)
    yield equal("slope of one signal", slopes[c, c], predicted=own)
    others = slopes - slopes.diagonal().diag()
    yield equal("largest slope across signals", others.abs().max(), predicted=0.0, scale=norm(slopes))


def batch_norm_training(draw: Draw) -> Found:
    m, n, eps = draw.integer(3, 7), draw.integer(1, 4), decade(draw, -4, -1)
    gamma, x = draw.normal(n), draw.normal(m, n) * draw.normal(n).exp()

    def train(v: Tensor) -> Tensor:
        return F.batch_norm(v, None, None, gamma, training=True, eps=eps)

    sigma = ((x - x.mean(0)) ** 2).mean(0).add(eps).sqrt()
    slopes = jacobian(train, x)
    yield equal(f"slope of the batch, m = {m}", norm(slopes), predicted=float((gamma.abs() / sigma).max()))
    k, c = draw.integer(0, m), draw.integer(0, n)
    z = float((x[k, c] - x[:, c].mean()) / sigma[c])
    own = float(gamma[c] / sigma[c]) * (1 - 1 / m - z**2 / m)
    yield equal("a sample's own slope", slopes[k * n + c, k * n + c], predicted=own, scale=norm(slopes))
    pair = x[:2]
    sigma = ((pair[0] - pair[1]) ** 2 / 4 + eps).sqrt()
    slope = float((gamma.abs() * eps / sigma**3).max())
    yield equal("slope of a batch of two", norm(jacobian(train, pair)), predicted=slope, rel=1e-8)


def lemma_1(draw: Draw) -> Found:
    n = draw.integer(2, 10)
    module = batch_norm(draw, n)
    slopes = jacobian(lambda x: module(x[None]), draw.normal(n))
    inverse = 1 / (running(module)[1] + module.eps).sqrt()
    printed = math.sqrt(float((inverse**2).sum()))
    yield equal("slope", norm(slopes), predicted=float(inverse.max()))
    yield refutes("slope against the ℓ2 norm", norm(slopes), published=printed)
    yield equal("Frobenius norm of the Jacobian is what is printed", slopes.norm(), predicted=printed)
    sigma = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    example = norm(jacobian(lambda x: F.batch_norm(x[None], 0 * sigma, sigma**2, eps=0.0), sigma))
    yield refutes("σ = (1/2, 1, 2)", example, published=math.sqrt(2**2 + 1**2 + 0.5**2))
    yield equal("σ = (1/2, 1, 2)", example, predicted=2.0)
    x = [2.0**k for k in range(10)]
    lines = (("true constant", (1.0,) * 10), ("as printed", tuple(math.sqrt(c) for c in x)))
    yield Curve("C channels of variance 1", "channels C", "constant", tuple(x), lines, log_x=True, log_y=True)


def resnet18_widths() -> tuple[int, ...]:
    """Channels of ResNet-18's BatchNorms."""
    with torch.random.fork_rng(devices=[]):  # its weights are drawn, and not used
        return tuple(m.num_features for m in resnet18(10).modules() if isinstance(m, nn.BatchNorm2d))


def lemma_1_in_resnet18(draw: Draw) -> Found:
    widths = resnet18_widths()
    yield equal("BatchNorm layers", len(widths), predicted=20)
    slack = sum(math.log10(channels) / 2 for channels in widths)
    # stem and first stage: 5 of 64; then 5 each of 128, 256 and 512 channels, the shortcut's among them
    yield equal("decades of Π√C", slack, predicted=5 / 2 * math.log10(64 * 128 * 256 * 512))
    total = 0.0
    for channels in widths:
        var = draw.normal(channels).exp()
        var = var / var.mean() * 10 ** (2 * 25 / 20)
        total += math.log10(float(var.rsqrt().norm()))
    yield exceeds("decades of Π‖1/σ_k‖₂ when Π1/rms σ_k = 10^−25", total, published=-25.0)
    yield below("at least Π√C_k more, by Jensen", -25 + slack, predicted=total)
    flat = sum(math.log10(float(torch.full((channels,), 10**-1.25).norm())) for channels in widths)
    yield equal("with equal channels exactly that", flat, predicted=-25 + 22.5772, rel=1e-4)


def spread(x: Tensor, eps: float) -> float:
    """√(σ² + ε) with the biased variance, written out."""
    return math.sqrt(float(((x - x.sum() / len(x)) ** 2).sum()) / len(x) + eps)


def layer_norm_definition(draw: Draw) -> Found:
    n, eps = draw.integer(2, 12), decade(draw, -6, 0)
    x, weight = draw.normal(n) * decade(draw, -2, 2), draw.normal(n)
    out, formula = layer_norm(x, eps), (x - x.sum() / n) / spread(x, eps)
    yield equal("output, along a random direction", weight @ out, predicted=weight @ formula)
    yield below("length of the output", out.norm(), predicted=math.sqrt(n))
    large = layer_norm(1e9 * x, eps)
    yield equal("its length for a huge input", large.norm(), predicted=math.sqrt(n))


def lemma_2(draw: Draw) -> Found:
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


def lemma_2_narrow(draw: Draw) -> Found:
    eps, x = decade(draw, -4, -1), draw.normal(2)
    slope, printed = norm(jacobian(lambda v: layer_norm(v, eps), x)), 1 / spread(x, eps)
    yield below("slope of two entries", slope, predicted=printed)
    yield equal("slope of two entries", slope, predicted=eps / spread(x, eps) ** 3, published=printed, rel=1e-7)
    yield equal("bound over slope", printed / slope, predicted=1 + float((x[0] - x[1]) ** 2) / 4 / eps, rel=1e-7)
    same = x[:1].expand(2)
    slope = norm(jacobian(lambda v: layer_norm(v, eps), same))
    yield equal("slope of two equal entries", slope, predicted=1 / spread(same, eps))
    yield equal("slope of one entry", norm(jacobian(lambda v: layer_norm(v, eps), x[:1])), predicted=0.0, scale=1.0)


def lemma_2_global(draw: Draw) -> Found:
    n, eps = draw.integer(2, 10), decade(draw, -6, -1)
    level = draw.normal(1).expand(n)
    yield equal("slope at a constant vector", norm(jacobian(lambda v: layer_norm(v, eps), level)), predicted=eps**-0.5)
    sizes = 10 ** draw.uniform(10, low=-6, high=1)
    slopes = [norm(jacobian(lambda v: layer_norm(v, eps), s * draw.normal(n))) for s in sizes]
    yield below("largest slope of ten points", max(slopes), predicted=eps**-0.5)
    default = norm(jacobian(lambda v: nn.LayerNorm(n).double()(v), level))
    yield equal("slope with the default ε", default, predicted=100 * math.sqrt(10))


def lemma_23_centred(draw: Draw) -> Found:
    n, eps = draw.integer(2, 9), decade(draw, -4, 0)
    y = draw.normal(n)
    y = y - y.mean()
    slopes = jacobian(lambda v: v / (v.square().mean() + eps).sqrt(), y)
    i, t = draw.integer(1, n), draw.integer(0, 1)
    sigma = spread(y, eps)
    yield equal("one entry off the diagonal", slopes[i, t], predicted=-y[i] * y[t] / (y @ y + n * eps) / sigma)
    yield equal("one on it", slopes[i, i], predicted=(1 - y[i] ** 2 / (y @ y + n * eps)) / sigma)


def lemma_23(draw: Draw) -> Found:
    n, eps = draw.integer(2, 12), decade(draw, -5, 0)
    x, left, right = draw.normal(n), draw.normal(n), draw.normal(n)
    slopes = jacobian(lambda v: layer_norm(v, eps), x)
    y, centring = x - x.sum() / n, torch.eye(n).double() - 1 / n
    formula = (torch.eye(n) - torch.outer(y, y) / (y @ y + n * eps)) @ centring / spread(x, eps)
    yield equal("between random vectors", left @ slopes @ right, predicted=left @ formula @ right, scale=norm(slopes))
    yield equal("its trace", slopes.trace(), predicted=formula.trace())
    yield equal("n = 1", norm(jacobian(lambda v: layer_norm(v, eps), x[:1])), predicted=0.0, scale=1.0)


def proof_of_lemma_2(draw: Draw) -> Found:
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


def group_norm(x: Tensor, groups: int, eps: float) -> Tensor:
    """GroupNorm of one vector as torch computes it."""
    return F.group_norm(x[None], groups, eps=eps)[0]


def spreads(groups: Tensor, eps: float) -> Tensor:
    """√(σ_k² + ε) of the rows of a (groups, size) table, written out."""
    centred = groups - groups.sum(1, keepdim=True) / groups.shape[1]
    return ((centred**2).sum(1) / groups.shape[1] + eps).sqrt()


def rows(draw: Draw, groups: int, size: int) -> Tensor:
    """Groups of entries with scales of their own."""
    return draw.normal(groups, size) * draw.normal(groups, 1).exp()


def group_norm_definition(draw: Draw) -> Found:
    count, size, eps = draw.integer(2, 5), draw.integer(2, 6), decade(draw, -5, 0)
    x, weight = rows(draw, count, size), draw.normal(count, size)
    formula = (x - x.sum(1, keepdim=True) / size) / spreads(x, eps)[:, None]
    out = group_norm(x.flatten(), count, eps)
    yield equal("output, along a random direction", weight.flatten() @ out, predicted=(weight * formula).sum())
    whole, line = group_norm(x.flatten(), 1, eps), layer_norm(x.flatten(), eps)
    yield equal("one group is LayerNorm", weight.flatten() @ whole, predicted=weight.flatten() @ line)


def lemma_3(draw: Draw) -> Found:
    count, size, eps = draw.integer(2, 6), draw.integer(3, 6), decade(draw, -5, -1)
    x = rows(draw, count, size)
    slope = norm(jacobian(lambda v: group_norm(v, count, eps), x.flatten()))
    inverse = 1 / spreads(x, eps)
    yield equal("slope: the maximum", slope, predicted=inverse.max(), published=inverse.sum())
    yield below("slope against the sum", slope, predicted=inverse.sum())
    same = x[:1].expand(count, size)
    slope = norm(jacobian(lambda v: group_norm(v, count, eps), same.flatten()))
    yield equal("sum over slope for C equal groups", count * slope, predicted=(1 / spreads(same, eps)).sum())
    scales = torch.tensor([0.1, 1.0, 3.0, 10.0], dtype=torch.float64)
    inverse = 1 / spreads(draw.normal(4, 16) * scales[:, None], 1e-5)
    counts = [1.0, 2.0, 3.0, 4.0]
    lines = (
        ("maximum (true)", tuple(float(inverse[: int(c)].max()) for c in counts)),
        ("sum (printed)", tuple(float(inverse[: int(c)].sum()) for c in counts)),
    )
    yield Curve("groups of scale 0.1, 1, 3, 10", "groups", "constant", tuple(counts), lines)


def lemma_3_global(draw: Draw) -> Found:
    count, size, eps = draw.integer(2, 5), draw.integer(2, 5), decade(draw, -5, -1)
    level = draw.normal(count, 1).expand(count, size).flatten()
    slopes = jacobian(lambda v: group_norm(v, count, eps), level)
    yield equal("slope where every group is constant", norm(slopes), predicted=eps**-0.5, published=count * eps**-0.5)
    blocks = sum(norm(slopes[k : k + size]) for k in range(0, count * size, size))
    yield equal("sum of the groups' slopes there", blocks, predicted=count * eps**-0.5)
    sizes = 10 ** draw.uniform(8, low=-5, high=1)
    found = [norm(jacobian(lambda v: group_norm(v, count, eps), s * draw.normal(count * size))) for s in sizes]
    yield below("largest slope of eight points", max(found), predicted=eps**-0.5)


def proof_of_lemma_3(draw: Draw) -> Found:
    count, size, eps = draw.integer(2, 5), draw.integer(3, 5), decade(draw, -5, -1)
    x = rows(draw, count, size)
    slopes = jacobian(lambda v: group_norm(v, count, eps), x.flatten())
    blocks = [jacobian(lambda v: layer_norm(v, eps), group) for group in x]
    apart = slopes - torch.block_diag(*blocks)
    yield equal("what is left without the blocks", norm(apart), predicted=0.0, scale=norm(slopes))
    yield below("norm against the sum", norm(slopes), predicted=sum(norm(block) for block in blocks))
    yield equal("norm: the maximum of the blocks", norm(slopes), predicted=max(norm(block) for block in blocks))


def feature_maps(draw: Draw) -> Found:
    count, per, pixels = draw.integer(1, 4), draw.integer(1, 3), draw.integer(3, 5)
    channels, eps = count * per, decade(draw, -3, -1)
    x, gamma, beta = rows(draw, channels, pixels), draw.normal(channels), draw.normal(channels)
    slopes = jacobian(lambda v: F.group_norm(v[None], count, gamma, beta, eps), x)
    by_group = gamma.reshape(count, per).abs().amax(1) / spreads(x.reshape(count, -1), eps)
    yield equal("GroupNorm of an image", norm(slopes), predicted=by_group.max())
    slopes = jacobian(lambda v: F.instance_norm(v[None], weight=gamma, bias=beta, eps=eps), x)
    yield equal("InstanceNorm of an image", norm(slopes), predicted=(gamma.abs() / spreads(x, eps)).max())
    pair = x[:, :2]
    slopes = jacobian(lambda v: F.instance_norm(v[None], weight=gamma, bias=beta, eps=eps), pair)
    two = (gamma.abs() * eps / spreads(pair, eps) ** 3).max()
    yield equal("InstanceNorm of two pixels", norm(slopes), predicted=two, rel=1e-7)


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


def over_a_ball(draw: Draw) -> Found:
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


def displacement(draw: Draw) -> Found:
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


def groups_share_a_radius(draw: Draw) -> Found:
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


def layer_norm_gains(draw: Draw) -> Found:
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


def rms_norm(draw: Draw) -> Found:
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


def rms_norm_gains(draw: Draw) -> Found:
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

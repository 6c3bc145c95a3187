"""Checks: slopes, ranges and statistics of single normalizers."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve
from normgauge.lab.zoo import resnet18
from normgauge.theory.claim import Found, below, equals, refutes
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian, spectral_norm
from normgauge.theory.losses import grad_of
from normgauge.theory.nets import batch_norm, layer_norm, running_statistics

TINY = 1e-14  # an ε small enough to be none at all next to variances of 1


def spread(x: Tensor, eps: float) -> Tensor:
    """√(σ² + ε) along the last axis, σ² biased, written out."""
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return ((centred**2).sum(-1) / x.shape[-1] + eps).sqrt()


def group_norm(x: Tensor, eps: float) -> Tensor:
    """GroupNorm of a (groups, size) table as torch computes it, flat."""
    return F.group_norm(x.reshape(1, -1), len(x), eps=eps)[0]


def slope(x: Tensor, eps: float) -> float:
    """The norm of LayerNorm's Jacobian at x."""
    return spectral_norm(jacobian(lambda v: layer_norm(v, eps), x))


def rows(draw: Draw, groups: int, size: int) -> Tensor:
    """Groups of entries with scales of their own."""
    return draw.normal(groups, size) * draw.normal(groups, 1).exp()


def batch_norm_slope(draw: Draw) -> Found:
    n = draw.integer(3, 9)
    module, c, x = batch_norm(draw, n), draw.integer(0, n), draw.normal(n)
    eps, var, slopes = module.eps, running_statistics(module)[1], jacobian(lambda v: module(v[None]), x)
    yield equals("slope of one signal", slopes[c, c], predicted=1 / math.sqrt(float(var[c]) + eps))
    others = slopes - slopes.diagonal().diag()
    yield equals("largest slope across signals", others.abs().max(), predicted=0.0, scale=spectral_norm(slopes))
    most, ratio = var.argmax(), ((var.min() + eps) / (var.max() + eps)).sqrt()
    yield equals(
        "slope at the largest variance over the steepest", slopes[most, most] / spectral_norm(slopes), predicted=ratio
    )
    module.running_var = 4 * (var + eps) - eps
    after = spectral_norm(jacobian(lambda v: module(v[None]), x))
    yield equals("slope when every σ² + ε is four times as large", after, predicted=spectral_norm(slopes) / 2)
    yield equals("LayerNorm, the same", slope(2 * x, 4 * eps), predicted=slope(x, eps) / 2)


def batch_norm_training(draw: Draw) -> Found:
    m, n, eps = draw.integer(3, 7), draw.integer(1, 4), draw.decade(-4, -1)
    module, gamma, x = nn.BatchNorm1d(n, eps, momentum=1.0), draw.normal(n), draw.normal(m, n) * draw.normal(n).exp()
    module.weight = nn.Parameter(gamma)
    sigma, slopes = spread(x.T, eps), jacobian(module.double(), x)
    yield equals(f"slope of the batch, m = {m}", spectral_norm(slopes), predicted=float((gamma.abs() / sigma).max()))
    k, c = draw.integer(0, m), draw.integer(0, n)
    z = float((x[k, c] - x[:, c].mean()) / sigma[c])
    own = float(gamma[c] / sigma[c]) * (1 - 1 / m - z**2 / m)
    yield equals("a sample's own slope", slopes[k * n + c, k * n + c], predicted=own, scale=spectral_norm(slopes))
    kept = spread(x.T, 0.0) ** 2 * m / (m - 1)
    yield equals("variance kept: the unbiased one", running_statistics(module)[1].sum(), predicted=kept.sum())
    pair = float((gamma.abs() * eps / spread(x[:2].T, eps) ** 3).max())
    yield equals("slope of a batch of two", spectral_norm(jacobian(module, x[:2])), predicted=pair, rel=1e-8)
    module(x)
    deployed = spectral_norm(jacobian(lambda v: module.eval()(v[None]), x[0]))
    yield equals("constant of the deployed layer", deployed, predicted=(gamma.abs() / (kept + eps).sqrt()).max())


def lemma_1(draw: Draw) -> Found:
    n = draw.integer(2, 10)
    module = batch_norm(draw, n)
    slopes = jacobian(lambda x: module(x[None]), draw.normal(n))
    inverse = 1 / (running_statistics(module)[1] + module.eps).sqrt()
    printed = math.sqrt(float((inverse**2).sum()))
    eps, shifted = draw.decade(-5, -1), torch.tensor([1 / 4, 1.0, 4.0], dtype=torch.float64)
    example = spectral_norm(jacobian(lambda x: F.batch_norm(x[None], 0 * x.detach(), shifted - eps, eps=eps), shifted))
    yield refutes("slope, three signals with σ² + ε = 1/4, 1, 4", example, published=math.sqrt(2**2 + 1**2 + 0.5**2))
    yield equals("the same", example, predicted=2.0)
    yield equals(f"slope, {n} random signals", spectral_norm(slopes), predicted=float(inverse.max()))
    yield refutes("the same, against the ℓ2 norm", spectral_norm(slopes), published=printed)
    yield equals("Frobenius norm of that Jacobian, against the ℓ2 norm", slopes.norm(), predicted=printed)
    x = [2.0**k for k in range(10)]
    lines = (("true constant", (1.0,) * 10), ("as printed", tuple(math.sqrt(c) for c in x)))
    yield Curve("n signals of variance 1", "signals n", "constant", tuple(x), lines, log_x=True, log_y=True)


def lemma_1_in_resnet18(draw: Draw) -> Found:
    with torch.random.fork_rng(devices=[]):  # its weights are drawn, and not used
        widths = [m.num_features for m in resnet18(10).modules() if isinstance(m, nn.BatchNorm2d)]
    yield equals("BatchNorm layers", len(widths), predicted=20)
    slack = sum(math.log10(channels) / 2 for channels in widths)
    # stem and first stage: 5 of 64; then 5 each of 128, 256 and 512 channels, the shortcut's among them
    yield equals("decades of Π√C", slack, predicted=5 / 2 * math.log10(64 * 128 * 256 * 512))

    def printed(variances: list[Tensor]) -> float:
        """log10 of Π‖1/σ_k‖₂, each layer's variances scaled so that Π1/σ_k, by the mean variance, is 10^−25."""
        return sum(math.log10(float((var / var.mean() * 10**2.5).rsqrt().norm())) for var in variances)

    alike, mixed = printed([torch.ones(c).double() for c in widths]), printed([draw.normal(c).exp() for c in widths])
    what = "log10 of Π‖1/σ_k‖₂, channels alike, where Π1/σ_k = 10^−25 by the mean variance"
    yield equals(what, alike, predicted=slack - 25, published=-25)
    yield below("the same, against that of random channels", alike, predicted=mixed)


def lemma_2(draw: Draw) -> Found:
    n, eps = draw.integer(3, 20), draw.decade(-3, 0)
    x, left, right, i = draw.normal(n), draw.normal(n), draw.normal(n), draw.integer(1, n)
    slopes, sigma = jacobian(lambda v: layer_norm(v, eps), x), spread(x, eps)
    values = torch.linalg.svdvals(slopes)
    yield equals(f"slope, n = {n}", values[0], predicted=1 / sigma, published=1 / sigma)
    yield equals("still the same, n − 2 directions on", values[n - 3], predicted=1 / sigma)
    yield equals("along the centred input", values[n - 2], predicted=eps / sigma**3)
    yield equals("along the mean", values[n - 1], predicted=0.0, scale=1 / sigma)
    y, centring = x - x.sum() / n, torch.eye(n).double() - 1 / n
    shrinking = torch.eye(n) - torch.outer(y, y) / (y @ y + n * eps)
    inner = jacobian(lambda v: v / (v.square().mean() + eps).sqrt(), y)
    formula = left @ shrinking @ centring @ right / sigma
    between = left @ slopes @ right
    yield equals("Lemma 23, between random vectors", between, predicted=formula, published=formula, scale=1 / sigma)
    yield equals("in y, an entry off the diagonal", inner[i, 0], predicted=-y[i] * y[0] / (n * sigma**2) / sigma)
    yield equals("in y, one on it", inner[i, i], predicted=(1 - y[i] ** 2 / (y @ y + n * eps)) / sigma)
    yield equals("norms of both factors", spectral_norm(inner) * sigma * spectral_norm(centring), predicted=1.0)
    yield equals("n = 1", slope(x[:1], eps), predicted=0.0, scale=1.0)


def lemma_2_global(draw: Draw) -> Found:
    n, eps, x = draw.integer(2, 10), draw.decade(-4, -1), draw.normal(2)
    level = slope(x[:1].expand(n), eps)
    yield equals("slope at a constant vector", level, predicted=eps**-0.5, published=eps**-0.5)
    sizes = 10 ** draw.uniform(10, low=-6, high=1)
    yield below("largest slope of ten points", max(slope(s * draw.normal(n), eps) for s in sizes), predicted=eps**-0.5)
    default = spectral_norm(jacobian(lambda v: nn.LayerNorm(n).double()(v), x[:1].expand(n)))
    yield equals("slope with the default ε", default, predicted=100 * math.sqrt(10))
    found, bound = slope(x, eps), 1 / spread(x, eps)
    yield equals("slope of two entries", found, predicted=eps / spread(x, eps) ** 3, rel=1e-7)
    yield equals("bound over slope", bound / found, predicted=1 + (x[0] - x[1]) ** 2 / 4 / eps, rel=1e-7)
    yield equals("slope of one entry", slope(x[:1], eps), predicted=0.0, scale=1.0)


def lemma_3(draw: Draw) -> Found:
    count, size, eps = draw.integer(2, 6), draw.integer(3, 6), draw.decade(-5, -1)
    x, weight = rows(draw, count, size), draw.normal(count * size)

    def at(v: Tensor) -> Tensor:
        return jacobian(lambda u: group_norm(u, eps), v)

    whole = group_norm(x.reshape(1, -1), eps)
    slopes, inverse = at(x), 1 / spread(x, eps)
    yield equals("slope", spectral_norm(slopes), predicted=inverse.max(), published=inverse.sum())
    yield below("the same, against the sum", spectral_norm(slopes), predicted=inverse.sum(), published=inverse.sum())
    one = weight @ layer_norm(x.flatten(), eps)
    yield equals("output of one group, along a random direction, against LayerNorm's", weight @ whole, predicted=one)
    blocks = torch.block_diag(*(jacobian(lambda v: layer_norm(v, eps), group) for group in x))
    yield equals(
        "slope less that of each group alone",
        spectral_norm(slopes - blocks),
        predicted=0.0,
        scale=spectral_norm(slopes),
    )
    same = x[:1].expand(count, size)
    total = (1 / spread(same, eps)).sum()
    yield equals(f"printed sum over slope, {count} equal groups", total / spectral_norm(at(same)), predicted=count)
    level = draw.normal(count, 1).expand(count, size)
    yield equals(
        "where every group is constant", spectral_norm(at(level)), predicted=eps**-0.5, published=count * eps**-0.5
    )


def feature_maps(draw: Draw) -> Found:
    count, per, pixels, eps = draw.integer(1, 4), draw.integer(1, 3), draw.integer(3, 5), draw.decade(-3, -1)
    x, gamma = rows(draw, count * per, pixels), draw.normal(count * per)
    slopes = jacobian(lambda v: F.group_norm(v[None], count, gamma, gamma, eps), x)
    by_group = gamma.reshape(count, per).abs().amax(1) / spread(x.reshape(count, -1), eps)
    yield equals("GroupNorm of an image", spectral_norm(slopes), predicted=by_group.max())
    instance = partial(F.instance_norm, weight=gamma, bias=gamma, eps=eps)
    each = (gamma.abs() / spread(x, eps)).max()
    yield equals("InstanceNorm of an image", spectral_norm(jacobian(lambda v: instance(v[None]), x)), predicted=each)
    two = (gamma.abs() * eps / spread(x[:, :2], eps) ** 3).max()
    slopes = jacobian(lambda v: instance(v[None]), x[:, :2])
    yield equals("InstanceNorm of two pixels", spectral_norm(slopes), predicted=two, rel=1e-7)


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


def touching(x: Tensor, radius: float, aside: Tensor) -> Tensor:
    """The point at ``radius`` from x where a ray from the origin, leaning to ``aside``, touches that ball."""
    sigma, unit = parts(x)
    q = radius / math.sqrt(len(x)) / sigma
    return x + radius * (-q * unit + math.sqrt(1 - q**2) * aside)


def chord(n: int, q: float) -> float:
    """2√n·sin(½ asin q)."""
    return 2 * math.sqrt(n) * math.sin(math.asin(q) / 2)


def over_a_ball(draw: Draw) -> Found:
    n, eps, q = draw.integer(3, 20), draw.decade(-4, 0), draw.number(0.1, 0.95)
    x, steps = draw.normal(n), draw.normal(8, n)
    (sigma, unit), root, size = parts(x), math.sqrt(n), float(spread(x, eps))
    aside, r = sideways(draw, unit), q * root * sigma
    bound = 1 / math.sqrt((sigma - r / root) ** 2 + eps)
    yield equals("slope at the worst point", slope(x - r * unit, eps), predicted=bound)
    found = max(slope(x + r * step / step.norm(), eps) for step in steps)
    yield below("largest slope of eight others", found, predicted=bound)
    yield equals("a ball of radius √n σ0 or more", slope(x - root * sigma * unit, eps), predicted=eps**-0.5)

    def moved(other: Tensor, eps: float) -> float:
        return float((layer_norm(other, eps) - layer_norm(x, eps)).norm())

    yield equals("displacement at the touching point", moved(touching(x, r, aside), TINY), predicted=chord(n, q))
    angles = torch.linspace(0, math.pi, 61).double()[:, None]
    found = max(moved(x + s * r * way, eps) for way in angles.cos() * unit + angles.sin() * aside for s in (0.5, 1.0))
    yield below("largest displacement of a search, ε not small", found, predicted=chord(n, r / root / size))
    yield below("chord against ρ × constant", chord(n, r / root / size), predicted=r * bound)
    mirror = moved(x - 1e6 * root * sigma * unit, eps)
    yield equals("displacement beyond the origin", mirror, predicted=root * (1 + sigma / size))


def groups_share_a_radius(draw: Draw) -> Found:
    count, n, q = draw.integer(2, 5), draw.integer(3, 8), draw.number(0.2, 0.95)
    x = rows(draw, count, n)
    sigmas = [parts(group)[0] for group in x]
    asides = [sideways(draw, parts(group)[1]) for group in x]
    r = q * math.sqrt(n) * min(sigmas)

    def spent(shares: Tensor) -> float:
        there = torch.stack([touching(g, float(s) * r, a) for g, s, a in zip(x, shares, asides, strict=True)])
        return float((group_norm(there, TINY) - group_norm(x, TINY)).norm())

    chords = [chord(n, r / math.sqrt(n) / s) for s in sigmas]
    alone = spent(torch.eye(count)[sigmas.index(min(sigmas))])
    yield equals("all of the radius on the weakest group", alone, predicted=max(chords))
    shares = draw.normal(10, count)
    found = max(spent(share.abs() / share.norm()) for share in shares)
    yield below("largest displacement of ten random shares", found, predicted=max(chords))


def layer_norm_gains(draw: Draw) -> Found:
    n, eps = draw.integer(3, 20), draw.decade(-5, -2)
    x, gamma, eye = draw.normal(n), draw.normal(n).exp() * draw.normal(n).sign(), torch.eye(n).double()

    def gained(v: Tensor, gains: Tensor) -> float:
        return spectral_norm(jacobian(lambda u: F.layer_norm(u, (n,), gains, gains, eps), v))

    (sigma, unit), size, order = parts(x), spread(x, eps), gamma.abs().sort(descending=True).values
    yield below("slope against the largest gain", gained(x, gamma), predicted=order[0] / size)
    yield below("third largest gain against the slope", order[2] / size, predicted=gained(x, gamma))
    exact = gamma[:, None] * (eye - 1 / n - (sigma / size) ** 2 * torch.outer(unit, unit)) / size
    yield equals("slope", gained(x, gamma), predicted=spectral_norm(exact))
    yield equals("equal gains", gained(x, order[:1].expand(n)), predicted=order[0] / size)
    facing, least = eye[0] - eye[1], order[0] * math.sqrt((n - 2) / n) / math.sqrt(2 / n + eps)
    yield equals("two gains facing the input: below both", gained(facing, order[0] * facing.abs()), predicted=least)
    everywhere = spectral_norm(gamma[:, None] * (eye - 1 / n)) / math.sqrt(eps)
    yield equals("slope at a constant vector", gained(x[:1].expand(n), gamma), predicted=everywhere)


def rms_norm(draw: Draw) -> Found:
    n, eps = draw.integer(2, 15), draw.decade(-3, 0)
    x, gamma = draw.normal(n), draw.normal(n).clamp(-2, 2).exp()

    def slopes(v: Tensor, gains: Tensor | None = None, eps: float = eps) -> Tensor:
        return jacobian(lambda u: F.rms_norm(u, u.shape, gains, eps), v)

    values, rho = torch.linalg.svdvals(slopes(x)), math.sqrt(float(x @ x) / n + eps)
    yield equals(f"slope, n = {n}", values[0], predicted=1 / rho)
    yield equals("n − 1 directions on", values[n - 2], predicted=1 / rho)
    yield equals("along x", values[n - 1], predicted=eps / rho**3)
    yield equals("slope of one entry", spectral_norm(slopes(x[:1])), predicted=eps / (float(x[0]) ** 2 + eps) ** 1.5)
    least = grad_of(lambda v: F.rms_norm(v, (n,))[0], torch.zeros(n))
    yield equals("default ε in float32, at zero", least[0], predicted=2**11.5, rel=1e-6)
    order, small = gamma.sort(descending=True).values, 1e-6
    rho, along = math.sqrt(float(x @ x) / n + small), torch.eye(n).double()[int(gamma.argmax())]
    found = rho * spectral_norm(slopes(x, gamma, small))
    yield below("gains: slope against the largest", found, predicted=order[0])
    yield below("gains: the second largest against the slope", order[1], predicted=found)
    yield equals("equal gains", spectral_norm(slopes(x, order[:1].expand(n), small)), predicted=order[0] / rho)
    met = spectral_norm(slopes(along, gamma, small))
    yield equals("x along the largest gain", met, predicted=order[1] / math.sqrt(1 / n + small))

"""Our own claims on single layers: pooling, resizing, copies, dropout, small normalizers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw
from normgauge.ledger.extensions_conv import dense
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("X", "normgauge")


def windows(n: int, k: int, s: int, e: int) -> int:
    """The largest number of windows of k taps, stride s, dilation e that cover one of n entries."""
    cover = torch.zeros(n)
    for start in range(0, n - (k - 1) * e, s):
        cover[[start + t * e for t in range(k)]] += 1
    return int(cover.max())


@claims.add(
    "pool.max",
    "pooling",
    Verdict.HOLDS,
    "Max pooling has constant √(most windows over one pixel) = ceil(k·gcd(s,e)/s)^(d/2): 3×3 stride 2 has 2, "
    "stride 1 has 3.",
    "Attained by a lone peak, which wins all its windows; less near small borders. Adaptive and power pooling alike.",
    backs=("pooling.max_pool", "pooling.adaptive_max_pool", "pooling.lp_pool"),
)
def pool_max(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians at a lone peak, moved over all pixels; windows counted."""
    k, s, e = draw.integer(2, 5), draw.integer(1, 4), draw.integer(1, 3)
    n = (k - 1) * e + 1 + 3 * s + k
    slopes = [norm(jacobian(lambda t: F.max_pool1d(t[None, None], k, s, dilation=e), _peak(n, i))) for i in range(n)]
    yield equal("constant on a line", max(slopes), predicted=math.sqrt(windows(n, k, s, e)))
    closed = math.ceil(k * math.gcd(s, e) / s)
    yield equal("windows over one pixel, counted on a long line", windows(40 * s * e, k, s, e), predicted=closed)
    peak = torch.zeros(7, 7, dtype=torch.float64)
    peak[2, 2] = 1.0
    square = norm(jacobian(lambda t: F.max_pool2d(t.reshape(1, 1, 7, 7), 3, 2), peak))
    yield equal("3×3 stride 2 in two dimensions", square, predicted=float(math.ceil(3 / 2)))
    middle = torch.zeros(5, 5, dtype=torch.float64)
    middle[2, 2] = 1.0
    adaptive = norm(jacobian(lambda t: F.adaptive_max_pool2d(t.reshape(1, 1, 5, 5), 2), middle))
    yield equal("adaptive, 5 → 2", adaptive, predicted=2.0)
    power = norm(jacobian(lambda t: F.lp_pool1d(t[None, None], 2.0, 3, 1), _peak(7, 3) + 1e-9))
    yield equal("power pooling, p = 2, 3 taps, stride 1", power, predicted=math.sqrt(3), rel=1e-5)


def _peak(n: int, i: int) -> Tensor:
    x = torch.zeros(n, dtype=torch.float64)
    x[i] = 1.0
    return x


@claims.add(
    "pool.average",
    "pooling",
    Verdict.HOLDS,
    "Average pooling and resizing have the product of the norms of their one-dimensional matrices.",
    "Exactly (Kronecker products): global average 1/√(HW), 2×2 stride 2 ½, nearest ×2 2.",
    backs=("pooling.avg_pool", "pooling.interpolate"),
)
def pool_average(draw: Draw) -> Iterator[Finding | Curve]:
    """Dense matrices in two dimensions against those of a line."""
    h, w, k, s = draw.integer(4, 9), draw.integer(4, 9), draw.integer(2, 4), draw.integer(1, 3)
    lines = [norm(dense(lambda x: F.avg_pool1d(x, k, s), 1, n)) for n in (h, w)]
    yield equal("average", norm(dense(lambda x: F.avg_pool2d(x, k, s), 1, h, w)), predicted=lines[0] * lines[1])
    yield equal("global average", norm(dense(lambda x: x.mean((2, 3)), 1, h, w)), predicted=1 / math.sqrt(h * w))
    half = norm(dense(lambda x: F.avg_pool2d(x, 2), 1, 2 * (h // 2), 2 * (w // 2)))
    yield equal("2×2 stride 2", half, predicted=0.5)
    yield equal("nearest ×2", norm(dense(lambda x: F.interpolate(x, scale_factor=2), 1, h, w)), predicted=2.0)
    sizes = (draw.integer(3, 12), draw.integer(3, 12))
    ups = [norm(dense(partial(F.interpolate, size=m, mode="linear"), 1, n)) for n, m in zip((h, w), sizes, strict=True)]
    both = norm(dense(lambda x: F.interpolate(x, size=sizes, mode="bilinear"), 1, h, w))
    yield equal("bilinear", both, predicted=ups[0] * ups[1])


@claims.add(
    "copies",
    "shapes",
    Verdict.HOLDS,
    "What copies entries has constant √(most copies of one entry): views 1, padding by replication p+1, "
    "reflected 2, fold.",
    "Exactly: the columns of the matrix are disjoint. Summing overlapping patches is its adjoint.",
    backs=("shape.copy", "pooling.fold"),
)
def copies(draw: Draw) -> Iterator[Finding | Curve]:
    """Dense matrices of views, paddings, repeats and patches."""
    n, p, r = draw.integer(4, 7), draw.integer(1, 3), draw.integer(2, 6)
    pads = (p,) * 4
    for name, mode, constant in (
        ("zeros", "constant", 1.0),
        ("replicate", "replicate", p + 1.0),
        ("circular", "circular", 2.0),
    ):
        yield equal(f"{name} padding", norm(dense(partial(F.pad, pad=pads, mode=mode), 1, n, n)), predicted=constant)
    yield equal("reflect padding", norm(dense(lambda x: F.pad(x, (1,) * 4, mode="reflect"), 1, n, n)), predicted=2.0)
    yield equal("a transpose", norm(dense(lambda x: x.transpose(2, 3), 1, n, n)), predicted=1.0)
    yield equal("a repeat", norm(dense(lambda x: x.repeat(1, r), n)), predicted=math.sqrt(r))
    patches = norm(dense(lambda x: F.unfold(x, 3), 1, n + 2, n + 2))
    yield equal("patches of 3×3", patches, predicted=3.0)
    count = F.unfold(torch.zeros(1, 1, n + 2, n + 2), 3).shape[2]
    yield equal("their sum", norm(dense(lambda x: F.fold(x, n + 2, 3), 9, count)), predicted=3.0)


@claims.add(
    "dropout",
    "random layers",
    Verdict.HOLDS,
    "Dropout in training has constant 1/(1−p) for every mask, alpha dropout 1/√((1−p)(1 + pα²)), α = 1.7581; in use 1.",
    "Attained as soon as one entry is kept.",
    backs=("stochastic.dropout", "stochastic.alpha_dropout"),
)
def dropout(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians under random masks, the global random state put back."""
    p, x = float(draw.uniform(1, low=0.1, high=0.6)), draw.normal(60)
    alpha = 1.7580993408473766  # −SELU(−∞)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.integer(0, 10_000))
        plain = norm(jacobian(partial(F.dropout, p=p, training=True), x))
        other = norm(jacobian(partial(F.alpha_dropout, p=p, training=True), x))
        used = norm(jacobian(nn.Dropout(p).eval(), x))
    yield equal("dropout", plain, predicted=1 / (1 - p))
    yield equal("alpha dropout", other, predicted=1 / math.sqrt((1 - p) * (1 + p * alpha**2)))
    yield equal("α, the value of dropped entries", -float(F.selu(torch.tensor(-50.0).double())), predicted=alpha)
    yield equal("in use", used, predicted=1.0)


@claims.add(
    "normalize",
    "small normalizers",
    Verdict.HOLDS,
    "x/max(‖x‖, ε) has constant 1/max(‖x‖, ε) at x and 1/ε everywhere.",
    "Exactly for two entries or more; the radial direction is projected out.",
    backs=("norm_layer.normalize",),
)
def normalize(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians outside and inside the floor."""
    n, eps = draw.integer(2, 9), 10 ** float(draw.uniform(1, low=-6.0, high=-1.0))
    x = draw.normal(n)
    found = norm(jacobian(lambda t: F.normalize(t, dim=0, eps=eps), x))
    yield equal("constant at x", found, predicted=1 / max(float(x.norm()), eps))
    small = 0.1 * eps * x / x.norm()
    yield equal(
        "constant under the floor", norm(jacobian(lambda t: F.normalize(t, dim=0, eps=eps), small)), predicted=1 / eps
    )


@claims.add(
    "response",
    "small normalizers",
    Verdict.HOLDS,
    "Local response normalization has constant at most k^(−β) + √m·(2β/(β+1))·(k(β+1)/β)^(−β) for windows of m.",
    "k^(−β) is attained at 0; the second term is what the change of the divisor can do, far from attained.",
    backs=("norm_layer.local_response_norm",),
)
def response(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians at inputs of all sizes, and at 0."""
    channels, m = draw.integer(4, 9), 2 * draw.integer(1, 3) + 1
    alpha, beta, k = (float(v) for v in draw.uniform(3, low=0.3, high=2.0))

    def run(t: Tensor) -> Tensor:
        return F.local_response_norm(t.reshape(1, channels, 1), m, alpha, beta, k)

    sizes = 10 ** draw.uniform(12, low=-1.0, high=1.5)
    found = max(norm(jacobian(run, s * draw.normal(channels))) for s in sizes)
    second = math.sqrt(m) * (2 * beta / (beta + 1)) * (k * (beta + 1) / beta) ** -beta
    yield below("constant", found, predicted=k**-beta + second)
    yield equal("constant at 0", norm(jacobian(run, torch.zeros(channels))), predicted=k**-beta)
    line = torch.linspace(0, 60, 60_001, dtype=torch.float64) / math.sqrt(alpha)
    share = 2 * beta * alpha * line**2 * (k + alpha * line**2) ** (-beta - 1)
    yield equal(
        "largest share of the divisor, on a line", float(share.max()), predicted=second / math.sqrt(m), rel=1e-3
    )

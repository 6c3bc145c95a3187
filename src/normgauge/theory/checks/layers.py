"""Checks: layers, by the rules themselves, and what the gauges and convolutions rest on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.claim import Comparison
from normgauge.instrument.measure import gauge
from normgauge.instrument.session import Options, opened
from normgauge.instrument.testing.bench import OneStep
from normgauge.theory.claim import Found, below, equals, moves, shown
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian, spectral_norm
from normgauge.theory.nets import BatchNormNet, Map, eye, ones


def upper(function: Map, x: Tensor, scope: str = "global", mode: str = "eval") -> float:
    """The bound that the rules give for a function of a batch, around one sample x."""
    asked = Scope.parse(scope)
    with opened(OneStep(function), x[None], Options(mode)) as session:
        return math.exp(float(session.composed(asked).log_upper))


def ruled(
    what: str, function: Map, x: Tensor, scope: str = "global", *,
    exact: bool = True, at: Iterable[Tensor] | None = None, rel: float = 1e-8, mode: str = "eval",
) -> Comparison:  # fmt: skip
    """The slope at x, or the steepest of those ``at``, equals (or is below) the bound the rules give around x."""
    found = max(spectral_norm(jacobian(function, point[None])) for point in ([x] if at is None else at))
    bound = upper(function, x, scope, mode)
    if math.isinf(bound):
        return shown(f"{what}: a bound", False)
    return equals(what, found, predicted=bound, rel=rel) if exact else below(what, found, predicted=bound)


def all_ruled(table: dict[str, Map], x: Tensor, *, exact: bool = True) -> Found:
    """`ruled` for several functions around one x."""
    for what, function in table.items():
        yield ruled(what, function, x, exact=exact)


def no_bound(what: str, function: Map, x: Tensor, scope: str = "global") -> Comparison:
    """The rules give no bound."""
    return shown(f"{what}: no bound", math.isinf(upper(function, x, scope)))


def add(draw: Draw) -> Found:
    n, copies, (c,) = draw.integer(3, 9), draw.integer(2, 6), draw.numbers(1)
    w, v, x = draw.normal(n, n), draw.normal(n, n), draw.normal(n)
    yield from all_ruled({"x + Wx": lambda t: t + t @ w, "Wx − Vx": lambda t: t @ w - t @ v}, x, exact=False)
    attained: dict[str, Map] = {
        "x + c·x": lambda t: t + c * t,
        "a row added to many rows": lambda t: 0 * ones(copies, n) + t[:, None],
        "(x, c·x)": lambda t: torch.cat([t, c * t], 1),
    }
    yield from all_ruled(attained, x)


def maximum(draw: Draw) -> Found:
    n, (a, b), (low, high) = draw.integer(2, 8), draw.numbers(2), sorted(draw.numbers(2, -0.5, 0.5))
    w, v, x, rows = draw.normal(n, n), draw.normal(n, n), draw.normal(n), torch.diag(torch.tensor([a, b]).double())
    apart = 20 * (eye(2)[0] - 0.5)
    yield ruled("larger of Wx and Vx", lambda t: torch.maximum(t @ w, t @ v), x, exact=False)
    yield ruled("one entry from each", lambda t: torch.maximum(t * rows[0] + apart, t * rows[1] - apart), x[:1])
    yield ruled("between two limits", lambda t: t.clamp(low, high), x, at=[0 * x + (low + high) / 2])
    yield ruled("above one", lambda t: t.clamp(min=low), x.abs() + 1)
    top = 0 * x + high - 1e-12
    yield ruled("then exp: no value above the limit", lambda t: t.clamp(low, high).exp().cumsum(1), x, at=[top])


def multiply(draw: Draw) -> Found:
    n, k, (a, b, c) = draw.integer(3, 8), draw.integer(2, 8), draw.numbers(3)
    w, v, x = draw.normal(n, n), draw.normal(n, n), draw.normal(n)
    yield ruled("x·(−c·x)", lambda t: t * (-c * t), x, "point")
    yield ruled("(t − a)/(b + c·t′), t′ exchanged", lambda t: (t - a) / (b + c * t.flip(1)), 0 * ones(2), "point")
    yield ruled("Wx·Vx", lambda t: (t @ w) * (t @ v), x, "point", exact=False)
    yield ruled("Wx/(|Vx| + 1)", lambda t: (t @ w) / ((t @ v).abs() + 1), x, "point", exact=False)
    yield ruled("x·x", lambda t: t * t, x, "point")
    yield ruled("a constant factor", lambda t: t * w[0], x)
    yield ruled("a constant divisor", lambda t: t / w[0], x)
    yield ruled("a gate on k×k ones", lambda t: t[:, None] * ones(k, k), x[:1])
    yield no_bound("x·Wx", lambda t: (t @ w) * t, x)
    yield no_bound("x/Vx", lambda t: t / (t @ v), x)


def reduce(draw: Draw) -> Found:
    x = draw.normal(draw.integer(2, 20))
    table: dict[str, Map] = {
        "sum": lambda t: t.sum(1),
        "mean": lambda t: t.mean(1),
        "running sum": lambda t: t.cumsum(1),
        "largest entry": lambda t: t.amax(1),
        "ℓ2 norm": lambda t: torch.linalg.vector_norm(t, dim=1),
        "standard deviation": lambda t: t.std(1),
        "biased one": lambda t: t.std(1, correction=0),
    }
    yield from all_ruled(table, x)


def matmul(draw: Draw) -> Found:
    n, m, batch, (scale, alpha, beta) = draw.integer(2, 4), draw.integer(2, 5), draw.integer(2, 4), draw.numbers(3)
    a, b, fixed, even = draw.normal(n, n), draw.normal(n, n), draw.normal(batch, n, n), scale * eye(n)
    yield ruled("constant factor, in a batch", lambda t: t @ fixed, draw.normal(batch, n, n))
    yield ruled("(A+T)(B+T) at T = 0", lambda t: (a + t) @ (b + t), 0 * a, "point", exact=False)
    yield ruled("T² at c·I", lambda t: t @ t, even, "point")
    yield ruled("einsum, the same", lambda t: torch.einsum("bij,bjk->bik", t, t), even, "point")
    yield ruled("β·T + α·T·cI", lambda t: torch.addmm(t, t, even, beta=beta, alpha=alpha), draw.normal(n))
    w, p, q = draw.normal(m, n, m), draw.normal(n), draw.normal(m)
    line = torch.outer(p / p.norm(), q / q.norm())[None]
    yield ruled("bilinear", lambda t: F.bilinear(t[:, :n], t[:, n:], w), torch.cat([p, q]), "point", exact=False)
    yield ruled("bilinear in p, rank one", lambda t: F.bilinear(t, q[None], line), p)
    yield ruled("bilinear in q, rank one", lambda t: F.bilinear(p[None], t, line), q)


def fourier(draw: Draw) -> Found:
    n, real = draw.integer(3, 12), torch.view_as_real
    x, half = draw.normal(n), draw.normal(n // 2 + 1, 2)
    table: dict[str, Map] = {
        "fft": lambda t: real(torch.fft.fft(t).resolve_conj()),
        "rfft": lambda t: real(torch.fft.rfft(t)),
        "ifft": lambda t: real(torch.fft.ifft(t).resolve_conj()),
    }
    yield from all_ruled(table, x)
    yield ruled("irfft", lambda t: torch.fft.irfft(torch.view_as_complex(t), n), half)
    yield ruled("conjugate", lambda t: real(torch.view_as_complex(t).conj().resolve_conj()), half)


def scalar(draw: Draw) -> Found:
    (c, g), x = draw.numbers(2), draw.normal(draw.integer(2, 6))
    top = x / x.norm() / math.sqrt(2 * g)
    yield ruled("c·x/(1+x²)", lambda t: c * t / (1 + t * t), 0 * x[:1], rel=1e-3)
    yield ruled("1/(1+e^(−cx))", lambda t: 1 / (1 + torch.exp(-c * t)), 0 * x[:1], rel=1e-3)
    yield ruled("exp(−γ‖x‖²)", lambda t: torch.exp(-g * t.square().sum(1)), top, rel=1e-3)


def grn(draw: Draw) -> Found:
    places, channels = draw.integer(1, 5), draw.integer(2, 6)

    def run(t: Tensor) -> Tensor:
        g = t.norm(dim=1, keepdim=True)
        return t * (g / (g.mean(-1, keepdim=True) + 1e-6))

    points = draw.normal(8, places, channels) * 10 ** draw.uniform(8, 1, channels, low=-2.0, high=1.0)
    yield ruled("everywhere", run, points[0], exact=False, at=points)
    yield ruled("at a point", run, points[1], "point", exact=False)
    yield equals("2C + C^(3/2)", upper(run, points[0]), predicted=2 * channels + channels**1.5, rel=1e-8)


def pool_max(draw: Draw) -> Found:
    k, s, e = draw.integer(2, 5), draw.integer(1, 4), draw.integer(1, 3)
    pool = partial(F.max_pool1d, kernel_size=k, stride=s, dilation=e)
    line, square = eye((k - 1) * e + 1 + 3 * s + k)[:, None], eye(25).reshape(25, 1, 5, 5)
    yield ruled("on a line, a lone peak anywhere", pool, line[0], at=line)
    closed = math.sqrt(math.ceil(k * math.gcd(s, e) / s))
    yield equals("√windows over one pixel of a long line", upper(pool, ones(1, 40 * s * e)), predicted=closed, rel=1e-8)
    yield ruled("3×3 stride 2", lambda t: F.max_pool2d(t, 3, 2), square[0], at=square)
    yield ruled("adaptive, 5 → 2", lambda t: F.adaptive_max_pool2d(t, 2), square[0], at=square)
    yield ruled("power pooling, p = 2", lambda t: F.lp_pool1d(t, 2.0, k, s), line[0], at=line + 1e-9, rel=1e-5)


def pool_average(draw: Draw) -> Found:
    k, s, x = draw.integer(2, 4), draw.integer(1, 3), draw.normal(1, draw.integer(4, 9), draw.integer(4, 9))
    size = (draw.integer(3, 12), draw.integer(3, 12))
    table: dict[str, Map] = {
        "average": lambda t: F.avg_pool2d(t, k, s),
        "average, padded": lambda t: F.avg_pool2d(t, k, s, 1, count_include_pad=False),
        "global average": lambda t: F.adaptive_avg_pool2d(t, 1),
        "nearest ×2": lambda t: F.interpolate(t, scale_factor=2),
        "bilinear": lambda t: F.interpolate(t, size=size, mode="bilinear"),
    }
    yield from all_ruled(table, x)


def copies(draw: Draw) -> Found:
    n, p, r = draw.integer(4, 7), draw.integer(1, 3), draw.integer(2, 6)
    x = draw.normal(1, n, n)
    for mode in ("constant", "replicate", "circular", "reflect"):
        yield ruled(f"{mode} padding", partial(F.pad, pad=(p,) * 4, mode=mode), x)
    yield ruled("a transpose", lambda t: t.transpose(2, 3), x)
    yield ruled("a repeat", lambda t: t.repeat(1, r), x[0, 0])
    yield ruled("patches of 3×3", lambda t: F.unfold(t, 3), x)
    yield ruled("their sum", lambda t: F.fold(t, n, 3), draw.normal(9, (n - 2) ** 2))


def dropout(draw: Draw) -> Found:
    (p,), x = draw.numbers(1, 0.1, 0.6), draw.normal(60)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.integer(0, 10_000))
        yield ruled("dropout", lambda t: F.dropout(t, p, training=True), x, mode="train")
        yield ruled("alpha dropout", lambda t: F.alpha_dropout(t, p, training=True), x, mode="train")
    yield ruled("in use", lambda t: F.dropout(t, p, training=False), x)


def normalize(draw: Draw) -> Found:
    x, eps = draw.normal(draw.integer(2, 9)), draw.decade(-6.0, -1.0)
    r = float(x.norm()) / draw.number(1.5, 5.0)
    run = partial(F.normalize, dim=1, eps=eps)
    yield ruled("at x", run, x, "point")
    yield ruled("over a ball, where it is nearest to 0", run, x, f"ball:{r}", at=[x - r * x / x.norm()])
    yield ruled("everywhere, under the floor", run, x, at=[0.1 * eps * x / x.norm()])


def response(draw: Draw) -> Found:
    channels, m, (alpha, beta, k) = draw.integer(4, 9), 2 * draw.integer(1, 3) + 1, draw.numbers(3, 0.3, 2.0)
    run = partial(F.local_response_norm, size=m, alpha=alpha, beta=beta, k=k)
    points = draw.normal(12, channels, 1) * 10 ** draw.uniform(12, 1, 1, low=-1.0, high=1.5)
    yield ruled("everywhere", run, points[0], exact=False, at=points)
    line = torch.linspace(0, 60, 60_001, dtype=torch.float64) / math.sqrt(alpha)
    share = math.sqrt(m) * (2 * beta * alpha * line**2 * (k + alpha * line**2) ** (-beta - 1)).max()
    yield equals("share of the divisor, largest on a line", share, predicted=upper(run, points[0]) - k**-beta, rel=1e-3)


def kink(draw: Draw) -> Found:
    (c,), x = draw.numbers(1, 1.0, 200.0), draw.normal(1)

    def zero(t: Tensor) -> Tensor:
        return c * (t - torch.relu(t) + torch.relu(-t))

    yield equals("autograd at 0", spectral_norm(jacobian(zero, 0 * x)), predicted=c)
    yield equals("autograd beside 0", spectral_norm(jacobian(zero, x)), predicted=0.0, scale=c)
    yield equals("a secant through 0", (zero(x) - zero(-x)) / (2 * x), predicted=0.0, scale=c)


def unchanged(what: str, before: Tensor, after: Tensor) -> Comparison:
    """Two outputs agree."""
    return equals(what, (before - after).abs().max(), predicted=0.0, scale=before.abs().max())


def products(draw: Draw) -> Found:
    depth, width, t = draw.integer(3, 7), draw.integer(6, 12), draw.decade(1.0, 3.0)
    net, x = BatchNormNet.drawn(draw, depth, width), draw.normal(20, width)
    even = net.rescaled([t * ones(width)] * depth)
    mixed = net.rescaled([10 ** draw.uniform(width, low=0.5, high=3.0) for _ in range(depth)])
    for name, other in (("all × t", even), ("each channel its own", mixed)):
        yield unchanged(f"outputs, {name}", net(x), other(x))
        yield moves(f"P_w, {name}", 10**net.log_weights, 10**other.log_weights)
        yield moves(f"Π1/σ, {name}", 10**net.log_reduction, 10**other.log_reduction)
    yield equals("decades of P_w, all × t", even.log_weights - net.log_weights, predicted=depth * math.log10(t))
    yield equals("decades of Π1/σ, all × t", even.log_reduction - net.log_reduction, predicted=-depth * math.log10(t))
    apart = [n.log_weights + n.log_reduction for n in (net, mixed)]
    yield moves("their product, each channel its own", 10 ** apart[0], 10 ** apart[1])


def folded(draw: Draw) -> Found:
    depth, width = draw.integer(2, 5), draw.integer(5, 10)
    net = BatchNormNet.drawn(draw, depth, width)
    other = net.rescaled([10 ** draw.uniform(width, low=0.5, high=3.0) for _ in range(depth)])
    yield equals("log10 of the folded bound", other.log_folded, predicted=net.log_folded)
    steep = max(spectral_norm(jacobian(net, x)) for x in draw.normal(5, width))
    yield below("log10 of the steepest slope met", math.log10(steep), predicted=net.log_folded)
    naive = net.log_weights + math.log10(spectral_norm(net.head))
    naive += sum(math.log10(float((g / s).max())) for g, s in zip(net.gains, net.sigmas, strict=True))
    yield below("log10 folded, against norms and gains apart", net.log_folded, predicted=naive)
    matrix, gain = draw.normal(4, 6), draw.normal(4)
    layer = spectral_norm(jacobian(lambda v: (matrix @ v) * gain, draw.normal(6)))
    yield equals("one folded layer", layer, predicted=spectral_norm(gain[:, None] * matrix))


def hidden(draw: Draw) -> Found:
    n, depth, t = draw.integer(3, 7), draw.integer(2, 4), draw.decade(1.0, 3.0)
    w, v, x, scale = draw.normal(n, n), draw.normal(n, n), draw.normal(20, n), torch.cat([t * ones(1), ones(n - 1)])
    yield unchanged("outputs of two layers", torch.relu(x @ w.T) @ v.T, torch.relu(x @ w.T * scale) @ (v / scale).T)
    yield moves(
        "product of their norms",
        spectral_norm(w) * spectral_norm(v),
        spectral_norm(scale[:, None] * w) * spectral_norm(v / scale),
    )
    blocks = [(draw.normal(n, n), draw.normal(n, n)) for _ in range(depth)]
    d = 10 ** torch.linspace(-1.5, 1.5, n, dtype=torch.float64)
    moved = [(a / d, d[:, None] * b) for a, b in blocks]

    def run(first: Tensor, layers: list[tuple[Tensor, Tensor]], last: Tensor) -> tuple[Tensor, float]:
        h = x @ first.T
        for a, b in layers:
            h = h + torch.relu(h @ a.T) @ b.T
        return h @ last.T, spectral_norm(first) * spectral_norm(last) * math.prod(
            1 + spectral_norm(a) * spectral_norm(b) for a, b in layers
        )

    (before, bound), (after, other_bound) = run(w, blocks, v), run(d[:, None] * w, moved, v / d)
    yield unchanged("outputs of a residual net", before, after)
    yield moves("its bound", bound, other_bound)


def balanced(draw: Draw) -> Found:
    a, b = draw.uniform(2, draw.integer(2, 6), low=0.3, high=3.0)
    t = 10 ** torch.linspace(-1, 1, len(a), dtype=torch.float64)  # t² spans more than a/b can: never balanced by chance
    first, last = (t * a)[:, None], (b / t)[None]
    net = OneStep(lambda x: F.linear(torch.relu(F.linear(x, first)), last))
    reading, exact = gauge(net, ones(1, 1), scope="global", search=False), math.log10(float(a @ b))
    yield equals("log10 of the balanced bound, rescaled", reading.log10_upper, predicted=exact, scale=1.0, rel=2e-3)
    yield shown("the folded bound is above it", reading.log10_folded > exact + 1e-3)
    yield equals("slope at a positive input", a @ b, predicted=10**reading.log10_lower, rel=1e-6)


def shift(draw: Draw) -> Found:
    n, width = draw.integer(3, 8), draw.integer(3, 8)
    w, x, center = draw.normal(width, n), draw.normal(20, n), eye(width) - 1 / width
    other = w + 100 * draw.normal(n)
    yield unchanged("outputs", F.layer_norm(x @ w.T, (width,)), F.layer_norm(x @ other.T, (width,)))
    yield moves("‖W‖", spectral_norm(w), spectral_norm(other))
    yield equals("‖PW‖", spectral_norm(center @ other), predicted=spectral_norm(center @ w))
    sigma = math.sqrt(float((w @ x[0]).var(correction=0)) + 1e-5)
    found = spectral_norm(jacobian(lambda v: F.layer_norm(w @ v, (width,)), x[0]))
    yield below("slope of both together", found, predicted=spectral_norm(center @ w) / sigma)


def gamma(draw: Draw) -> Found:
    n = draw.integer(4, 12)
    w, x, g = draw.normal(n, n), draw.normal(n), draw.uniform(n, low=0.5, high=5.0)
    sigma = math.sqrt(float(x.var(correction=0)) + 1e-5)
    found = spectral_norm(jacobian(lambda v: w @ F.layer_norm(v, (n,), g), x))
    yield below("slope of both together", found, predicted=spectral_norm(w * g) / sigma)
    yield below("folded, against apart", spectral_norm(w * g), predicted=spectral_norm(w) * float(g.max()))
    yield equals("folded, equal γ", spectral_norm(w * g[0]), predicted=spectral_norm(w) * float(g[0]))
    wide, spike = draw.normal(256, 256) / 16, torch.cat([20 * ones(1), ones(255)])
    yield below(
        "one γ of 20 among 256, folded over apart",
        spectral_norm(wide * spike) / (20 * spectral_norm(wide)),
        predicted=0.6,
    )


def covariance(draw: Draw) -> Found:
    n, out = draw.integer(2, 8), draw.integer(2, 8)
    data, w = draw.normal(3 * n, n) @ draw.normal(n, n), 10 ** draw.uniform(1, low=-3.0, high=3.0) * draw.normal(out, n)
    values, vectors = torch.linalg.eigh(torch.cov(data.T, correction=0))
    spread = (data @ w.T).std(0, correction=0)  # what BatchNorm divides by, from the data
    size, rows = spectral_norm(w / spread[:, None]), float((w.norm(dim=1) / spread).max())
    yield below("λ_max^(−½)", float(values[-1]) ** -0.5, predicted=rows)
    yield below("largest row of Ŵ", rows, predicted=size)
    yield below("‖Ŵ‖", size, predicted=math.sqrt(out) * float(values.min()) ** -0.5)
    flat, same = eye(n) * math.sqrt(n), draw.normal(1, n).expand(out, n)  # n samples with covariance I about 0
    alike = spectral_norm(same / (flat @ same.T).square().mean(0).sqrt()[:, None])
    yield equals("‖Ŵ‖, equal rows and Σ = I", alike, predicted=math.sqrt(out))
    for name, i in (("smallest", 0), ("largest", -1)):
        one = vectors[:, i].norm() / (data @ vectors[:, i]).std(correction=0)
        yield equals(f"one row along the {name} eigenvector", one, predicted=float(values[i]) ** -0.5, rel=1e-6)


def border(draw: Draw) -> Found:
    c, n = draw.integer(1, 3), draw.integer(4, 6)
    kernel, gain, shifts = draw.normal(2, c, 3, 3), draw.uniform(c, 1, 1, low=0.5, high=2.0), draw.normal(c, 1, 1) + 2
    x = draw.normal(1, c, n, n)
    after = F.conv2d(x * gain + shifts, kernel, padding=1)
    both = F.conv2d(x, kernel * gain, padding=1) + F.conv2d(shifts.expand(c, 3, 3), kernel)
    yield unchanged("outputs inside, all folded", after[..., 1:-1, 1:-1], both[..., 1:-1, 1:-1])
    yield shown("outputs at the border differ", bool(((after - both).abs().amax((0, 1)) > 1e-3)[0].any()))
    apart = spectral_norm(jacobian(lambda v: F.conv2d(v * gain + shifts, kernel, padding=1), x))
    yield equals("constant, gains folded", apart, predicted=square(kernel * gain, n))


def cap(draw: Draw) -> Found:
    n, (size,) = draw.integer(3, 9), draw.numbers(1, 0.0, 5.0)
    head, g, w, center = draw.normal(3, n), draw.uniform(n, low=0.5, high=2.0), draw.normal(n, n), eye(n) - 1 / n
    out = F.layer_norm(10**size * draw.normal(40, n) @ w.T, (n,), g) @ head.T
    bound = spectral_norm(head) * 2 * math.sqrt(n) * float(g.max())
    yield below("largest distance of 40 outputs", torch.cdist(out, out).max(), predicted=bound)
    lead = torch.linalg.svd(head @ center).Vh[0]
    ends = F.layer_norm(torch.stack([1e4 * lead, -1e4 * lead]), (n,)) @ head.T
    exact = spectral_norm(head @ center) * 2 * math.sqrt(n)
    yield equals("opposite inputs along its leading direction", ends.diff(dim=0).norm(), predicted=exact, rel=1e-6)


def dense(linear: Map, *shape: int) -> Tensor:
    """The matrix of a linear map of tensors of a shape: its images of the basis, as columns."""
    return linear(eye(math.prod(shape)).reshape(-1, *shape)).flatten(1).T


def square(kernel: Tensor, n: int, mode: str = "constant", stride: int = 1, dilation: int = 1) -> float:
    """The norm of a convolution on n×n pixels, padded by ``dilation`` on every side."""
    return spectral_norm(dense(lambda x: F.conv2d(F.pad(x, (dilation,) * 4, mode), kernel, None, stride, 0, dilation),
                      kernel.shape[1], n, n))  # fmt: skip


def symbols(kernel: Tensor, n: int) -> Tensor:
    """K̂(ω) at the n×n frequencies, (n, n, out, in)."""
    return torch.fft.fft2(kernel, s=(n, n)).permute(2, 3, 0, 1)


def circ(kernel: Tensor, n: int) -> float:
    """max over the n×n frequencies of ‖K̂(ω)‖."""
    return float(torch.linalg.matrix_norm(symbols(kernel, n), 2).max())


def drawn(draw: Draw) -> Tensor:
    """A random kernel of one to three channels."""
    return draw.normal(draw.integer(1, 4), draw.integer(1, 4), 3, 3)


def conv_zeropad(draw: Draw) -> Found:
    kernel, n = drawn(draw), draw.integer(3, 9)
    yield below("norm", square(kernel, n), predicted=circ(kernel, n + 2))
    x, s = draw.normal(kernel.shape[1], n, n), draw.integer(1, 3)
    yield ruled("norm, by the rule", lambda t: F.conv2d(t, kernel, padding=1, stride=s), x)
    yield ruled("transposed", lambda t: F.conv_transpose2d(t, kernel.transpose(0, 1), padding=1, stride=s), x)
    tap = F.pad(kernel[:, :, 1:2, 1:2], (1,) * 4)
    yield equals("norm of a kernel with one tap", square(tap, n), predicted=circ(tap, n + 2))


def conv_size(draw: Draw) -> Found:
    n, (scale,) = 2 * draw.integer(1, 5) + 1, draw.numbers(1, 0.2, 5.0)
    taps = torch.tensor([-1.0, 2.0, -1.0], dtype=torch.float64)
    one = torch.outer(taps, taps)[None, None]
    truth, closed = square(scale * one, n), scale * (2 + 2 * math.cos(math.pi / (n + 1))) ** 2
    yield equals("norm with zero padding", truth, predicted=closed)
    yield equals("circular norm on n", circ(scale * one, n), predicted=scale * (2 + 2 * math.cos(math.pi / n)) ** 2)
    yield shown("the former is above the latter", truth > 1.001 * circ(scale * one, n))
    yield below("norm with zero padding, against the circular one on n + 2", truth, predicted=circ(scale * one, n + 2))


def conv_symbol(draw: Draw) -> Found:
    kernel, n, turn = drawn(draw), 2 * draw.integer(2, 6), torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    between = math.cos(math.pi / n) ** -2  # 1/cos²(π(k−1)/(2N)) for k = 3
    yield below("largest symbol on a fine grid", circ(kernel, 60), predicted=circ(kernel, n) * between)
    ahead, back = (math.cos(math.pi / n) * eye(2) + sign * math.sin(math.pi / n) * turn for sign in (1, -1))
    line = torch.stack([back / 2, 0 * turn, ahead / 2], -1)  # turns act as e^{±iπ/N}
    extremal = torch.einsum("abi,cdj->acbdij", line, line).reshape(4, 4, 3, 3)
    top = circ(extremal, 4 * n)  # contains ω = π/N
    yield equals("fine over coarse, extremal kernel", top / circ(extremal, n), predicted=between)


def conv_circular(draw: Draw) -> Found:
    kernel, s = drawn(draw), draw.integer(2, 4)
    n = s * draw.integer(2, 4)
    yield equals("norm", square(kernel, n, "circular"), predicted=circ(kernel, n))
    yield equals("norm, strided", square(kernel, n, "circular", stride=s), predicted=aliased(kernel, n, s))
    yield below("strided with zero padding", square(kernel, n - 2, stride=s), predicted=aliased(kernel, n, s))


def aliased(kernel: Tensor, n: int, s: int) -> float:
    """The formula with the aliased frequencies side by side."""
    parts = [part for rows in symbols(kernel, n).chunk(s, 0) for part in rows.chunk(s, 1)]
    return float(torch.linalg.matrix_norm(torch.cat(parts, -1), 2).max()) / s


def conv_layouts(draw: Draw) -> Found:
    kernel, d, s = drawn(draw), draw.integer(2, 4), draw.integer(1, 3)
    n, spread = draw.integer(2 * d + 1, 2 * d + 4), 0 * ones(*kernel.shape[:2], 2 * d + 1, 2 * d + 1)
    spread[..., ::d, ::d] = kernel
    around = square(kernel, n, "circular", dilation=d)
    yield equals("norm, dilated and circular", around, predicted=circ(spread, n))
    yield below("dilated, zero padding", square(kernel, n, dilation=d), predicted=circ(spread, n + 2 * d))
    groups, inside, out = draw.integer(2, 5), draw.integer(1, 3), draw.integer(1, 3)
    parts = [size * draw.normal(out, inside, 3, 3) for size in draw.numbers(groups)]
    whole = spectral_norm(
        dense(partial(F.conv2d, weight=torch.cat(parts), padding=1, groups=groups), groups * inside, n, n)
    )
    yield equals("norm in groups", whole, predicted=max(square(part, n) for part in parts))
    up = dense(lambda x: F.conv_transpose2d(x, kernel, stride=s, padding=1), kernel.shape[0], n, n)
    side = math.isqrt(up.shape[0] // kernel.shape[1])
    down = dense(lambda x: F.conv2d(x, kernel, stride=s, padding=1), kernel.shape[1], side, side)
    yield equals("norm, transposed", spectral_norm(up), predicted=spectral_norm(down))
    yield equals("adjoint, entry by entry", (up - down.T).abs().max(), predicted=0.0, scale=spectral_norm(down))


def conv_bounds(draw: Draw) -> Found:
    kernel, n, even = drawn(draw), draw.integer(5, 9), ones(1, 1, 3, 3)
    yield below("norm, reflecting", square(kernel, n, "reflect"), predicted=2 * circ(kernel, 60))
    yield shown("a kernel of ones exceeds its symbol", square(even, n, "reflect") > 1.001 * circ(even, 60))
    yield equals("norm of the padding alone", square(ones(1, 1, 1, 1), n, "reflect"), predicted=2.0)
    yield below("the reshaped kernel's norm", spectral_norm(kernel.flatten(1)), predicted=square(kernel, n))
    yield below("norm", square(kernel, n), predicted=3 * spectral_norm(kernel.flatten(1)))
    yield equals(
        "norm of a kernel of ones, circular", square(even, n, "circular"), predicted=3 * spectral_norm(even.flatten(1))
    )

"""Checks: layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve, Finding
from normgauge.core.interval import LogInterval
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.nets import BatchNormNet
from normgauge.spectral.conv import conv_norm
from normgauge.spectral.conv_operator import ConvSpec


def add(draw: Draw) -> Found:
    n, c = draw.integer(3, 9), float(draw.uniform(1, low=0.1, high=3.0))
    w, v = draw.normal(n, n), draw.normal(n, n)
    x = draw.normal(n)
    yield below("‖I + W‖", norm(torch.eye(n, dtype=torch.float64) + w), predicted=1 + norm(w))
    yield equal("x + c·x", norm(jacobian(lambda t: t + c * t, x)), predicted=1 + c)
    yield below("x − f(x)", norm(jacobian(lambda t: w @ t - v @ t, x)), predicted=norm(w) + norm(v))
    copies = draw.integer(2, 6)
    yield equal(
        "a row added to many rows",
        norm(jacobian(lambda t: torch.zeros(copies, n).double() + t, x)),
        predicted=math.sqrt(copies),
    )
    yield equal("(x, c·x)", norm(jacobian(lambda t: torch.cat([t, c * t]), x)), predicted=math.hypot(1, c))


def maximum(draw: Draw) -> Found:
    n = draw.integer(2, 8)
    w, v, x = draw.normal(n, n), draw.normal(n, n), draw.normal(n)
    found = norm(jacobian(lambda t: torch.maximum(w @ t, v @ t), x))
    yield below("constant", found, predicted=math.hypot(norm(w), norm(v)))
    a, b = (float(t) for t in draw.uniform(2, low=0.5, high=3.0))
    offsets = torch.tensor([[10.0, -10.0], [-10.0, 10.0]], dtype=torch.float64)
    rows = torch.tensor([[[a], [0.0]], [[0.0], [b]]], dtype=torch.float64)
    both = norm(jacobian(lambda t: torch.maximum(rows[0] @ t + offsets[0], rows[1] @ t + offsets[1]), draw.uniform(1)))
    yield equal("one entry from each", both, predicted=math.hypot(a, b))


def multiply(draw: Draw) -> Found:
    n, k = draw.integer(3, 8), draw.integer(2, 8)
    w, v, x = draw.normal(n, n), draw.normal(n, n), draw.normal(n)
    a, b = w @ x, v @ x
    found = norm(jacobian(lambda t: (w @ t) * (v @ t), x))
    yield below("constant", found, predicted=product_bound(norm(w), norm(v), a, b))
    yield equal("x·x", norm(jacobian(lambda t: t * t, x)), predicted=product_bound(1.0, 1.0, x, x))
    c = float(draw.uniform(1, low=-3.0, high=-0.5))
    yield equal("x·(c·x)", norm(jacobian(lambda t: t * (c * t), x)), predicted=product_bound(1.0, abs(c), x, c * x))
    gate = norm(jacobian(lambda t: t * torch.ones(k, k, dtype=torch.float64), draw.normal(1)))
    yield equal("a gate on k×k ones", gate, predicted=float(k))
    yield refutes("the same, against the largest entry", gate, published=1.0)
    yield equal("a constant factor", norm(jacobian(lambda t: t * a, x)), predicted=float(a.abs().max()))


def product_bound(slope_a: float, slope_b: float, a: Tensor, b: Tensor) -> float:
    """L_a·sup|b| + sup|a|·L_b."""
    return slope_a * float(b.abs().max()) + slope_b * float(a.abs().max())


def quotient_bound(slope_a: float, slope_b: float, a: Tensor, b: Tensor) -> float:
    """L_a/inf|b| + sup|a|·L_b/inf b²."""
    low = float(b.abs().min())
    return slope_a / low + float(a.abs().max()) * slope_b / low**2


def divide(draw: Draw) -> Found:
    n = draw.integer(2, 7)
    w, v, x = draw.normal(n, n), draw.normal(n, n), draw.normal(n)
    a, b = w @ x, (v @ x).abs() + 1
    found = norm(jacobian(lambda t: (w @ t) / ((v @ t).abs() + 1), x))
    yield below("constant", found, predicted=quotient_bound(norm(w), norm(v), a, b))
    top, bottom, c = (draw.uniform(1, low=0.5, high=3.0) for _ in range(3))
    aligned = norm(jacobian(lambda t: (t - top) / (bottom + c * t), torch.zeros(1)))
    yield equal("(t − a)/(b + c·t) at 0", aligned, predicted=quotient_bound(1.0, float(c), -top, bottom))
    steep = norm(jacobian(lambda t: 1 / t, torch.tensor([1e-4], dtype=torch.float64)))
    yield exceeds("1/b at 10⁻⁴, against that at 1", steep, published=1.0)


def reduce(draw: Draw) -> Found:
    n = draw.integer(2, 20)
    x = draw.normal(n)
    table = {
        "sum": (torch.sum, math.sqrt(n)),
        "mean": (torch.mean, 1 / math.sqrt(n)),
        "largest entry": (torch.amax, 1.0),
        "ℓ2 norm": (torch.linalg.vector_norm, 1.0),
        "standard deviation": (lambda t: t.std(), 1 / math.sqrt(n - 1)),
        "biased one": (lambda t: t.std(correction=0), 1 / math.sqrt(n)),
    }
    for name, (function, constant) in table.items():
        yield equal(name, norm(jacobian(function, x)), predicted=constant)


def matmul(draw: Draw) -> Found:
    n, batch = draw.integer(2, 4), draw.integer(2, 4)
    a, b, fixed = draw.normal(n, n), draw.normal(n, n), draw.normal(batch, n, n)
    found = norm(jacobian(lambda t: t @ fixed, draw.normal(batch, n, n)))
    yield equal("constant factor, in a batch", found, predicted=max(norm(c) for c in fixed))
    moved = norm(jacobian(lambda t: (a + t) @ (b + t), torch.zeros(n, n)))
    yield below("(A+T)(B+T) at T = 0", moved, predicted=norm(a) + norm(b))
    scale = float(draw.uniform(1, low=0.5, high=3.0))
    eye = scale * torch.eye(n, dtype=torch.float64)
    yield equal("A² at c·I", norm(jacobian(lambda t: t @ t, eye)), predicted=2 * scale)
    yield equal("einsum, the same", norm(jacobian(lambda t: torch.einsum("ij,jk->ik", t, t), eye)), predicted=2 * scale)
    alpha, beta = (float(t) for t in draw.uniform(2, low=0.5, high=3.0))
    mixed = norm(jacobian(lambda t: torch.addmm(t, t, eye, beta=beta, alpha=alpha), draw.normal(n, n)))
    yield equal("β·T + α·T·cI", mixed, predicted=beta + alpha * scale)


def bilinear(draw: Draw) -> Found:
    n, m, out = draw.integer(2, 5), draw.integer(2, 5), draw.integer(1, 4)
    w, a, b = draw.normal(out, n, m), draw.normal(n), draw.normal(m)
    size = min(norm(w.permute(1, 0, 2).flatten(1)), norm(w.permute(2, 0, 1).flatten(1)))

    def run(t: Tensor, tensor: Tensor) -> Tensor:
        return torch.einsum("i,kij,j->k", t[:n], tensor, t[n:])

    x = torch.cat([a, b])
    found = norm(jacobian(lambda t: run(t, w), x)[:, :n])
    yield below("constant in a", found, predicted=size * float(b.norm()))
    line = torch.einsum("i,j->ij", a / a.norm(), b / b.norm())[None]
    exact = norm(jacobian(lambda t: run(t, line), x)[:, :n])
    yield equal("constant in a, rank one", exact, predicted=float(b.norm()))
    other = norm(jacobian(lambda t: run(t, line), x)[:, n:])
    yield equal("constant in b, rank one", other, predicted=float(a.norm()))


def cumsum(draw: Draw) -> Found:
    n = draw.integer(2, 40)
    truth = norm(dense(lambda x: x.cumsum(1), n))
    yield equal("norm", truth, predicted=1 / (2 * math.sin(math.pi / (4 * n + 2))))


def fourier(draw: Draw) -> Found:
    n = draw.integer(3, 12)
    basis = torch.eye(n, dtype=torch.float64)
    images = {"fft": (torch.fft.fft(basis), 0.5), "rfft": (torch.fft.rfft(basis), 0.5)}
    for name, (image, power) in {**images, "ifft": (torch.fft.ifft(basis), -0.5)}.items():
        yield equal(name, norm(torch.view_as_real(image.resolve_conj()).flatten(1)), predicted=n**power)
    half = norm(dense(lambda x: torch.fft.irfft(torch.view_as_complex(x), n), n // 2 + 1, 2))
    yield equal("irfft", half, predicted=math.sqrt(2 / n))
    turn = norm(dense(lambda x: torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()), n, 2))
    yield equal("conjugate", turn, predicted=1.0)


def scalar(draw: Draw) -> Found:
    x = torch.linspace(-30, 30, 60_001, dtype=torch.float64, requires_grad=True)
    functions = {"x/(1+x²)": (x / (1 + x * x), 1.0), "1/(1+e^(−x))": (1 / (1 + torch.exp(-x)), 0.25)}
    for name, (y, predicted) in functions.items():
        (slope,) = torch.autograd.grad(y.sum(), x)
        yield equal(name, float(slope.abs().max()), predicted=predicted, rel=1e-6)
    gamma, n = float(draw.uniform(1, low=0.1, high=3.0)), draw.integer(2, 6)
    lengths = torch.linspace(0.5, 1.5, 201, dtype=torch.float64) / math.sqrt(2 * gamma)
    centre = draw.normal(n)
    found = max(
        norm(jacobian(lambda t: torch.exp(-gamma * t.square().sum())[None], r * centre / centre.norm()))
        for r in lengths
    )
    yield equal("exp(−γ‖x‖²)", found, predicted=math.sqrt(2 * gamma / math.e), rel=1e-4)


def grn(draw: Draw) -> Found:
    places, channels = draw.integer(1, 5), draw.integer(2, 6)

    def run(t: Tensor) -> Tensor:
        x = t.reshape(places, channels)
        g = x.norm(dim=0, keepdim=True)
        return x * (g / (g.mean(-1, keepdim=True) + 1e-6))

    scales = 10 ** draw.uniform(8 * channels, low=-2.0, high=1.0).reshape(8, 1, channels)
    points = draw.normal(8 * places * channels).reshape(8, places, channels) * scales
    found = max(norm(jacobian(run, point.flatten())) for point in points)
    yield below("constant", found, predicted=2 * channels + channels**1.5)


def log(draw: Draw) -> Found:
    layers = draw.integer(40, 80)
    gains = draw.uniform(layers, low=1e7, high=1e9)
    yield shown("the product in float64 is infinite", math.isinf(float(gains.prod())))
    total = LogInterval(0.0, 0.0)
    for g in gains.tolist():
        total = total * LogInterval(math.log(g), math.log(g))
    exact = float(gains.log10().sum())
    yield equal("decades kept", total.hi / math.log(10), predicted=exact)
    yield below("its lower end", total.lo / math.log(10), predicted=exact)
    fifty = float(torch.logaddexp(torch.zeros((), dtype=torch.float64), torch.tensor(50 * math.log(10)).double()))
    yield equal("decades of 1 + 10^50", fifty / math.log(10), predicted=50.0, rel=1e-7)
    yield shown("10^39 in float32 is infinite", bool(torch.tensor(1e39, dtype=torch.float32).isinf()))


def lower_power(draw: Draw) -> Found:
    n, k = draw.integer(4, 9), draw.integer(2, 4)
    weights, x = [draw.normal(n, n) for _ in range(k)], draw.normal(n)

    def net(t: Tensor) -> Tensor:
        for w in weights:
            t = torch.tanh(w @ t)
        return t

    matrix = jacobian(net, x)
    v, found = draw.normal(n), []
    for _ in range(30):
        v = v / v.norm()
        image, v = forth_and_back(net, x, v)
        found.append(float(image.norm()))
    yield below("largest found", max(found), predicted=norm(matrix))
    left, right = draw.orthogonal(n), draw.orthogonal(n)
    values = torch.linspace(0.1, 0.6, n, dtype=torch.float64)
    values[-1] = 1.0
    gapped, v = left * values @ right, draw.normal(n)
    for _ in range(30):
        v = gapped.T @ (gapped @ (v / v.norm()))
    yield equal("norm found in 30 steps, values .6 and 1", math.sqrt(float(v.norm())), predicted=1.0, rel=1e-6)


def forth_and_back(net: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Jv, as the derivative of Jᵀu in u, and JᵀJv."""
    point, u = x.clone().requires_grad_(), torch.zeros_like(x).requires_grad_()
    (back,) = torch.autograd.grad((net(point) * u).sum(), point, create_graph=True)
    (image,) = torch.autograd.grad((back * v).sum(), u)
    return image, torch.autograd.grad((net(point) * image).sum(), point)[0]


def lower_kink(draw: Draw) -> Found:
    c = float(draw.uniform(1, low=1.0, high=200.0))

    def zero(t: Tensor) -> Tensor:
        return c * (t - torch.relu(t) + torch.relu(-t))

    x = draw.normal(1)
    yield refutes(
        "its slope, by secants",
        float((zero(x) - zero(-x)).abs() / (2 * x.abs())),
        published=norm(jacobian(zero, 0 * x)),
    )
    yield equal("autograd at 0", norm(jacobian(zero, 0 * x)), predicted=c)
    yield equal("autograd beside 0", norm(jacobian(zero, x)), predicted=0.0, scale=c)


def lower_secant(draw: Draw) -> Found:
    n = draw.integer(3, 9)
    w, v = draw.normal(n, n), draw.normal(n, n)
    x, y = draw.normal(30, n), draw.normal(30, n)
    slopes = (torch.relu(x @ w.T) @ v.T - torch.relu(y @ w.T) @ v.T).norm(dim=1) / (x - y).norm(dim=1)
    yield below("steepest of 30 secants", float(slopes.max()), predicted=norm(w) * norm(v))
    lead = torch.linalg.svd(w).Vh[0]
    yield equal("secant along the leading direction", float((w @ (x[0] + lead) - w @ x[0]).norm()), predicted=norm(w))


def unchanged(what: str, before: Tensor, after: Tensor) -> Finding:
    """Two outputs agree."""
    return equal(what, float((before - after).abs().max()), predicted=0.0, scale=float(before.abs().max()))


def products(draw: Draw) -> Found:
    depth, width = draw.integer(3, 7), draw.integer(6, 12)
    net, x = BatchNormNet.drawn(draw, depth, width), draw.normal(20, width)
    t = 10 ** float(draw.uniform(1, low=1.0, high=3.0))
    even = net.rescaled([torch.full((width,), t, dtype=torch.float64)] * depth)
    mixed = net.rescaled([10 ** draw.uniform(width, low=0.5, high=3.0) for _ in range(depth)])
    for name, other in (("all × t", even), ("each channel its own", mixed)):
        yield unchanged(f"outputs, {name}", net(x), other(x))
        yield moves(f"P_w, {name}", 10**net.log_weights, 10**other.log_weights)
        yield moves(f"Π1/σ, {name}", 10**net.log_reduction, 10**other.log_reduction)
    yield equal("decades of P_w, all × t", even.log_weights - net.log_weights, predicted=depth * math.log10(t))
    yield equal("decades of Π1/σ, all × t", even.log_reduction - net.log_reduction, predicted=-depth * math.log10(t))
    apart = [n.log_weights + n.log_reduction for n in (net, mixed)]
    yield moves("their product, each channel its own", 10 ** apart[0], 10 ** apart[1])


def folded(draw: Draw) -> Found:
    depth, width = draw.integer(2, 5), draw.integer(5, 10)
    net = BatchNormNet.drawn(draw, depth, width)
    other = net.rescaled([10 ** draw.uniform(width, low=0.5, high=3.0) for _ in range(depth)])
    yield equal("log10 of the folded bound", other.log_folded, predicted=net.log_folded)
    steepest = max(norm(jacobian(net, x)) for x in draw.normal(5, width))
    yield below("log10 of the steepest slope met", math.log10(steepest), predicted=net.log_folded)
    naive = net.log_weights + math.log10(norm(net.head))
    naive += sum(math.log10(float((g / s).max())) for g, s in zip(net.gains, net.sigmas, strict=True))
    yield below("log10 folded, against norms and gains apart", net.log_folded, predicted=naive)
    matrix, gain = draw.normal(4, 6), draw.normal(4)
    layer = norm(jacobian(lambda v: (matrix @ v) * gain, draw.normal(6)))
    yield equal("one folded layer", layer, predicted=norm(gain[:, None] * matrix))


def relu_pair(draw: Draw) -> Found:
    n, width = draw.integer(3, 7), draw.integer(3, 7)
    w, v, x = draw.normal(width, n), draw.normal(n, width), draw.normal(20, n)
    t = 10 ** float(draw.uniform(1, low=1.0, high=3.0))
    scale = torch.ones(width, dtype=torch.float64)
    scale[0] = t
    other = (scale[:, None] * w, v / scale)
    yield unchanged("outputs", torch.relu(x @ w.T) @ v.T, torch.relu(x @ other[0].T) @ other[1].T)
    yield moves("product of the norms", norm(w) * norm(v), norm(other[0]) * norm(other[1]))


def stream(draw: Draw) -> Found:
    n, depth = draw.integer(3, 6), draw.integer(2, 4)
    first, last = draw.normal(n, n), draw.normal(n, n)
    blocks = [(draw.normal(n, n), draw.normal(n, n)) for _ in range(depth)]
    d = 10 ** torch.linspace(-1.5, 1.5, n, dtype=torch.float64)
    moved = [(w / d, d[:, None] * v) for w, v in blocks]

    def run(x: Tensor, a: Tensor, layers: list[tuple[Tensor, Tensor]], b: Tensor) -> Tensor:
        h = x @ a.T
        for w, v in layers:
            h = h + torch.relu(h @ w.T) @ v.T
        return h @ b.T

    def bound(a: Tensor, layers: list[tuple[Tensor, Tensor]], b: Tensor) -> float:
        return norm(a) * norm(b) * math.prod(1 + norm(w) * norm(v) for w, v in layers)

    x = draw.normal(10, n)
    yield unchanged("outputs", run(x, first, blocks, last), run(x, d[:, None] * first, moved, last / d))
    yield moves("bound of the residual net", bound(first, blocks, last), bound(d[:, None] * first, moved, last / d))


def balanced(draw: Draw) -> Found:
    from normgauge.measure import gauge

    n = draw.integer(2, 6)
    a, b = draw.uniform(n, low=0.3, high=3.0), draw.uniform(n, low=0.3, high=3.0)
    t = 10 ** torch.linspace(-1, 1, n, dtype=torch.float64)  # t² spans more than a/b can: never balanced by chance
    with torch.random.fork_rng(devices=[]):
        first, last = nn.Linear(1, n, bias=False), nn.Linear(n, 1, bias=False)
    first.weight = nn.Parameter((t * a)[:, None])
    last.weight = nn.Parameter((b / t)[None])
    reading = gauge(nn.Sequential(first, nn.ReLU(), last), torch.ones(1, 1, dtype=torch.float64), search=False)
    exact = math.log10(float(a @ b))
    yield equal("log10 of the balanced bound, rescaled", reading.log10_upper, predicted=exact, scale=1.0, rel=2e-3)
    yield exceeds("the folded bound there, against the balanced one", 10**reading.log10_folded, published=10**exact)
    yield equal("slope at a positive input", float(b @ a), predicted=10**reading.log10_lower, rel=1e-6)


def shift(draw: Draw) -> Found:
    n, width = draw.integer(3, 8), draw.integer(3, 8)
    w, x = draw.normal(width, n), draw.normal(20, n)
    other = w + 100 * draw.normal(n)
    center = torch.eye(width, dtype=torch.float64) - 1 / width
    yield unchanged("outputs", F.layer_norm(x @ w.T, (width,)), F.layer_norm(x @ other.T, (width,)))
    yield moves("‖W‖", norm(w), norm(other))
    yield equal("‖PW‖", norm(center @ other), predicted=norm(center @ w))
    point = draw.normal(n)
    sigma = math.sqrt(float((w @ point).var(correction=0)) + 1e-5)
    found = norm(jacobian(lambda v: F.layer_norm(w @ v, (width,)), point))
    yield below("slope of both together", found, predicted=norm(center @ w) / sigma)


def gamma(draw: Draw) -> Found:
    n = draw.integer(4, 12)
    w, x, g = draw.normal(n, n), draw.normal(n), draw.uniform(n, low=0.5, high=5.0)
    sigma = math.sqrt(float(x.var(correction=0)) + 1e-5)
    found = norm(jacobian(lambda v: w @ F.layer_norm(v, (n,), g), x))
    yield below("slope of both together", found, predicted=norm(w * g) / sigma)
    yield below("folded, against apart", norm(w * g), predicted=norm(w) * float(g.max()))
    same = float(g[0])
    yield equal("folded over apart, equal γ", norm(w * same) / (norm(w) * same), predicted=1.0)
    spike = torch.ones(256, dtype=torch.float64)
    spike[0] = 20.0
    wide = draw.normal(16, 256) / 16
    column = 20 * float(wide[:, 0].norm())
    yield below("one γ of 20 among 256, folded", norm(wide * spike), predicted=math.hypot(column, norm(wide)))
    yield refutes("the same, over max|γ|·‖W‖", norm(wide * spike) / (20 * norm(wide)), published=1.0)


def covariance(draw: Draw) -> Found:
    n, out = draw.integer(2, 8), draw.integer(2, 8)
    data, w = (
        draw.normal(3 * n, n) @ draw.normal(n, n),
        10 ** float(draw.uniform(1, low=-3.0, high=3.0)) * draw.normal(out, n),
    )
    sigma = torch.cov(data.T, correction=0)
    values, vectors = torch.linalg.eigh(sigma)
    spread = (data @ w.T).std(0, correction=0)  # what BatchNorm divides by, from the data
    size = norm(w / spread[:, None])
    rows = float((w.norm(dim=1) / spread).max())
    yield below("λ_max^(−½)", float(values[-1]) ** -0.5, predicted=rows)
    yield below("largest row of Ŵ", rows, predicted=size)
    yield below("‖Ŵ‖", size, predicted=math.sqrt(out) * float(values.min()) ** -0.5)
    flat = torch.eye(n, dtype=torch.float64) * math.sqrt(n)  # n samples with covariance I about 0
    same = draw.normal(1, n).expand(out, n)
    alike = norm(same / (flat @ same.T).square().mean(0).sqrt()[:, None])
    yield equal("‖Ŵ‖, equal rows and Σ = I", alike, predicted=math.sqrt(out))
    for name, i in (("smallest", 0), ("largest", -1)):
        row = vectors[:, i]
        one = float(row.norm() / (data @ row).std(correction=0))
        yield equal(f"one row along the {name} eigenvector", one, predicted=float(values[i]) ** -0.5, rel=1e-6)


def border(draw: Draw) -> Found:
    c, n = draw.integer(1, 3), draw.integer(4, 6)
    kernel, gain, shifts = draw.normal(2, c, 3, 3), draw.uniform(c, low=0.5, high=2.0), draw.normal(c) + 2
    x = draw.normal(1, c, n, n)
    after = F.conv2d(x * gain[:, None, None] + shifts[:, None, None], kernel, padding=1)
    both = F.conv2d(x, kernel * gain[:, None, None], padding=1) + (kernel.sum((2, 3)) @ shifts)[:, None, None]
    inner = (slice(None), slice(None), slice(1, -1), slice(1, -1))
    yield unchanged("outputs inside, all folded", after[inner], both[inner])
    yield refutes("largest change of an output at the border", float((after - both).abs().max()), published=0.0)
    slopes = [
        norm(jacobian(f, x))
        for f in (
            lambda v: F.conv2d(v * gain[:, None, None] + shifts[:, None, None], kernel, padding=1),
            lambda v: F.conv2d(v, kernel * gain[:, None, None], padding=1),
        )
    ]
    yield equal("constant, gains folded", slopes[0], predicted=slopes[1])


def cap(draw: Draw) -> Found:
    n = draw.integer(3, 9)
    head, g = draw.normal(3, n), draw.uniform(n, low=0.5, high=2.0)
    w = 10 ** float(draw.uniform(1, low=0.0, high=5.0)) * draw.normal(n, n)
    out = F.layer_norm(10 * draw.normal(40, n) @ w.T, (n,), g) @ head.T
    yield below(
        "largest distance of 40 outputs",
        float(torch.cdist(out, out).max()),
        predicted=norm(head) * 2 * math.sqrt(n) * float(g.max()),
    )
    ones = torch.ones(n, dtype=torch.float64)
    center = torch.eye(n, dtype=torch.float64) - 1 / n
    lead = torch.linalg.svd(head @ center).Vh[0]
    ends = F.layer_norm(torch.stack([1e4 * lead, -1e4 * lead]), (n,), ones) @ head.T
    exact = norm(head @ center) * 2 * math.sqrt(n)
    yield equal(
        "opposite inputs along the leading direction, γ = 1", float(ends.diff(dim=0).norm()), predicted=exact, rel=1e-6
    )


def dense(linear: Callable[[Tensor], Tensor], *shape: int) -> Tensor:
    """The matrix of a linear map of tensors of a shape: its images of the basis, as columns."""
    basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    return linear(basis).flatten(1).T


def circular(kernel: Tensor, x: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    """Convolution with circular padding that keeps the size."""
    reach = (kernel.shape[-1] - 1) * dilation
    return F.conv2d(F.pad(x, (0, reach, 0, reach), mode="circular"), kernel, stride=stride, dilation=dilation)


def symbols(kernel: Tensor, n: int) -> Tensor:
    """K̂(ω) at the n×n frequencies, (n, n, out, in)."""
    return torch.fft.fft2(kernel, s=(n, n)).permute(2, 3, 0, 1)


def circ(kernel: Tensor, n: int) -> float:
    """max over the n×n frequencies of ‖K̂(ω)‖."""
    return float(torch.linalg.matrix_norm(symbols(kernel, n), 2).max())


def drawn(draw: Draw, size: int = 3) -> Tensor:
    """A random kernel of one to three channels."""
    return draw.normal(draw.integer(1, 4), draw.integer(1, 4), size, size)


def conv_circular(draw: Draw) -> Found:
    kernel, n = drawn(draw), draw.integer(3, 9)
    truth = norm(dense(lambda x: circular(kernel, x), kernel.shape[1], n, n))
    yield equal("norm", truth, predicted=circ(kernel, n))


def conv_zeropad(draw: Draw) -> Found:
    kernel, n = drawn(draw), draw.integer(3, 9)
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1), kernel.shape[1], n, n))
    yield below("norm", truth, predicted=circ(kernel, n + 2))
    found = conv_norm(kernel, ConvSpec((n, n), padding=((1, 1), (1, 1)))).log
    yield below("norm, against the enclosure's upper end", truth, predicted=math.exp(found.hi))
    yield below("the enclosure's lower end, against the norm", math.exp(found.lo), predicted=truth)
    tap = torch.zeros_like(kernel)
    tap[:, :, 1, 1] = kernel[:, :, 1, 1]
    exact = norm(dense(lambda x: F.conv2d(x, tap, padding=1), kernel.shape[1], n, n))
    yield equal("norm of a kernel with one tap", exact, predicted=circ(tap, n + 2))
    side = 10 * n
    wide = circ(torch.tensor([[[[1.0, 2.0, 1.0]]]], dtype=torch.float64), side)
    line = norm(dense(lambda x: F.conv2d(x, torch.tensor([[[[1.0, 2.0, 1.0]]]]).double(), padding=(0, 1)), 1, 1, side))
    yield equal("(1, 2, 1) on a long line, against the circular norm", line, predicted=wide, rel=0.02)


def conv_size(draw: Draw) -> Found:
    n, scale = 2 * draw.integer(1, 5) + 1, float(draw.uniform(1, low=0.2, high=5.0))
    taps = torch.tensor([-1.0, 2.0, -1.0], dtype=torch.float64)
    kernel = scale * torch.outer(taps, taps)[None, None]
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1), 1, n, n))
    yield exceeds("norm with zero padding", truth, published=circ(kernel, n))
    yield equal("the same", truth, predicted=scale * (2 + 2 * math.cos(math.pi / (n + 1))) ** 2)
    yield below("the same, against the circular norm on n + 2", truth, predicted=circ(kernel, n + 2))
    sizes = tuple(range(3, 20))
    one = kernel / scale
    lines = (
        ("circular on n", tuple(circ(one, k) for k in sizes)),
        ("zero padding", tuple((2 + 2 * math.cos(math.pi / (k + 1))) ** 2 for k in sizes)),
        ("circular on n + 2", tuple(circ(one, k + 2) for k in sizes)),
    )
    yield Curve("Norm of a second difference on n×n", "n", "norm", sizes, lines)


def rotated(angle: float) -> Tensor:
    """A real 2×2 matrix that acts as e^{iθ}."""
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def conv_symbol(draw: Draw) -> Found:
    kernel, n = drawn(draw), draw.integer(4, 12)
    yield below("largest symbol on a fine grid", circ(kernel, 60), predicted=circ(kernel, n) * between(3, n))
    even = 2 * (n // 2)
    shift = math.pi / even
    line = torch.stack([rotated(-shift) / 2, torch.zeros(2, 2, dtype=torch.float64), rotated(shift) / 2], -1)
    extremal = torch.einsum("abi,cdj->acbdij", line, line).reshape(4, 4, 3, 3)
    top = circ(extremal, 4 * even)  # contains ω = π/N
    yield equal("fine over coarse, extremal kernel", top / circ(extremal, even), predicted=between(3, even))


def between(k: int, n: int) -> float:
    """1/cos²(π(k−1)/(2N)): how much larger a symbol of k×k taps can be between the points of an N×N grid."""
    return math.cos(math.pi * (k - 1) / (2 * n)) ** -2


def conv_stride(draw: Draw) -> Found:
    kernel, s = drawn(draw), draw.integer(2, 4)
    n = s * draw.integer(2, 4)
    truth = norm(dense(lambda x: circular(kernel, x, stride=s), kernel.shape[1], n, n))
    yield equal("norm", truth, predicted=aliased(kernel, n, s))
    inner = n - 2
    cropped = norm(dense(lambda x: F.conv2d(x, kernel, padding=1, stride=s), kernel.shape[1], inner, inner))
    yield below("with zero padding", cropped, predicted=aliased(kernel, n, s))


def aliased(kernel: Tensor, n: int, s: int) -> float:
    """The formula with the aliased frequencies side by side."""
    fine = symbols(kernel, n)
    coarse = n // s
    parts = [fine[a * coarse : (a + 1) * coarse, b * coarse : (b + 1) * coarse] for a in range(s) for b in range(s)]
    return float(torch.linalg.matrix_norm(torch.cat(parts, -1), 2).max()) / s


def conv_dilation(draw: Draw) -> Found:
    kernel, d = drawn(draw), draw.integer(2, 4)
    n = draw.integer(2 * d + 1, 2 * d + 4)
    spread = torch.zeros(*kernel.shape[:2], 2 * d + 1, 2 * d + 1, dtype=torch.float64)
    spread[..., ::d, ::d] = kernel
    truth = norm(dense(lambda x: circular(kernel, x, dilation=d), kernel.shape[1], n, n))
    yield equal("norm, circular", truth, predicted=circ(spread, n))
    zero = norm(dense(lambda x: F.conv2d(x, kernel, padding=d, dilation=d), kernel.shape[1], n, n))
    yield below("norm, zero padding", zero, predicted=circ(spread, n + 2 * d))


def conv_groups(draw: Draw) -> Found:
    groups, inside, out, n = draw.integer(2, 5), draw.integer(1, 3), draw.integer(1, 3), draw.integer(3, 6)
    kernel = (
        draw.normal(groups * out, inside, 3, 3)
        * draw.uniform(groups, low=0.3, high=2.0).repeat_interleave(out)[:, None, None, None]
    )
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1, groups=groups), groups * inside, n, n))
    alone = [norm(dense(partial(F.conv2d, weight=k, padding=1), inside, n, n)) for k in kernel.split(out)]
    yield equal("norm", truth, predicted=max(alone))


def conv_transposed(draw: Draw) -> Found:
    kernel, s, n = drawn(draw), draw.integer(1, 3), draw.integer(3, 6)
    up = dense(lambda x: F.conv_transpose2d(x, kernel, stride=s, padding=1), kernel.shape[0], n, n)
    side = math.isqrt(up.shape[0] // kernel.shape[1])
    down = dense(lambda x: F.conv2d(x, kernel, stride=s, padding=1), kernel.shape[1], side, side)
    yield equal("norm", norm(up), predicted=norm(down))
    yield equal("adjoint, entry by entry", float((up - down.T).abs().max()), predicted=0.0, scale=norm(down))


def conv_reflect(draw: Draw) -> Found:
    kernel, n = drawn(draw), draw.integer(4, 9)

    def reflected(k: Tensor) -> float:
        return norm(dense(lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), k), k.shape[1], n, n))

    yield below("norm", reflected(kernel), predicted=2 * circ(kernel, 60))
    ones = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    yield exceeds("norm of a kernel of ones, against its symbol", reflected(ones), published=circ(ones, 60))
    padding = norm(dense(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), 1, n, n))
    yield equal("norm of the padding alone", padding, predicted=2.0)


def conv_reshaped(draw: Draw) -> Found:
    kernel, n = drawn(draw), draw.integer(5, 9)
    flat = norm(kernel.flatten(1))
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1), kernel.shape[1], n, n))
    yield below("the reshaped kernel's norm", flat, predicted=truth)
    yield below("norm", truth, predicted=3 * flat)
    ones = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    around = norm(dense(lambda x: circular(ones, x), 1, n, n))
    yield exceeds("norm of a kernel of ones, circular", around, published=norm(ones.flatten(1)))
    yield equal("the same", around, predicted=3 * norm(ones.flatten(1)))


def conv_gram(draw: Draw) -> Found:
    rows, columns = draw.integer(20, 60), draw.integer(10, 40)
    matrix, steps = draw.normal(rows, columns), 8
    truth, rank = norm(matrix), min(rows, columns)
    uppers = squared(matrix, steps)
    for t in (1, 4, steps):
        yield below(f"norm, against step {t}", truth, predicted=uppers[t])
        yield below(f"step {t}, against the rank factor", uppers[t], predicted=truth * rank ** (2.0 ** -(t + 1)))
    n = draw.integer(10, 64)
    exact = squared(draw.orthogonal(n), steps)[-1]
    yield equal("step 8 of an orthogonal matrix", exact, predicted=n ** (2.0 ** -(steps + 1)))
    v, powers = draw.normal(columns), []
    for _ in range(steps + 1):
        v = v / v.norm()
        powers.append(float((matrix @ v).norm()))
        v = matrix.T @ (matrix @ v)
    yield below("power iteration, against the norm", max(powers), predicted=truth)
    lines = (("Gram", tuple(u / truth for u in uppers)), ("power iteration", tuple(p / truth for p in powers)))
    yield Curve("Norm found over true norm", "steps", "ratio", tuple(range(steps + 1)), lines)


def squared(matrix: Tensor, steps: int) -> list[float]:
    """‖M_t‖_F^(2^−t) for t = 0 … steps, kept in range by a running logarithm."""
    log, found = 0.0, []
    for t in range(steps + 1):
        size = float(matrix.norm())
        found.append(math.exp((log + math.log(size)) * 2.0**-t))
        matrix = matrix / size
        log, matrix = 2 * (log + math.log(size)), matrix.T @ matrix
    return found


def windows(n: int, k: int, s: int, e: int) -> int:
    """The largest number of windows of k taps, stride s, dilation e that cover one of n entries."""
    cover = torch.zeros(n)
    for start in range(0, n - (k - 1) * e, s):
        cover[[start + t * e for t in range(k)]] += 1
    return int(cover.max())


def pool_max(draw: Draw) -> Found:
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


def pool_average(draw: Draw) -> Found:
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


def copies(draw: Draw) -> Found:
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


def dropout(draw: Draw) -> Found:
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


def normalize(draw: Draw) -> Found:
    n, eps = draw.integer(2, 9), 10 ** float(draw.uniform(1, low=-6.0, high=-1.0))
    x = draw.normal(n)
    found = norm(jacobian(lambda t: F.normalize(t, dim=0, eps=eps), x))
    yield equal("constant at x", found, predicted=1 / max(float(x.norm()), eps))
    small = 0.1 * eps * x / x.norm()
    yield equal(
        "constant under the floor", norm(jacobian(lambda t: F.normalize(t, dim=0, eps=eps), small)), predicted=1 / eps
    )


def response(draw: Draw) -> Found:
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

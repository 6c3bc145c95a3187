"""Our own claims on composition: sums, products, reductions, the log domain, and bounds from below."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.core.interval import LogInterval
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.extensions_conv import dense
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("X", "normgauge")


@claims.add(
    "add",
    "composition",
    Verdict.HOLDS,
    "A sum of branches has constant at most ΣL_i (a residual block 1 + L), √copies times where broadcasting "
    "repeats one.",
    "Attained when the branches align, f = c·x with c > 0; concatenation has √(ΣL_i²).",
    backs=("combine.add",),
)
def add(draw: Draw) -> Iterator[Finding | Curve]:
    """Random branches, aligned ones, a broadcast one and a concatenation."""
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


@claims.add(
    "maximum",
    "composition",
    Verdict.HOLDS,
    "The larger of two branches, entry by entry, has constant at most √(L_a² + L_b²).",
    "Each entry comes from one of them; attained when half of the entries come from each and one input drives both.",
    backs=("activation.maximum",),
)
def maximum(draw: Draw) -> Iterator[Finding | Curve]:
    """Random maps; then one input that drives an entry through each branch."""
    n = draw.integer(2, 8)
    w, v, x = draw.normal(n, n), draw.normal(n, n), draw.normal(n)
    found = norm(jacobian(lambda t: torch.maximum(w @ t, v @ t), x))
    yield below("constant", found, predicted=math.hypot(norm(w), norm(v)))
    a, b = (float(t) for t in draw.uniform(2, low=0.5, high=3.0))
    offsets = torch.tensor([[10.0, -10.0], [-10.0, 10.0]], dtype=torch.float64)
    rows = torch.tensor([[[a], [0.0]], [[0.0], [b]]], dtype=torch.float64)
    both = norm(jacobian(lambda t: torch.maximum(rows[0] @ t + offsets[0], rows[1] @ t + offsets[1]), draw.uniform(1)))
    yield equal("one entry from each", both, predicted=math.hypot(a, b))


@claims.add(
    "multiply",
    "composition",
    Verdict.HOLDS,
    "A product a·b has constant at most L_a·sup|b| + sup|a|·L_b; a broadcast gate counts with the norm of "
    "what it multiplies.",
    "Attained by x·x; not Lipschitz where a factor is unbounded. A gate on a map of k×k entries of 1 has k, not 1.",
    backs=("combine.multiply",),
)
def multiply(draw: Draw) -> Iterator[Finding | Curve]:
    """Random branches at a point, x·x, a gate on a map, and a constant factor."""
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


@claims.add(
    "divide",
    "composition",
    Verdict.HOLDS,
    "A quotient a/b has constant at most L_a/inf|b| + sup|a|·L_b/inf b².",
    "Attained by (t − a)/(b + c·t) on a line; no constant where b reaches 0.",
    backs=("combine.divide",),
)
def divide(draw: Draw) -> Iterator[Finding | Curve]:
    """Random branches at a point; one aligned; a divisor that shrinks."""
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


@claims.add(
    "reduce",
    "composition",
    Verdict.HOLDS,
    "Over n entries: sum √n, mean 1/√n, largest entry 1, ℓ2 norm 1, standard deviation 1/√(n−1) (biased 1/√n).",
    "Exactly, everywhere they have a derivative.",
    backs=("combine.reduce_linear", "combine.reduce_extreme", "combine.reduce_length"),
)
def reduce(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians at random points."""
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


@claims.add(
    "matmul",
    "composition",
    Verdict.HOLDS,
    "Of two branches AB has constant at most sup‖A‖·L_B + sup‖B‖·L_A; with a constant factor C it is the "
    "largest ‖C_b‖.",
    "Exactly for a constant, batch by batch; for branches attained by A² at a multiple of the identity.",
    backs=("projection.matmul", "projection.einsum", "projection.add_product"),
)
def matmul(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians of products of matrices; of einsum; of β·C + α·AB."""
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


@claims.add(
    "bilinear",
    "composition",
    Verdict.HOLDS,
    "aᵀW_kb has constant at most ‖W‖(sup‖b‖·L_a + sup‖a‖·L_b), ‖W‖ the smaller norm of its two unfoldings.",
    "Attained by a rank-one W along a and b.",
    backs=("affine.bilinear",),
)
def bilinear(draw: Draw) -> Iterator[Finding | Curve]:
    """A random tensor in both arguments at once; a rank-one one along its inputs."""
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


@claims.add(
    "cumsum",
    "composition",
    Verdict.HOLDS,
    "A running sum of n entries has constant 1/(2 sin(π/(4n+2))).",
    "Exactly: the norm of the triangle of ones.",
    backs=("projection.cumsum",),
)
def cumsum(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense matrix."""
    n = draw.integer(2, 40)
    truth = norm(dense(lambda x: x.cumsum(1), n))
    yield equal("norm", truth, predicted=1 / (2 * math.sin(math.pi / (4 * n + 2))))


@claims.add(
    "fourier",
    "composition",
    Verdict.HOLDS,
    "A Fourier transform of n entries has constant √n, its inverse 1/√n; from half a spectrum to real numbers √2 times "
    "that.",
    "Exactly: a multiple of a unitary map; all entries of half a spectrum but the first and the middle count twice.",
    backs=("fourier.transform", "fourier.part"),
)
def fourier(draw: Draw) -> Iterator[Finding | Curve]:
    """Dense matrices over real and imaginary parts."""
    n = draw.integer(3, 12)
    basis = torch.eye(n, dtype=torch.float64)
    images = {"fft": (torch.fft.fft(basis), 0.5), "rfft": (torch.fft.rfft(basis), 0.5)}
    for name, (image, power) in {**images, "ifft": (torch.fft.ifft(basis), -0.5)}.items():
        yield equal(name, norm(torch.view_as_real(image.resolve_conj()).flatten(1)), predicted=n**power)
    half = norm(dense(lambda x: torch.fft.irfft(torch.view_as_complex(x), n), n // 2 + 1, 2))
    yield equal("irfft", half, predicted=math.sqrt(2 / n))
    turn = norm(dense(lambda x: torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()), n, 2))
    yield equal("conjugate", turn, predicted=1.0)


@claims.add(
    "scalar",
    "composition",
    Verdict.HOLDS,
    "A chain of elementwise steps over one value has constant sup|φ'|, also where its parts have none: x/(1+x²) has 1, "
    "1/(1+e^(−x)) ¼, exp(−γ‖x‖²) √(2γ/e).",
    "Attained at a point or in a limit; a function of a length moves no faster than one of a number.",
    backs=("scalar.scalar_function",),
)
def scalar(draw: Draw) -> Iterator[Finding | Curve]:
    """Derivatives on a fine line, and of a radial function at points of all lengths."""
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


@claims.add(
    "grn",
    "composition",
    Verdict.HOLDS,
    "Global response normalization x·g/(mean g + ε) of C channels has constant at most 2C + C^(3/2).",
    "An upper bound: n = g/(mean g + ε) ≤ C, dy = n·dx + x·dn.",
    backs=("response.response",),
)
def grn(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians with channels of very different lengths."""
    places, channels = draw.integer(1, 5), draw.integer(2, 6)

    def run(t: Tensor) -> Tensor:
        x = t.reshape(places, channels)
        g = x.norm(dim=0, keepdim=True)
        return x * (g / (g.mean(-1, keepdim=True) + 1e-6))

    scales = 10 ** draw.uniform(8 * channels, low=-2.0, high=1.0).reshape(8, 1, channels)
    points = draw.normal(8 * places * channels).reshape(8, places, channels) * scales
    found = max(norm(jacobian(run, point.flatten())) for point in points)
    yield below("constant", found, predicted=2 * channels + channels**1.5)


@claims.add(
    "log",
    "arithmetic",
    Verdict.HOLDS,
    "Products and sums of constants are kept as logarithms: ab is a sum, a+b logaddexp, a residual 1+L "
    "logaddexp(0, log L).",
    "Plain numbers overflow: 10^39 in float32, 10^309 in float64; 50 decades and 1 is 50 decades.",
    backs=("normgauge.core.interval.LogInterval",),
)
def log(draw: Draw) -> Iterator[Finding | Curve]:
    """Products that overflow as numbers; the interval's sums and products enclose the exact ones."""
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


@claims.add(
    "lower.power",
    "bounds from below",
    Verdict.HOLDS,
    "Power iteration through products with J and Jᵀ finds ‖J(x)‖ from below.",
    "Never above it; 30 steps reach it to 1e-6 where the two largest singular values are apart.",
)
def lower_power(draw: Draw) -> Iterator[Finding | Curve]:
    """A random network; J by autograd, singular values given a gap."""
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


@claims.add(
    "lower.kink",
    "bounds from below",
    Verdict.WRONG,
    "The Jacobian autograd returns at a point is a slope of the function (a common reading).",
    "Not on a kink: 100(x − relu(x) + relu(−x)) is 0 everywhere and autograd says 100 at 0. Move off it, or "
    "take secants.",
)
def lower_kink(draw: Draw) -> Iterator[Finding | Curve]:
    """The zero function with a kink, at 0 and beside it; secants of it."""
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


@claims.add(
    "lower.secant",
    "bounds from below",
    Verdict.HOLDS,
    "‖f(x) − f(x′)‖/‖x − x′‖ is below the Lipschitz constant, for any two inputs.",
    "By definition; attained along the leading direction of a linear map.",
)
def lower_secant(draw: Draw) -> Iterator[Finding | Curve]:
    """Random pairs through a random network; the leading direction of a matrix."""
    n = draw.integer(3, 9)
    w, v = draw.normal(n, n), draw.normal(n, n)
    x, y = draw.normal(30, n), draw.normal(30, n)
    slopes = (torch.relu(x @ w.T) @ v.T - torch.relu(y @ w.T) @ v.T).norm(dim=1) / (x - y).norm(dim=1)
    yield below("steepest of 30 secants", float(slopes.max()), predicted=norm(w) * norm(v))
    lead = torch.linalg.svd(w).Vh[0]
    yield equal("secant along the leading direction", float((w @ (x[0] + lead) - w @ x[0]).norm()), predicted=norm(w))

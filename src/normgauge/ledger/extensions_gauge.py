"""Our own claims on gauges: rescalings that leave the function alone, what they move and what they do not."""

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

claims = Family("X", "normgauge")


def unchanged(what: str, before: Tensor, after: Tensor) -> Finding:
    """Two outputs agree."""
    return equal(what, float((before - after).abs().max()), predicted=0.0, scale=float(before.abs().max()))


@claims.add(
    "gauge.products",
    "gauge table",
    Verdict.GAUGE,
    "P_w = Π‖W_k‖ and the reduction Π1/σ_k measure the capacity of a BatchNorm network.",
    "(W_c, mean_c, √(var_c+ε)) → t_c(…) is the same function and moves both, together by any number of decades.",
)
def products(draw: Draw) -> Iterator[Finding | Curve]:
    """One network as it is, times a number, and with a random scale for every channel."""
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


@claims.add(
    "gauge.folded",
    "gauge table",
    Verdict.HOLDS,
    "Π‖diag(γ/σ)W‖, norms taken after folding, is the same in every scale of the channels, and at most P_w·Πmax|γ/σ|.",
    "Exactly; a valid bound of the deployed function.",
    backs=("normgauge.balance.bounds.folded_bound",),
)
def folded(draw: Draw) -> Iterator[Finding | Curve]:
    """The same network in another scale; its slopes below."""
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


@claims.add(
    "gauge.pair",
    "gauge table",
    Verdict.GAUGE,
    "The folded product is a property of the function.",
    "Not yet: a channel times t before a ReLU and its next weights over t is the same function, and moves the product.",
)
def relu_pair(draw: Draw) -> Iterator[Finding | Curve]:
    """One hidden channel times t."""
    n, width = draw.integer(3, 7), draw.integer(3, 7)
    w, v, x = draw.normal(width, n), draw.normal(n, width), draw.normal(20, n)
    t = 10 ** float(draw.uniform(1, low=1.0, high=3.0))
    scale = torch.ones(width, dtype=torch.float64)
    scale[0] = t
    other = (scale[:, None] * w, v / scale)
    yield unchanged("outputs", torch.relu(x @ w.T) @ v.T, torch.relu(x @ other[0].T) @ other[1].T)
    yield moves("product of the norms", norm(w) * norm(v), norm(other[0]) * norm(other[1]))


@claims.add(
    "gauge.stream",
    "gauge table",
    Verdict.GAUGE,
    "The product of 1 + L_k over residual blocks is a property of the function.",
    "Rescaling the channels of the stream (into it ×D, out of it ×D⁻¹) is the same function and moves it.",
)
def stream(draw: Draw) -> Iterator[Finding | Curve]:
    """A residual net with a rescaled stream."""
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


@claims.add(
    "gauge.balanced",
    "balanced bound",
    Verdict.HOLDS,
    "The smallest bound over all diagonal rescalings is the same in every gauge; each of them is a valid bound.",
    "For one hidden layer between one input and one output it is Σ|a_i b_i|, and the instrument finds it.",
    backs=("normgauge.balance.bounds.balanced_bound",),
)
def balanced(draw: Draw) -> Iterator[Finding | Curve]:
    """A 1-n-1 ReLU net in a random gauge, through the instrument."""
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


@claims.add(
    "gauge.shift",
    "gauge table",
    Verdict.GAUGE,
    "‖W‖ before a LayerNorm measures the layer.",
    "W → W + 1uᵀ changes nothing behind LayerNorm and moves ‖W‖ at will; ‖PW‖, the centring folded in, stays.",
)
def shift(draw: Draw) -> Iterator[Finding | Curve]:
    """A random shift of all rows."""
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


@claims.add(
    "gauge.gamma",
    "folding",
    Verdict.HOLDS,
    "γ of a LayerNorm folded into the next weights gives ‖W·diag(γ)‖/σ, at most ‖W‖·max|γ|/σ.",
    "One γ of 20 among 256 of 1 costs about a tenth of what max|γ| does; equal where all γ are.",
)
def gamma(draw: Draw) -> Iterator[Finding | Curve]:
    """Slopes of the pair under both bounds; one large γ; equal γ."""
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


@claims.add(
    "gauge.covariance",
    "folding",
    Verdict.HOLDS,
    "After BatchNorm λ_max(Σ)^(−½) ≤ max‖w_c‖/σ_c ≤ ‖Ŵ‖ ≤ √n_out·λ_min(Σ)^(−½): only the covariance Σ of the "
    "input counts.",
    "For γ = 1, ε = 0, since σ_c² = w_cᵀΣw_c; equalities for one output along an eigenvector.",
)
def covariance(draw: Draw) -> Iterator[Finding | Curve]:
    """Random Σ and W of any size; one row along each extreme eigenvector."""
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


@claims.add(
    "gauge.border",
    "folding",
    Verdict.HOLDS,
    "BatchNorm before a zero-padded convolution: the gains fold into the kernel, the shift does not.",
    "The border sees zeros, not shifted zeros; the constant needs the gains only.",
)
def border(draw: Draw) -> Iterator[Finding | Curve]:
    """Folding gains and shift, inside and at the border."""
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


@claims.add(
    "cap",
    "composition",
    Verdict.HOLDS,
    "With a head behind the last LayerNorm, ‖f(x) − f(x′)‖ ≤ ‖W_head‖·2√n·max|γ| for all inputs.",
    "No earlier weight can raise it; approached by opposite inputs along the head's leading direction.",
)
def cap(draw: Draw) -> Iterator[Finding | Curve]:
    """Inputs and weights of any size; then opposite inputs."""
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

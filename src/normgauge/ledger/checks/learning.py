"""Checks: learning."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve
from normgauge.generalization.bounds.cells import tau_chernoff, tau_published, tau_rademacher, tau_variation
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw, draw_counts, variation
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.nets import EPS, BatchNormNet

DELTA = 0.1


def t20(draw: Draw) -> Found:
    n, m, trials = draw.integer(3, 25), draw.integer(60, 300), 300
    p = draw.uniform(n, low=0.1) ** 2
    p = p / p.sum()
    counts = draw_counts(draw, p, m, trials)
    gaps = variation(p, counts)
    rows = [[int(k) for k in row] for row in counts.tolist()]
    printed = torch.tensor([tau_published(sum(k > 0 for k in row), n, m, DELTA) for row in rows])
    sharper = torch.tensor([tau_rademacher(row, DELTA) for row in rows])
    misses = [float((gaps > tau).double().mean()) for tau in (printed, sharper, tau_variation(n, m, DELTA))]
    yield below("share of draws that break g", misses[0], predicted=DELTA)
    yield below("share that break the Rademacher form", misses[1], predicted=DELTA)
    yield below("share that break the total-variation form", misses[2], predicted=DELTA)
    worst = max(tau_chernoff(row, n, DELTA) - float(tau) for row, tau in zip(rows, printed, strict=True))
    yield below("Chernoff's form minus g, largest", worst, predicted=0.0)
    for cells, values in ((100, (0.379, 0.0575, 0.0290)), (10_000, (9.92, 0.397, 0.230))):
        even = [50_000 // cells] * cells
        taus = (
            tau_published(cells, cells, 50_000, 0.01),
            tau_rademacher(even, 0.01),
            tau_variation(cells, 50_000, 0.01),
        )
        for name, found, known in zip(("g", "Rademacher", "total variation"), taus, values, strict=True):
            yield equal(f"{name} for {cells} cells, m = 50,000, δ = .01", found, predicted=known, rel=2e-3)
    yield _slacks()


def _slacks() -> Curve:
    cells = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    m, delta = 50_000, 0.01
    return Curve(
        "Slack for a loss in [0, 1], m = 50,000, δ = .01, all cells met",
        "cells",
        "slack",
        cells,
        (
            ("as printed", tuple(tau_published(n, n, m, delta) for n in cells)),
            ("Rademacher", tuple(tau_rademacher([m // n] * n, delta) for n in cells)),
            ("total variation", tuple(tau_variation(n, m, delta) for n in cells)),
        ),
        log_x=True,
        log_y=True,
    )


def t20_direct(draw: Draw) -> Found:
    n, points, m = draw.integer(3, 8), draw.integer(20, 60), draw.integer(30, 80)
    p = draw.uniform(n, points, low=0.1)
    p = p / p.sum()
    inside = p / p.sum(1, keepdim=True)
    picks = torch.multinomial(p.flatten(), m, replacement=True, generator=draw.generator)
    loss = torch.ones(n * points, dtype=torch.float64)
    loss[picks] = 0.0
    loss = loss.reshape(n, points)
    cell, point = picks // points, picks % points
    term = sum(
        float((inside[i] * (loss[i] - loss[i, j]).abs()).sum()) / m
        for i, j in zip(cell.tolist(), point.tolist(), strict=True)
    )
    counts = torch.bincount(cell, minlength=n).double()
    errors = (inside * loss).sum(1)
    yield equal("ε-term of a model without training error", term, predicted=float((counts / m) @ errors))
    mass = p.sum(1)
    slack = float(variation(mass, counts[None])[0])
    yield below(
        "its test error, g replaced by the total variation met", float((p * loss).sum()), predicted=term + slack
    )
    worst = (mass > counts / m).double()  # all wrong where P has more than D, all right elsewhere
    yield equal(
        "the same for losses constant on cells, at their worst", float((mass - counts / m) @ worst), predicted=slack
    )


def t20_dimension(draw: Draw) -> Found:
    m, b = draw.integer(1000, 2000), draw.integer(3, 5)
    dims = tuple(range(1, 13))
    met = []
    for n in dims:
        bins = (draw.uniform(m, n) * b).floor()
        met.append(len(bins.unique(dim=0)))
    slacks = [tau_published(t, b**n, m, 0.05) for t, n in zip(met, dims, strict=True)]
    yield exceeds(f"g/C in dimension {dims[-1]}", slacks[-1], published=1.0)
    expected = b ** dims[-1] * -math.expm1(m * math.log1p(-(b ** -dims[-1])))
    yield equal("cells met there, over m", met[-1] / m, predicted=expected / m, rel=0.02)
    root = ((math.sqrt((math.sqrt(2) + 1) ** 2 + 8) - math.sqrt(2) - 1) / 4) ** 2
    yield equal("share |T|ln(2N/δ)/m at which g = C", root, predicted=0.106, rel=5e-3)
    yield equal("g/C there", tau_published(root * m / math.log(2 * b / DELTA), b, m, DELTA), predicted=1.0)
    yield Curve(
        "Slack in dimension n", "n", "g / C", dims, (("g", tuple(slacks)), ("vacuous", (1.0,) * len(dims))), log_y=True
    )


def t20_corollary(draw: Draw) -> Found:
    points, dim = draw.integer(10, 40), draw.integer(2, 5)
    x, rows = draw.uniform(points, dim), draw.normal(4, dim)
    change = spread((x @ rows.T).max(1).values[:, None])
    yield below("mean change of the loss", change, predicted=local_term(rows, x))
    line, slopes = (
        draw.uniform(points, 1),
        torch.cat([draw.uniform(1, 1, low=0.5, high=3.0), torch.zeros(1, 1).double()]),
    )
    exact = spread((line @ slopes.T).max(1).values[:, None])
    yield equal("the same, linear on a half line", exact, predicted=local_term(slopes, line))


def local_term(rows: Tensor, x: Tensor) -> float:
    """λL of a maximum of linear functions."""
    return spread(x) * float(rows.norm(dim=1).max())


def spread(x: Tensor) -> float:
    """The mean distance of two rows."""
    return float(torch.cdist(x, x).mean())


def c21(draw: Draw) -> Found:
    points, q = draw.integer(20, 60), float(draw.uniform(1, low=0.2, high=0.8))
    x = draw.uniform(points, 1)
    step = (x > x.sort(0).values[int(q * points)]).double()
    share = float(step.mean())
    yield equal("mean change in a cell that straddles the jump", spread(step), predicted=2 * share * (1 - share))
    sides = [spread(step[step[:, 0] == side]) for side in (0.0, 1.0)]
    yield equal("mean change in the two cells it separates", max(sides), predicted=0.0, scale=1.0)


def hkk(draw: Draw) -> Found:
    n, m = draw.integer(2, 500), draw.integer(1000, 100_000)
    ratio = tau_published(n, n, m, DELTA) / math.sqrt(n / m)
    first = (math.sqrt(2) + 1) * math.sqrt(math.log(2 * n / DELTA))
    yield exceeds("g over √(N/m), every cell met", ratio, published=1.0)
    yield equal("the same, large m", tau_published(n, n, 1e14, DELTA) / math.sqrt(n / 1e14), predicted=first, rel=1e-4)
    cells = 10**6
    met = cells / ((math.sqrt(2) + 1) ** 2 * math.log(2 * cells / DELTA))
    large = tau_published(met, cells, 1e14, DELTA) / math.sqrt(cells / 1e14)
    yield equal("the same where few cells are met and both are alike", large, predicted=1.0, rel=1e-3)


def inputs(draw: Draw) -> Found:
    entries = 3 * draw.integer(4, 33) ** 2
    images = draw.uniform(50, entries) / math.sqrt(entries)
    yield below("largest norm of 50 images", float(images.norm(dim=1).max()), predicted=1.0)
    white = torch.ones(entries, dtype=torch.float64) / math.sqrt(entries)
    yield equal("norm of a white image", float(white.norm()), predicted=1.0)
    mean_square = float((images**2).sum(1).mean())
    yield equal("mean ‖x‖² of uniform pixels", mean_square, predicted=1 / 3, rel=0.12)


def he(draw: Draw, out: int, fan_in: int) -> Tensor:
    """He-normal weights."""
    return draw.normal(out, fan_in) * math.sqrt(2 / fan_in)


def found_norm(matrix: Tensor, steps: int = 60) -> float:
    """The spectral norm from below, by power iteration."""
    v = torch.ones(matrix.shape[1], dtype=torch.float64)
    for _ in range(steps):
        v = matrix.T @ (matrix @ (v / v.norm()))
    return float(v.norm().sqrt())


def gaussian_edge(out: int, fan_in: int) -> float:
    """√2(1 + √(out/in)): the largest singular value of He-normal weights, large sizes."""
    return math.sqrt(2) * (1 + math.sqrt(out / fan_in))


def init(draw: Draw) -> Found:
    first, last = he(draw, 512, 3072), he(draw, 10, 512)
    hidden = [he(draw, 512, 512) for _ in range(2)]
    start, middle, other, end = (found_norm(w) for w in (first, *hidden, last))
    yield equal("norm of the first layer", start, predicted=gaussian_edge(*first.shape), rel=0.04)
    yield equal("norm of a hidden layer", middle, predicted=gaussian_edge(*hidden[0].shape), rel=0.06)
    yield equal("norm of the last layer", end, predicted=gaussian_edge(*last.shape), rel=0.15)
    spectral = math.log10(start) + 4 * math.log10(middle) + 4 * math.log10(other) + math.log10(end)
    yield equal("log10 P_w", spectral, predicted=4.09, rel=0.04)
    lengths = [math.log10(float(w.norm())) for w in (first, hidden[0], last)]
    yield equal("log10 P_w, Frobenius", lengths[0] + 8 * lengths[1] + lengths[2], predicted=14.20, rel=0.01)
    for out, channels, n, spread in ((64, 64, 8, 0.1), (64, 3, 16, 0.25)):
        found = conv_norm(draw, channels, out, n)
        what = f"norm of a convolution {channels}→{out}, circular on {n}×{n}"
        yield equal(what, found, predicted=gaussian_edge(out, channels), rel=spread)


def conv_norm(draw: Draw, channels: int, out: int, n: int) -> float:
    """The norm of a He-normal 3×3 convolution with circular padding on n×n, exactly."""
    kernel = draw.normal(out, channels, 3, 3) * math.sqrt(2 / (9 * channels))
    symbol = torch.fft.fft2(kernel, s=(n, n))[..., : n // 2 + 1].permute(2, 3, 0, 1)  # conjugate frequencies are alike
    gram = symbol.mH @ symbol
    return float(torch.linalg.eigvalsh(gram).max().sqrt())


def approximation(draw: Draw) -> Found:
    knots, slope = draw.integer(4, 12), float(draw.uniform(1, low=0.5, high=3.0))
    t = torch.linspace(0, 1, knots + 1, dtype=torch.float64)
    values = torch.cat([torch.zeros(1, dtype=torch.float64), (slope / knots * draw.uniform(knots, low=-1.0)).cumsum(0)])
    slopes = values.diff() * knots
    kinks = torch.cat([slopes[:1], slopes.diff()])
    x = torch.linspace(0, 1, 2 * knots + 1, dtype=torch.float64)
    net = values[0] + torch.relu(x[:, None] - t[:-1]) @ kinks
    yield equal("the net at the knots", float((net[::2] - values).abs().max()), predicted=0.0, scale=1.0)
    zigzag = slope * (x[:, None] - t).abs().min(1).values  # zero at every knot, steep between them
    yield equal("how far it misses a zigzag that is 0 at the knots", float(zigzag.max()), predicted=slope / knots / 2)


def optimization(draw: Draw) -> Found:
    m, n, width = draw.integer(3, 6), draw.integer(6, 10), 20
    x, t = draw.uniform(m, n, low=0.1), draw.normal(m)
    dead, head = -draw.uniform(width, n, low=0.1), draw.normal(width)
    tensors = [dead.clone().requires_grad_(), head.clone().requires_grad_()]
    loss = (torch.relu(x @ tensors[0].T) @ tensors[1] - t).square().mean()
    grads = torch.autograd.grad(loss, tensors)
    yield equal("gradient at the start", sum(float(g.abs().sum()) for g in grads), predicted=0.0, scale=1.0)
    alive = torch.cat([torch.eye(n, dtype=torch.float64), draw.normal(width - n, n)])  # all inputs are positive
    features = torch.relu(x @ alive.T)  # the first n features are x itself, so that their rank is m
    best = (features @ torch.linalg.lstsq(features, t[:, None], driver="gelsd").solution)[:, 0]
    yield equal(
        "best loss of the same net, over that of the start",
        float((best - t).square().mean() / loss.detach()),
        predicted=0.0,
        scale=1.0,
    )


def bn_moments(draw: Draw) -> Found:
    m, c, eps = draw.integer(5, 30), draw.integer(2, 6), 10 ** float(draw.uniform(1, low=-3.0, high=-1.0))
    x = draw.normal(m, c) * draw.uniform(c, low=0.05, high=1.0) + draw.normal(c)
    out = F.batch_norm(x, None, None, training=True, eps=eps)
    var = x.var(0, correction=0)
    yield equal("largest mean", float(out.mean(0).abs().max()), predicted=0.0, scale=1.0)
    smallest = int(var.argmin())
    found = float(out[:, smallest].var(correction=0))
    yield equal("smallest variance", found, predicted=float(var[smallest] / (var[smallest] + eps)))
    yield below("the same, against 1", found, predicted=1.0, published=1.0)
    other = F.batch_norm(x + 1, x.mean(0), x.var(0), training=False, eps=eps)
    yield refutes("mean in use, inputs shifted by 1", float(other[:, 0].mean()), published=0.0)


def bn(draw: Draw) -> Found:
    c = draw.integer(2, 9)
    var, gamma, mean = draw.uniform(c, low=0.1, high=4.0), draw.normal(c), draw.normal(c)
    found = norm(jacobian(lambda v: F.batch_norm(v[None], mean, var, gamma, eps=EPS)[0], draw.normal(c)))
    ratio = gamma.abs() / (var + EPS).sqrt()
    yield equal("constant", found, predicted=float(ratio.max()))
    even = [1 / math.sqrt(1 + EPS)] * 2
    pair = torch.ones(2, dtype=torch.float64)
    equal_channels = norm(jacobian(lambda v: F.batch_norm(v[None], 0 * pair, pair, pair, eps=EPS)[0], draw.normal(2)))
    yield refutes("constant, two equal channels", equal_channels, published=math.hypot(*even))
    yield equal("printed over true there", math.hypot(*even) / equal_channels, predicted=math.sqrt(2))
    yield below("constant, against the printed one as a bound", found, predicted=float(ratio.norm()))


def _spike(n: int, eps: float, draw: Draw, groups: int = 1) -> tuple[float, float]:
    """σ‖J‖ and σ of a normalizer with γ = e₁ at an input whose first entry is the mean of its group."""
    x = draw.normal(n * groups)
    x[0] = x[1:n].mean()
    gamma = torch.zeros(n * groups, dtype=torch.float64)
    gamma[0] = 1.0
    sigma = math.sqrt(float(x[:n].var(correction=0)) + eps)
    found = jacobian(lambda v: F.group_norm(v[None], groups, gamma, eps=eps)[0], x)
    return norm(found) * sigma, sigma


def ln(draw: Draw) -> Found:
    n, eps = draw.integer(3, 40), 1e-5
    scaled, _ = _spike(n, eps, draw)
    yield exceeds("σ_ε‖J‖ for γ = e₁, y₁ = 0", scaled, published=1 - 1 / n)
    yield equal("the same", scaled, predicted=math.sqrt(1 - 1 / n))
    x, gamma = draw.normal(n), draw.normal(n)
    sigma = math.sqrt(float(x.var(correction=0)) + eps)
    plain = norm(jacobian(lambda v: F.layer_norm(v, (n,), eps=eps), x))
    yield equal("‖J‖ for γ = 1", plain, predicted=1 / sigma)
    found = norm(jacobian(lambda v: F.layer_norm(v, (n,), gamma, eps=eps), x))
    yield below("‖J‖ for any γ", found, predicted=float(gamma.abs().max()) / sigma)
    sizes = tuple(range(3, 21))
    lines = (("true, γ = e₁", tuple(math.sqrt(1 - 1 / k) for k in sizes)), ("printed", tuple(1 - 1 / k for k in sizes)))
    yield Curve("σ‖J‖ of LayerNorm with γ = e₁", "n", "σ‖J‖", sizes, lines)


def gn(draw: Draw) -> Found:
    n, groups, eps = draw.integer(3, 10), draw.integer(2, 5), 1e-5
    scaled, _ = _spike(n, eps, draw, groups)
    yield exceeds("σ_ε‖J‖ for γ = e₁, y₁ = 0", scaled, published=1 - 1 / n)
    yield equal("the same", scaled, predicted=math.sqrt(1 - 1 / n))
    x = draw.normal(groups, n) * draw.uniform(groups, 1, low=0.2, high=3.0)
    sigmas = (x.var(1, correction=0) + eps).sqrt()
    plain = norm(jacobian(lambda v: F.group_norm(v[None], groups, eps=eps)[0], x.flatten()))
    yield equal("‖J‖ for γ = 1", plain, predicted=float((1 / sigmas).max()))


def l4(draw: Draw) -> Found:
    net = BatchNormNet.drawn(draw, draw.integer(2, 5), draw.integer(4, 9))
    x = draw.normal(10, net.head.shape[1])
    steepest = max(norm(jacobian(net, row)) for row in x)
    head = math.log10(norm(net.head))
    largest = sum(math.log10(float((g / s).abs().max())) for g, s in zip(net.gains, net.sigmas, strict=True))
    yield below("slope, against the folded bound", math.log10(steepest), predicted=net.log_folded)
    yield below("log10 folded, against norms and max γ/σ", net.log_folded, predicted=net.log_weights + largest + head)
    printed = net.log_weights + net.log_euclidean + head
    yield below(
        "the same, against the printed bound", net.log_weights + largest + head, predicted=printed, published=printed
    )
    depth, width, sigma = draw.integer(2, 5), draw.integer(3, 8), float(draw.uniform(1, low=0.5, high=2.0))
    even = _even_net(depth, width, sigma)
    found = norm(jacobian(even, torch.ones(width, dtype=torch.float64)))
    yield equal("slope of W = I, equal channels: folded", math.log10(found), predicted=even.log_folded)
    gap = even.log_weights + even.log_euclidean - even.log_folded
    yield equal("log10 of printed over folded there", gap, predicted=depth * math.log10(width) / 2)


def _even_net(depth: int, width: int, sigma: float) -> BatchNormNet:
    eye, ones = torch.eye(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)
    variances = ((sigma**2 - EPS) * ones,) * depth
    return BatchNormNet((eye,) * depth, (0 * ones,) * depth, variances, (ones,) * depth, (0 * ones,) * depth, eye)


def arithmetic(draw: Draw) -> Found:
    value = 1.35 * 2.0**-26 / math.sqrt(2)
    yield refutes("1.35·2^(−26.5)", value, published=1.35e-8)
    yield equal("the same", value, predicted=1.42e-8, rel=2e-3)
    yield equal("1.35·10⁻⁸ over 2^(−26.5)", 1.35e-8 * 2.0**26 * math.sqrt(2), predicted=1.28, rel=2e-3)


def exponential(draw: Draw) -> Found:
    depth, width = draw.integer(3, 6), draw.integer(5, 10)
    net = BatchNormNet.drawn(draw, depth, width)
    scales = [10 ** draw.uniform(width, low=1.0, high=3.0) for _ in range(depth)]
    other, x, t = net.rescaled(scales), draw.normal(30, width), draw.normal(30, 3)
    losses = [float((f(x) - t).abs().mean()) for f in (net, other)]
    yield equal("test loss in the other scale", losses[1], predicted=losses[0])
    yield moves("Π‖γ/σ‖", 10**net.log_euclidean, 10**other.log_euclidean)
    yield equal("log10 of the folded bound", other.log_folded, predicted=net.log_folded)


def flat(draw: Draw) -> Found:
    m, n, width = draw.integer(4, 10), draw.integer(3, 6), draw.integer(3, 7)
    x, w, t = draw.normal(m, n), draw.normal(width, n), draw.normal(m, width)
    c = float(draw.uniform(1, low=2.0, high=20.0))

    def loss(v: Tensor) -> Tensor:
        y = x @ v.reshape(width, n).T
        y = y - y.mean(1, keepdim=True)
        return (y / y.square().mean(1, keepdim=True).sqrt() - t).square().mean()

    yield equal("loss after W → cW", float(loss(c * w)), predicted=float(loss(w)))
    before, after = float(jacobian(loss, w).norm()), float(jacobian(loss, c * w).norm())
    yield moves("‖∇_W L‖", before, after)
    yield equal("‖W‖·‖∇_W L‖", c * float(w.norm()) * after, predicted=float(w.norm()) * before)


def gradient(draw: Draw) -> Found:
    n, width = draw.integer(3, 7), draw.integer(3, 7)
    h, w, v, t = draw.normal(n), draw.normal(width, n), draw.normal(4, width), draw.normal(4)

    def loss(y: Tensor) -> Tensor:
        return (v @ torch.tanh(y) - t).square().sum()

    in_w = jacobian(lambda u: loss(u.reshape(width, n) @ h), w).reshape(width, n)
    in_y = jacobian(loss, w @ h).flatten()
    apart = float((in_w - torch.outer(in_y, h)).abs().max())
    yield equal("largest difference of the two", apart, predicted=0.0, scale=float(in_w.abs().max()))
    yield equal("‖∂f/∂W‖", float(in_w.norm()), predicted=float(in_y.norm() * h.norm()))


def decomposition(draw: Draw) -> Found:
    models = draw.integer(3, 12)
    true, seen = draw.uniform(models), draw.uniform(models)
    chosen = draw.integer(0, models)
    error = float(true[chosen] - true.min())
    optimization = float(seen[chosen] - seen.min())
    yield below("estimation error", error, predicted=optimization + 2 * float((true - seen).abs().max()))
    gap = float(draw.uniform(1, low=0.1, high=0.4))
    true, seen = torch.tensor([0.5 + gap, 0.5 - gap]).double(), torch.tensor([0.5, 0.5]).double()
    worst = float(true[0] - true.min())
    yield equal("estimation error, opposite gaps", worst, predicted=2 * float((true - seen).abs().max()), rel=1e-6)


def vc_bound(vc: float, m: float, delta: float) -> float:
    """√((2/m)·VC·ln(2em/VC) + ln(2/δ)/m), nan where what is under the root is negative."""
    inside = 2 / m * vc * math.log(2 * math.e * m / vc) + math.log(2 / delta) / m
    return math.sqrt(inside) if inside >= 0 else math.nan


def vc(draw: Draw) -> Found:
    m, trials = draw.integer(50, 200), 200
    x = draw.uniform(trials, m).sort(1).values
    ranks = torch.arange(m, dtype=torch.float64)
    up, down = ((ranks + 1) / m - x).max(1).values, (x - ranks / m).max(1).values
    for name, gaps, dim in (("thresholds", torch.maximum(up, down), 1), ("intervals", up + down, 2)):
        misses = float((gaps > vc_bound(dim, m, DELTA)).double().mean())
        yield below(f"share of draws in which some of the {name} break it", misses, predicted=DELTA)
    values = [vc_bound(k, m, DELTA) for k in range(1, 5 * m)]
    yield equal("largest value over VC", max(values), predicted=math.sqrt(4 + math.log(2 / DELTA) / m))
    yield equal("where: VC/m", (values.index(max(values)) + 1) / m, predicted=2.0)
    yield shown("undefined for 11 million weights and 50,000 samples", math.isnan(vc_bound(11e6, 50_000, DELTA)))
    grid = tuple(10.0**k for k in range(1, 6))
    bounds = tuple(vc_bound(k, 50_000, DELTA) for k in grid)
    yield Curve(
        "VC bound, m = 50,000", "VC dimension", "bound", grid, (("bound", bounds), ("vacuous", (1.0,) * 5)), log_x=True
    )


def vc_linear(draw: Draw) -> Found:
    n = draw.integer(2, 6)
    points = torch.cat([draw.normal(n + 1, n), torch.ones(n + 1, 1, dtype=torch.float64)], 1)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n + 1)), dtype=torch.float64)
    solved = signs @ torch.linalg.inv(points).T
    reached = int(((solved @ points.T).sign() == signs).all(1).sum())
    yield equal("labellings of n+1 points reached", reached, predicted=2 ** (n + 1))
    more = torch.cat([points, torch.cat([draw.normal(1, n), torch.ones(1, 1, dtype=torch.float64)], 1)])
    dependence = torch.linalg.svd(more.T).Vh[-1]
    outputs = more @ draw.normal(n + 1, 500)
    forbidden = int((outputs.sign() == dependence.sign()[:, None]).all(0).sum())
    yield equal("random linear models with the forbidden labelling of n+2 points", forbidden, predicted=0, scale=1.0)
    yield equal(
        "dependence times any model's outputs",
        float((dependence @ outputs).abs().max()),
        predicted=0.0,
        scale=float(outputs.abs().max()),
    )


def frobenius(draw: Draw) -> Found:
    m, radius, c = (
        draw.integer(4, 9),
        float(draw.uniform(1, low=0.5, high=3.0)),
        float(draw.uniform(1, low=2.0, high=9.0)),
    )
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=m)), dtype=torch.float64)
    x = draw.normal(m, draw.integer(3, 8))
    found = radius / m * float((signs @ x).norm(dim=1).mean())
    yield below("Rademacher average", found, predicted=radius * float(x.norm()) / m)
    apart = draw.orthogonal(m)
    exact = radius / m * float((signs @ apart).norm(dim=1).mean())
    yield equal("the same, orthogonal samples", exact, predicted=radius * float(apart.norm()) / m)
    larger = radius / m * float((signs @ (c * x)).norm(dim=1).mean())
    yield refutes("data times c: the average, over before", larger / found, published=1.0)
    yield equal("the same", larger / found, predicted=c)


def _spectral_average(draw: Draw, n: int) -> float:
    """(1/m)·E sup over ‖W‖ ≤ 1 of Σ ε_ij (W x_i)_j, n orthonormal samples: the mean nuclear norm of signs over n."""
    signs = draw.normal(20, n, n).sign()
    return float(torch.linalg.svdvals(signs).sum(1).mean()) / n


def spectral(draw: Draw) -> Found:
    n = draw.integer(8, 16)
    small, large = _spectral_average(draw, n), _spectral_average(draw, 4 * n)
    yield refutes("Rademacher average, four times the samples, over before", large / small, published=1 / math.sqrt(4))
    yield equal("the same: it grows as √n", large / small, predicted=math.sqrt(4), rel=0.1)
    rows = torch.full((n,), 1.0, dtype=torch.float64)  # an orthogonal W has rows of length 1
    yield below("average, against ‖X‖_F·‖Wᵀ‖_{2,1}/m", small, predicted=math.sqrt(n) * float(rows.sum()) / n)
    yield exceeds("average over Π‖W‖/√m", small * math.sqrt(n), published=1.0)


def slide_pac_bayes(kl: float, m: float, delta: float) -> float:
    """√((KL + ln(m/δ))/(2m−1)), as on the slide."""
    return math.sqrt((kl + math.log(m / delta)) / (2 * m - 1))


def maurer(kl: float, m: float, delta: float) -> float:
    """√((KL + ln(2√m/δ))/(2m))."""
    return math.sqrt((kl + math.log(2 * math.sqrt(m) / delta)) / (2 * m))


def mcallester(draw: Draw) -> Found:
    m, models, trials = draw.integer(20, 100), draw.integer(5, 30), 300
    true = draw.uniform(models)
    seen = (draw.uniform(trials, m, models) < true).double().mean(1)
    posterior = torch.softmax(-m * seen, 1)
    kl = (posterior * (posterior * models).clamp_min(1e-300).log()).sum(1)
    gaps = (posterior * (true - seen)).sum(1)
    for name, form in (("the slide's form", slide_pac_bayes), ("Maurer's", maurer)):
        limits = torch.tensor([form(float(k), m, DELTA) for k in kl.clamp_min(0.0)])
        yield below(f"share of draws that break {name}", float((gaps > limits).double().mean()), predicted=DELTA)
    size, weight = draw.integer(8, 5000), float(draw.uniform(1, low=0.0, high=200.0))
    loose, tight = slide_pac_bayes(weight, size, DELTA), maurer(weight, size, DELTA)
    yield below("Maurer's, against the slide's", tight, predicted=loose, published=loose)
    split = loose**2 * (2 * size - 1) - tight**2 * 2 * size
    yield equal("what the logarithms differ by", split, predicted=math.log(math.sqrt(size) / 2), rel=1e-6)
    yield equal("slide's at m = 1000, KL = 100, δ = .05", slide_pac_bayes(100, 1000, 0.05), predicted=0.2345, rel=5e-4)
    yield equal("Maurer's there", maurer(100, 1000, 0.05), predicted=0.2315, rel=5e-4)


def layer(draw: Draw) -> Found:
    n = draw.integer(3, 40)
    x = draw.normal(n)
    sigma = math.sqrt(float(x.var(correction=0)) + EPS)
    found = norm(jacobian(lambda v: F.layer_norm(v, (n,), eps=EPS), x))
    yield exceeds("‖J‖", found, published=(1 - 1 / n) / sigma)
    yield equal("the same", found, predicted=1 / sigma)


def group(draw: Draw) -> Found:
    n, groups = draw.integer(3, 8), 2 * draw.integer(1, 4)
    x = draw.normal(n).repeat(groups)
    small = norm(jacobian(lambda v: F.group_norm(v[None], groups, eps=EPS)[0], x))
    large = norm(jacobian(lambda v: F.group_norm(v[None], groups // 2, eps=EPS)[0], x))
    printed = (1 - 1 / n) / (1 - 1 / (2 * n))
    yield refutes("constant with groups of n over groups of 2n", small / large, published=printed)
    yield equal("the same", small / large, predicted=1.0)
    yield equal("constant", small, predicted=1 / math.sqrt(float(x.var(correction=0)) + EPS))


def attribution(draw: Draw) -> Found:
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


def reversal(draw: Draw) -> Found:
    depth, width = draw.integer(2, 6), draw.integer(3, 7)
    x, ones = draw.uniform(width, low=0.5, high=2.0), torch.ones(width, dtype=torch.float64)
    for side, sigma in (("< 1", draw.uniform(1, low=0.3, high=0.9)), ("> 1", draw.uniform(1, low=1.1, high=3.0))):

        def net(v: Tensor, var: Tensor = sigma**2 * ones) -> Tensor:
            for _ in range(depth):
                v = torch.relu(F.batch_norm(v[None], 0 * ones, var, eps=0.0)[0])
            return v

        yield equal(f"constant of W = I, σ {side}", norm(jacobian(net, x)), predicted=float(sigma) ** -depth)


def batch(draw: Draw) -> Found:
    for m in (draw.integer(4, 10), draw.integer(40, 80)):
        spread = float(draw.normal(20_000, m).var(1).std())
        yield equal(
            f"relative spread of the variance of {m} values", spread, predicted=math.sqrt(2 / (m - 1)), rel=0.06
        )


def narrow(draw: Draw) -> Found:
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


def growth(draw: Draw) -> Found:
    depth, width = draw.integer(2, 5), draw.integer(5, 10)
    net, x = BatchNormNet.drawn(draw, depth, width), draw.normal(20, width)
    other = net.rescaled([draw.uniform(width, low=2.0, high=50.0) for _ in range(depth)])
    apart = float((net(x) - other(x)).abs().max())
    yield equal("largest change of an output", apart, predicted=0.0, scale=float(net(x).abs().max()))
    yield moves("product of weight norms", 10**net.log_weights, 10**other.log_weights)
    yield equal("log10 of the folded bound", other.log_folded, predicted=net.log_folded)


def affine(draw: Draw) -> Found:
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


def residual(draw: Draw) -> Found:
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


def small_variance(draw: Draw) -> Found:
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


def local(draw: Draw) -> Found:
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

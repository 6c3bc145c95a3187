"""Checks: cells, uniform convergence, capacity, and what the slides and the summary say about learning."""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.certificates.bounds.cells import tau_chernoff, tau_published, tau_variation
from normgauge.core.claim import Curve
from normgauge.lab.zoo import resnet18
from normgauge.theory.checks.normalizers import spread as root_variance
from normgauge.theory.claim import Found, below, equals, exceeds, moves, refutes, shown
from normgauge.theory.draw import DELTA, Draw, draw_counts, variation
from normgauge.theory.jacobians import jacobian, spectral_norm
from normgauge.theory.nets import EPS, BatchNormNet, eye, ones


def spread(x: Tensor) -> float:
    """The mean distance of two rows."""
    return float((x[:, None] - x).norm(dim=-1).mean())


def t20(draw: Draw) -> Found:
    n, m, few = draw.integer(20, 40), draw.integer(1000, 2000), draw.integer(60, 120)
    counts = draw_counts(draw, ones(n) / n, m, 400)
    gaps = variation(ones(n) / n, counts)
    printed = torch.tensor([tau_published(float((row > 0).sum()), n, m, DELTA) for row in counts])
    proved = torch.tensor([tau_chernoff(row, n, DELTA) for row in counts.int().tolist()])
    yield below("slack of X.cells.chernoff, over g, largest of 400 draws", (proved / printed).max(), predicted=1.0)
    yield below("share of the draws that break g, δ = 0.1", float((gaps > printed).double().mean()), predicted=DELTA)
    yield exceeds("gap of a loss from −1 to 0, against g with C = sup f = 0", gaps.max(), published=0.0)
    mean = math.sqrt((n - 1) / (2 * math.pi * m))
    yield equals("largest gap of a model constant on even cells, mean", float(gaps.mean()), predicted=mean, rel=0.03)
    over = tau_published(n, n, 1e14, DELTA) / (mean * math.sqrt(m / 1e14))
    known = (math.sqrt(2) + 1) * math.sqrt(2 * math.pi * math.log(2 * n / DELTA) * n / (n - 1))
    yield equals("g over that mean, m large", over, predicted=known, rel=1e-4)
    needed = 1 - DELTA ** (1 / few)  # a cell of this mass, all wrong in it and all right elsewhere
    unmet = float((draw.uniform(20_000, few) > needed).all(1).double().mean())
    yield equals("chance that one of two cells is not met and the gap is its mass", unmet, predicted=DELTA, rel=0.1)
    yield below("that mass, against g with one cell met", needed, predicted=tau_published(1, 2, few, DELTA))
    m, delta = 50_000, 0.01
    for cells, known, best in ((1, 0.0251, 0.00679), (100, 0.379, 0.029), (10_000, 9.92, 0.230)):
        said = f"{cells} cells, m = 50,000, δ = 0.01"
        yield equals(f"g, {said}", tau_published(cells, cells, m, delta), predicted=known, rel=2e-3)
        yield equals(f"total variation's, {said}", tau_variation(cells, m, delta), predicted=best, rel=2e-3)


def t20_direct(draw: Draw) -> Found:
    n, points, m = draw.integer(3, 8), draw.integer(20, 60), draw.integer(30, 80)
    p = draw.uniform(n, points, low=0.1)
    p = p / p.sum()
    inside, mass = p / p.sum(1, keepdim=True), p.sum(1)
    picks = torch.multinomial(p.flatten(), m, replacement=True, generator=draw.generator)
    loss = ones(n * points).index_fill_(0, picks, 0.0).reshape(n, points)
    cell, point = picks // points, picks % points
    term = float((inside[cell] * (loss[cell] - loss[cell, point][:, None]).abs()).sum()) / m
    share = torch.bincount(cell, minlength=n).double() / m
    errors = (inside * loss).sum(1)
    yield equals("ε-term of a model without training error", term, predicted=float(share @ errors))
    slack = float(variation(mass, m * share[None])[0])
    yield below("its test error, g replaced by the variation met", float((p * loss).sum()), predicted=term + slack)
    worst = float((mass - share).clamp_min(0.0).sum())  # all wrong where P has more than D, all right elsewhere
    yield equals("the same for losses constant on cells, at their worst", worst, predicted=slack)


def t20_dimension(draw: Draw) -> Found:
    m, b = draw.integer(1000, 2000), draw.integer(3, 5)
    dims = tuple(range(1, 13))
    met = [len((draw.uniform(m, n) * b).floor().unique(dim=0)) for n in dims]
    g = tuple(tau_published(t, b**n, m, 0.05) for t, n in zip(met, dims, strict=True))
    yield exceeds(f"g/C in dimension {dims[-1]}", g[-1], published=1.0)
    expected = b ** dims[-1] * -math.expm1(m * math.log1p(-(b ** -dims[-1])))
    yield equals("cells met there, over m", met[-1] / m, predicted=expected / m, rel=0.02)
    root = ((math.sqrt((math.sqrt(2) + 1) ** 2 + 8) - math.sqrt(2) - 1) / 4) ** 2
    yield equals("share |T|ln(2N/δ)/m at which g = C", root, predicted=0.106, rel=5e-3)
    yield equals("g/C there", tau_published(root * m / math.log(2 * b / DELTA), b, m, DELTA), predicted=1.0)
    yield Curve("Slack in dimension n", "n", "g / C", dims, (("g", g), ("vacuous", (1.0,) * len(dims))), log_y=True)


def t20_corollary(draw: Draw) -> Found:
    x, rows, line = draw.uniform(30, 4), draw.normal(4, 4), draw.uniform(30, 1)
    change, slope = spread((x @ rows.T).max(1).values[:, None]), draw.number(0.5, 3.0)
    yield below("mean change of the loss", change, predicted=spread(x) * float(rows.norm(dim=1).max()))
    yield equals("the same, linear on a half line", spread(torch.relu(slope * line)), predicted=spread(line) * slope)


def c21(draw: Draw) -> Found:
    share = draw.integer(2, 9) / 10
    step = (torch.linspace(0, 1, 40, dtype=torch.float64)[:, None] >= 1 - share).double()
    share = float(step.mean())
    yield equals("mean change in a cell that straddles the jump", spread(step), predicted=2 * share * (1 - share))
    sides = [spread(step[step[:, 0] == side]) for side in (0.0, 1.0)]
    yield equals("mean change in the two cells it separates", max(sides), predicted=0.0, scale=1.0)


def hkk(draw: Draw) -> Found:
    n, m, large, cells = draw.integer(2, 500), draw.integer(1000, 100_000), 1e14, 10**6
    yield exceeds("g over √(N/m), every cell met", tau_published(n, n, m, DELTA) / math.sqrt(n / m), published=1.0)
    first = (math.sqrt(2) + 1) * math.sqrt(math.log(2 * n / DELTA))
    ratio = tau_published(n, n, large, DELTA) / math.sqrt(n / large)
    yield equals("the same, large m", ratio, predicted=first, rel=1e-4)
    met = cells / ((math.sqrt(2) + 1) ** 2 * math.log(2 * cells / DELTA))
    few = tau_published(met, cells, large, DELTA) / math.sqrt(cells / large)
    yield equals("the same where few cells are met and both are alike", few, predicted=1.0, rel=1e-3)


def approximation(draw: Draw) -> Found:
    knots, slope = draw.integer(4, 12), draw.number(0.5, 3.0)
    t, x = (torch.linspace(0, 1, k * knots + 1, dtype=torch.float64) for k in (1, 2))
    values = F.pad((slope / knots * draw.uniform(knots, low=-1.0)).cumsum(0), (1, 0))
    slopes = values.diff() * knots
    net = torch.relu(x[:, None] - t[:-1]) @ torch.cat([slopes[:1], slopes.diff()])
    yield equals("the net at the knots", float((net[::2] - values).abs().max()), predicted=0.0, scale=1.0)
    zigzag = slope * (x[:, None] - t).abs().min(1).values  # zero at every knot, steep between them
    yield equals("how far it misses a zigzag that is 0 at the knots", float(zigzag.max()), predicted=slope / knots / 2)


def grid(draw: Draw) -> Found:
    n, k = draw.integer(2, 5), draw.integer(3, 5)
    centres = torch.cartesian_prod(*[(torch.arange(k).double() + 0.5) / k] * n)
    values = draw.normal(k**n).sign() / (2 * k)
    extended = (values + (centres[:, None] - centres).norm(dim=-1)).min(1).values  # 1-Lipschitz on all of the cube
    met = int((extended - values).abs().lt(1e-12).sum())
    yield equals("points where a 1-Lipschitz function has the sign it is given", met, predicted=k**n)
    queries = draw.uniform(k**n - 1, n)
    bins = (queries * k).floor() @ k ** torch.arange(n - 1, -1, -1).double()
    hidden = centres[min(set(range(k**n)) - set(bins.int().tolist()))]
    depths = torch.relu(1 / (2 * k) - (torch.cat([queries, hidden[None]]) - hidden).abs().max(1).values)
    yield equals("what k^n − 1 values show of a dent", float(depths[:-1].max()), predicted=0.0, scale=1.0)
    yield equals("its depth", float(depths[-1]), predicted=1 / (2 * k))


def wide(draw: Draw) -> Found:
    m, n, width, steps = draw.integer(3, 6), draw.integer(6, 10), 30, draw.integer(20, 60)
    x, labels = draw.uniform(m, n, low=0.1), draw.normal(m).sign()
    features = torch.relu(x @ draw.normal(width, n).T)
    values, vectors = torch.linalg.eigh(features @ features.T)
    head, step = 0 * ones(width), 1 / float(values[-1])
    for _ in range(steps):
        head = head - step * features.T @ (features @ head - labels)
    left = float(((1 - step * values) ** steps * (vectors.T @ labels)).norm())
    yield equals("what is left of random labels", float((features @ head - labels).norm()), predicted=left, rel=1e-7)
    yield shown("every rate is positive, and in the end nothing is left", float(values[0]) > 0)
    dead, top = (-draw.uniform(width, n, low=0.1)).requires_grad_(), draw.normal(width).requires_grad_()
    loss = (torch.relu(x @ dead.T) @ top - labels).square().mean()
    size = sum(float(g.abs().sum()) for g in torch.autograd.grad(loss, [dead, top]))
    yield equals("gradient from a start with all ReLUs off", size, predicted=0.0, scale=1.0)


def uniform(draw: Draw) -> Found:
    n, m = draw.integer(40, 80), draw.integer(20, 80)
    seen = draw_counts(draw, ones(n) / n, m, 2000) > 0
    worst = (~seen).double().mean(1)  # right where a point was seen, wrong elsewhere
    yield equals("gap of the worst labelling, mean", float(worst.mean()), predicted=(1 - 1 / n) ** m, rel=0.03)


def decomposition(draw: Draw) -> Found:
    models, gap = draw.integer(3, 12), draw.number(0.1, 0.4)
    true, seen, chosen = draw.uniform(models), draw.uniform(models), draw.integer(0, models)
    bound = float(seen[chosen] - seen.min()) + 2 * float((true - seen).abs().max())
    yield below("estimation error", float(true[chosen] - true.min()), predicted=bound)
    true, seen = 0.5 + gap * torch.tensor([1.0, -1.0]).double(), 0.5 * ones(2)
    worst = float(true[0] - true.min())
    yield equals("estimation error, opposite gaps", worst, predicted=2 * float((true - seen).abs().max()))


def vc_bound(vc: float, m: float, delta: float) -> float:
    inside = 2 / m * vc * math.log(2 * math.e * m / vc) + math.log(2 / delta) / m
    return math.sqrt(inside) if inside >= 0 else math.nan


def vc(draw: Draw) -> Found:
    m = draw.integer(50, 200)
    x, ranks = draw.uniform(200, m).sort(1).values, torch.arange(m, dtype=torch.float64)
    up, down = ((ranks + 1) / m - x).max(1).values, (x - ranks / m).max(1).values
    for name, gaps, dim in (("thresholds", torch.maximum(up, down), 1), ("intervals", up + down, 2)):
        misses = float((gaps > vc_bound(dim, m, DELTA)).double().mean())
        yield below(f"share of draws in which some of the {name} break it", misses, predicted=DELTA)
    values = [vc_bound(k, m, DELTA) for k in range(1, 5 * m)]
    yield equals("largest value over VC", max(values), predicted=math.sqrt(4 + math.log(2 / DELTA) / m))
    yield equals("where: VC/m", (values.index(max(values)) + 1) / m, predicted=2.0)
    yield shown("undefined for 11 million weights and 50,000 samples", math.isnan(vc_bound(11e6, 50_000, DELTA)))


def vc_linear(draw: Draw) -> Found:
    n = draw.integer(2, 6)
    more = F.pad(draw.normal(n + 2, n), (0, 1), value=1.0)
    points = more[: n + 1]
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n + 1)), dtype=torch.float64)
    reached = int(((signs @ torch.linalg.inv(points).T @ points.T).sign() == signs).all(1).sum())
    yield equals("labellings of n+1 points reached", reached, predicted=2 ** (n + 1))
    dependence, outputs = torch.linalg.svd(more.T).Vh[-1], more @ draw.normal(n + 1, 500)
    forbidden = int((outputs.sign() == dependence.sign()[:, None]).all(0).sum())
    yield equals("random linear models with the forbidden labelling of n+2 points", forbidden, predicted=0, scale=1.0)
    always = float((dependence @ outputs).abs().max())
    yield equals("dependence times any model's outputs", always, predicted=0.0, scale=float(outputs.abs().max()))


def norms(draw: Draw) -> Found:
    m, radius, n = draw.integer(4, 9), draw.number(0.5, 3.0), draw.integer(8, 16)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=m)), dtype=torch.float64)
    x, apart = draw.normal(m, n), draw.orthogonal(m)
    first, exact = (radius / m * float((signs @ some).norm(dim=1).mean()) for some in (x, apart))
    yield below("Rademacher average, ‖W‖_F ≤ r", first, predicted=radius * float(x.norm()) / m)
    yield equals("the same, orthogonal samples", exact, predicted=radius * float(apart.norm()) / m)
    # ‖W‖ ≤ 1 and n orthonormal samples: the mean nuclear norm of signs, over n
    small, large = (float(torch.linalg.svdvals(draw.normal(20, k, k).sign()).sum(1).mean()) / k for k in (n, 4 * n))
    yield below("Rademacher average, ‖W‖ ≤ 1, against ‖X‖_F·‖Wᵀ‖_{2,1}/m", small, predicted=math.sqrt(n))
    yield equals("the same at four times the width and samples", large / small, predicted=math.sqrt(4), rel=0.1)


def pac_bayes(kl: float, m: float, delta: float) -> tuple[float, float]:
    """The slide's form and Maurer's."""
    maurer = math.sqrt((kl + math.log(2 * math.sqrt(m) / delta)) / (2 * m))
    return math.sqrt((kl + math.log(m / delta)) / (2 * m - 1)), maurer


def mcallester(draw: Draw) -> Found:
    m, models = draw.integer(20, 100), draw.integer(5, 30)
    true = draw.uniform(models)
    seen = (draw.uniform(300, m, models) < true).double().mean(1)
    posterior = torch.softmax(-m * seen, 1)
    kl = (posterior * (posterior * models).clamp_min(1e-300).log()).sum(1).clamp_min(0.0)
    limits = torch.tensor([pac_bayes(float(k), m, DELTA)[1] for k in kl])
    misses = float(((posterior * (true - seen)).sum(1) > limits).double().mean())
    yield below("share of draws that break Maurer's", misses, predicted=DELTA)
    size, weight = draw.integer(8, 5000), draw.number(0.0, 200.0)
    loose, tight = pac_bayes(weight, size, DELTA)
    yield below("Maurer's, against the slide's", tight, predicted=loose, published=loose)
    split = loose**2 * (2 * size - 1) - tight**2 * 2 * size
    yield equals("what the logarithms differ by", split, predicted=math.log(math.sqrt(size) / 2), rel=1e-6)
    for name, value, known in zip(("slide's", "Maurer's"), pac_bayes(100, 1000, 0.05), (0.2345, 0.2315), strict=True):
        yield equals(f"{name} at m = 1000, KL = 100, δ = .05", value, predicted=known, rel=5e-4)


def bn_moments(draw: Draw) -> Found:
    m, c, eps = draw.integer(5, 30), draw.integer(2, 6), draw.decade(-3.0, -1.0)
    x = draw.normal(m, c) * draw.uniform(c, low=0.05, high=1.0) + draw.normal(c)
    out, var = F.batch_norm(x, None, None, training=True, eps=eps), float(x.var(0, correction=0).min())
    yield equals("largest mean", float(out.mean(0).abs().max()), predicted=0.0, scale=1.0)
    found = float(out.var(0, correction=0).min())
    yield equals("smallest variance", found, predicted=var / (var + eps))
    yield below("the same, against 1", found, predicted=1.0, published=1.0)


def bn(draw: Draw) -> Found:
    c = draw.integer(2, 9)
    var, gamma, mean, x = draw.uniform(c, low=0.1, high=4.0), draw.normal(c), draw.normal(c), draw.normal(c)
    found = spectral_norm(jacobian(lambda v: F.batch_norm(v[None], mean, var, gamma, eps=EPS)[0], x))
    ratio = gamma.abs() / (var + EPS).sqrt()
    yield equals("constant", found, predicted=float(ratio.max()))
    yield below("the same, against the Euclidean norm", found, predicted=float(ratio.norm()))
    even = spectral_norm(jacobian(lambda v: F.batch_norm(v[None], mean, ones(c), eps=EPS)[0], x))
    yield equals("Euclidean over true, equal channels", math.sqrt(c / (1 + EPS)) / even, predicted=math.sqrt(c))


def grouped(x: Tensor, groups: int, gamma: Tensor | None = None) -> float:
    return spectral_norm(jacobian(lambda v: F.group_norm(v[None], groups, gamma, eps=EPS)[0], x))


def ln(draw: Draw) -> Found:
    n, groups = draw.integer(3, 20), draw.integer(2, 5)
    for name, count, x in (
        ("LN", 1, draw.normal(n)),
        ("GN", groups, draw.normal(n * groups)),
        ("LN at equal entries", 1, ones(n)),
    ):
        x[0] = x[1:n].mean()
        found = grouped(x, count, F.one_hot(torch.tensor(0), len(x)).double()) * root_variance(x[:n], EPS)
        yield exceeds(f"σ_ε‖J‖ for γ = e₁, {name}", found, published=1 - 1 / n)
        yield equals("the same", found, predicted=math.sqrt(1 - 1 / n))
    x, gamma = draw.normal(n), draw.normal(n)
    yield below("‖J‖ for any γ", grouped(x, 1, gamma), predicted=float(gamma.abs().max()) / root_variance(x, EPS))


def sizes(draw: Draw) -> Found:
    n, groups = draw.integer(3, 8), 2 * draw.integer(1, 4)
    x = draw.normal(n).repeat(groups)  # the same σ in groups of n, of 2n, and in all
    inverse, var = 1 / root_variance(x, EPS), x.var(correction=0) * ones(n)
    for name, count in (("LayerNorm", 1), ("groups of n", groups), ("groups of 2n", groups // 2)):
        found = grouped(x, count)
        yield exceeds(f"‖J‖, {name}", found, published=(1 - count / len(x)) * inverse)
        yield equals("the same", found, predicted=inverse)
    batch = spectral_norm(jacobian(lambda v: F.batch_norm(v[None], 0 * var, var, eps=EPS)[0], draw.normal(n)))
    yield equals("‖J‖, BatchNorm of the same σ", batch, predicted=inverse)


def l4(draw: Draw) -> Found:
    net = BatchNormNet.drawn(draw, draw.integer(2, 5), draw.integer(4, 9))
    steepest = max(spectral_norm(jacobian(net, row)) for row in draw.normal(10, net.head.shape[1]))
    weights = net.log_weights + math.log10(spectral_norm(net.head))
    largest = sum(math.log10(float((g / s).abs().max())) for g, s in zip(net.gains, net.sigmas, strict=True))
    printed = weights + net.log_euclidean
    yield below("slope, against the folded bound", math.log10(steepest), predicted=net.log_folded)
    yield below("log10 folded, against norms and max γ/σ", net.log_folded, predicted=weights + largest)
    yield below("the same, against the printed bound", weights + largest, predicted=printed, published=printed)
    depth, width = draw.integer(2, 5), draw.integer(3, 8)
    even = even_net(depth, width, draw.number(0.5, 2.0))
    found = math.log10(spectral_norm(jacobian(even, ones(width))))
    yield equals("slope of W = I, equal channels: folded", found, predicted=even.log_folded)
    over = even.log_weights + even.log_euclidean - even.log_folded
    yield equals("log10 of printed over folded there", over, predicted=depth * math.log10(width) / 2)


def even_net(depth: int, width: int, sigma: float, gain: float = 1.0) -> BatchNormNet:
    identity, flat = eye(width), ones(width)
    weights, none, var, gains = ((x,) * depth for x in (identity, 0 * flat, (sigma**2 - EPS) * flat, gain * flat))
    return BatchNormNet(weights, none, var, EPS, gains, none, identity)


def exponential(draw: Draw, depth: int = 0) -> Found:
    depth, width = depth or draw.integer(3, 6), draw.integer(5, 10)
    net, x, t = BatchNormNet.drawn(draw, depth, width), draw.normal(30, width), draw.normal(30, 3)
    other = net.rescaled([10 ** draw.uniform(width, low=1.0, high=3.0) for _ in range(depth)])
    before, after = (float((f(x) - t).abs().mean()) for f in (net, other))
    yield equals("test loss in the other scale", after, predicted=before)
    yield moves("Π‖γ/σ‖", 10**net.log_euclidean, 10**other.log_euclidean)
    yield moves("product of weight norms", 10**net.log_weights, 10**other.log_weights)
    yield equals("log10 of the folded bound", other.log_folded, predicted=net.log_folded)


def attribution(draw: Draw) -> Found:
    with torch.random.fork_rng(devices=[]):
        count = sum(isinstance(module, nn.BatchNorm2d) for module in resnet18().modules())
    yield refutes("normalizers in ResNet-18, said to have none", count, published=0)
    yield equals("the same", count, predicted=20)
    yield from exponential(draw, count)


def gradient(draw: Draw) -> Found:
    n, width = draw.integer(3, 7), draw.integer(3, 7)
    h, w, v, t = draw.normal(n), draw.normal(width, n), draw.normal(4, width), draw.normal(4)

    def loss(y: Tensor) -> Tensor:
        return (v @ torch.tanh(y) - t).square().sum()

    in_w = jacobian(lambda u: loss(u.reshape(width, n) @ h), w).reshape(width, n)
    in_y = jacobian(loss, w @ h).flatten()
    outer, way = torch.outer(in_y, h), draw.normal(width, n)
    yield equals("∂f/∂W, along a random direction, by the outer product", in_w, predicted=outer, along=way)
    yield equals("‖∂f/∂W‖", float(in_w.norm()), predicted=float(in_y.norm() * h.norm()))


def reversal(draw: Draw) -> Found:
    depth, width = draw.integer(2, 6), draw.integer(3, 7)
    for side, sigma in (("< 1", draw.number(0.3, 0.9)), ("> 1", draw.number(1.1, 3.0))):
        found = spectral_norm(jacobian(even_net(depth, width, sigma), ones(width)))
        yield equals(f"constant of W = I, σ {side}", found, predicted=sigma**-depth)
    net, x = BatchNormNet.drawn(draw, depth, width), draw.normal(5, width)
    other = net.rescaled([10 / sigma for sigma in net.sigmas])
    yield equals(
        "outputs in another scale, along a random direction", other(x), predicted=net(x), along=draw.normal(5, 3)
    )
    before, after = (min(float(s.min()) for s in f.sigmas) for f in (net, other))
    yield moves("smallest σ", before, after)


def batch(draw: Draw) -> Found:
    for m in (draw.integer(4, 10), draw.integer(40, 80)):
        found = float(draw.normal(20_000, m).var(1).std())
        yield equals(
            f"relative spread of the variance of {m} values", found, predicted=math.sqrt(2 / (m - 1)), rel=0.06
        )


def certificate(draw: Draw) -> Found:
    net = BatchNormNet.drawn(draw, draw.integer(2, 4), draw.integer(4, 8))
    x, line = draw.normal(1, net.head.shape[1]) + 0.3 * draw.uniform(40, net.head.shape[1]), draw.uniform(30, 1)
    for name, some in (("", net), (", other β", dataclasses.replace(net, shifts=tuple(b + 1 for b in net.shifts)))):
        found = spread(some(x).norm(dim=1, keepdim=True))
        yield below(f"mean change of a loss in a cell{name}", found, predicted=spread(x) * 10**net.log_folded)
    depth, gain, sigma = draw.integer(2, 5), draw.number(0.5, 2.0), draw.number(0.5, 2.0)
    found = spread(even_net(depth, 1, sigma, gain)(line))
    yield equals("mean change on a half line", found, predicted=spread(line) * (gain / sigma) ** depth)

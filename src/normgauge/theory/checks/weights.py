"""Checks: slopes in the weights and in the loss, and rates of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.certificates.bounds.cells import tau_published
from normgauge.core.claim import Curve
from normgauge.lab.zoo import extremal
from normgauge.theory.claim import Found, below, equals, exceeds, moves, refutes
from normgauge.theory.draw import DELTA, Draw, draw_counts, variation
from normgauge.theory.jacobians import jacobian, spectral_norm
from normgauge.theory.losses import grad_of, gradient_descent
from normgauge.theory.nets import Map, Stack, equal_channels, frozen_stack, live_stack, ones, random_matrices


def ell1(out: Tensor) -> Tensor:
    """The ℓ1 distance to −1, a target that no output behind a ReLU reaches."""
    return (out + 1).abs().sum()[None]


def tail(gains: Sequence[float], widths: Sequence[int]) -> Map:
    """y_i ↦ h(x) for layers of scaled truncated identities after layer i; ``widths`` begins with n_i."""
    net = extremal(gains, widths)
    return lambda y: net(y.relu()[None])[0]


def weight_slope(after: Map, h: Tensor, width: int, draw: Draw, head: Map = torch.clone) -> float:
    """The largest slope in W_i of head(after(W_i h)); all rows along h, or random."""
    candidates = [h.expand(width, -1), *(draw.normal(width, len(h)) for _ in range(5))]
    return max(spectral_norm(jacobian(lambda w: head(after(w @ h)), weight)) for weight in candidates)


def slope_at(stack: Stack, k: int, x: Tensor, head: Map = torch.clone) -> float:
    """The slope in W_i, i = k + 1, of head(h(x)) at the weights of ``stack``."""
    h, after = stack.entering(k, x), stack.after(k)
    return spectral_norm(jacobian(lambda w: head(after(w @ h)), stack.weights[k]))


def shape(draw: Draw) -> tuple[list[float], list[int], Tensor]:
    """Gains and widths of the layers after layer i, and h_{i−1}(x), which is wider than the narrowest of them."""
    depth = draw.integer(1, 4)
    widths = [draw.integer(2, 5) for _ in range(depth + 1)]
    return [draw.decade(-1, 1) for _ in range(depth)], widths, draw.uniform(draw.integer(5, 9), low=0.2)


def after_bound(stack: Stack, k: int) -> float:
    """‖W_{i+1}‖···‖W_K‖·Π_{k≥i}‖NO_k‖ for layer i = k + 1."""
    return math.prod(float(s.max()) for s in stack.inverses[k:]) * math.prod(
        spectral_norm(w) for w in stack.weights[k + 1 :]
    )


def written_out(stack: Stack, k: int, h: Tensor) -> float:
    """(10) for layer i = k + 1 with what its O hides: √n_K·‖h_{i−1}‖."""
    return after_bound(stack, k) * math.sqrt(len(stack.weights[-1])) * float(h.norm())


def theorem_12(draw: Draw) -> Found:
    (mixed, (point,), _), (flat, _) = live_stack(draw, draw.integer(2, 5)), equal_channels(draw, draw.integer(2, 5), 3)
    for what, stack, x, compare in (
        ("", mixed, point, below),
        (", equal channels", flat, draw.uniform(3, low=0.1), equals),
    ):
        k = draw.integer(0, len(stack.weights))
        h, slope = stack.entering(k, x), slope_at(stack, k, x)
        inner = spectral_norm(jacobian(stack.after(k), stack.weights[k] @ h))
        yield compare(f"slope in y_i{what}", inner, predicted=after_bound(stack, k))
        yield equals(f"slope in W_i{what}", slope, predicted=float(h.norm()) * inner, scale=max(slope, 1e-9))
        yield compare(f"slope of the loss{what}", slope_at(stack, k, x, ell1), predicted=written_out(stack, k, h))
    columns, weight = draw.normal(4, draw.integer(2, 6)), draw.normal(3, 4)
    yield equals(
        "slope of W ↦ WH for a batch",
        spectral_norm(jacobian(lambda w: w @ columns, weight)),
        predicted=spectral_norm(columns),
    )
    n, gain, shift = draw.integer(3, 9), draw.decade(-1, 1), draw.decade(-1, 1)
    v, sizes = draw.normal(n), 10 ** draw.uniform(10, low=-6, high=6)
    z = F.layer_norm(1e9 * v, (n,))
    ways = [1e9 * v, *(s * draw.normal(n, n) @ v for s in sizes)]
    lengths = [F.layer_norm(way, (n,), torch.full_like(v, gain), shift * z / z.norm()).norm() for way in ways]
    yield equals("largest output of LayerNorm", lengths[0], predicted=math.sqrt(n) * gain + shift)
    yield below("behind ten layers of all sizes", max(lengths), predicted=math.sqrt(n) * gain + shift)


def theorem_12_moving_statistics(draw: Draw) -> Found:
    m, n, outputs, eps = draw.integer(6, 10), draw.integer(3, 5), draw.integer(1, 4), draw.decade(-3, -1)
    x, weight = draw.normal(m, n), draw.normal(outputs, n)
    mean, var = (x @ weight.T).mean(0), (x @ weight.T).var(0, unbiased=False)
    printed = spectral_norm(x) * float((var + eps).rsqrt().max())
    frozen = spectral_norm(jacobian(lambda w: F.batch_norm(x @ w.T, mean, var, eps=eps), weight))
    yield equals("slope with frozen statistics", frozen, predicted=printed)

    def slope(c: float) -> float:
        return spectral_norm(
            jacobian(lambda w: F.batch_norm(x @ w.T, None, None, training=True, eps=c**2 * eps), c * weight)
        )

    z = (x @ weight.T - mean) / (var + eps).sqrt()
    bends = [torch.eye(m).double() - 1 / m - torch.outer(c, c) / m for c in z.T]
    right = max(spectral_norm(bend @ x) / math.sqrt(float(v) + eps) for bend, v in zip(bends, var, strict=True))
    yield equals("slope when they follow the weights", slope(1.0), predicted=right)
    yield below("the same, against ‖X‖/σ at these weights", slope(1.0), predicted=printed)
    yield equals("the same, weights and √ε a thousandth", slope(1e-3), predicted=1e3 * right)

    def behind(scale: float, *, following: bool) -> float:
        """The slope in W_2 with scale·I for W_1: its normalizer has the batch's statistics, or fixed ones, 0 and 1."""
        given = F.batch_norm(scale * x, None, None, training=True, eps=scale**2 * eps) if following else scale * x
        return spectral_norm(jacobian(lambda w: F.batch_norm(given @ w.T, mean, var, eps=eps), weight))

    once = behind(1.0, following=True)
    yield equals("statistics in front follow, W_1 tenfold", behind(10.0, following=True), predicted=once)
    yield equals("statistics in front are fixed, W_1 tenfold", behind(10.0, following=False), predicted=10 * printed)


def theorem_13_inputs(draw: Draw) -> Found:
    gains, widths, _ = shape(draw)
    after, kept, y, way = tail(gains, widths), min(widths), draw.normal(widths[0]), draw.normal(widths[-1])
    passing = torch.cat([y[:1].abs(), y[1:]])  # its first entry does
    out, through = after(passing).detach(), way[:kept] @ passing[:kept].clamp_min(0)
    yield equals("output, along a random direction", way @ out, predicted=math.prod(gains) * through)
    yield equals("entries behind the narrowest width", out[kept:].abs().sum(), predicted=0.0, scale=1.0)
    slope = spectral_norm(jacobian(after, draw.uniform(widths[0], low=0.1)))
    yield equals("slope in y_i where it is positive", slope, predicted=math.prod(gains))
    yield below("slope in y_i elsewhere", spectral_norm(jacobian(after, y)), predicted=math.prod(gains))


def as_printed(gains: Sequence[float], widths: Sequence[int], h: Tensor) -> float:
    """(8) and (11): a_{i+1}···a_K times the norm of h cut to the later widths."""
    return math.prod(gains) * float(h[: min(widths[1:])].norm())


def theorem_13(draw: Draw) -> Found:
    yield from cut_constant(draw, "network", torch.clone)
    h, narrow = draw.uniform(8, low=0.2), range(1, 9)
    true = tuple(weight_slope(tail([2.0], [8, k]), h, 8, draw) for k in narrow)
    lines = (("true", true), ("as printed", tuple(as_printed([2.0], [8, k], h) for k in narrow)))
    yield Curve("Slope in W_1, 8 inputs, a_2 = 2", "width of the last layer", "slope", tuple(map(float, narrow)), lines)


def corollary_14(draw: Draw) -> Found:
    yield from cut_constant(draw, "ℓ1 loss", ell1)


def cut_constant(draw: Draw, what: str, head: Map) -> Found:
    """(8) of the network, (11) of its ℓ1 loss: the printed norm of the cut h, against that of the whole."""
    gains, widths, h = shape(draw)
    cut = torch.where(torch.arange(len(h)) < min(widths[1:]), h, 0.0)
    told, rows = as_printed(gains, widths, h), min(widths) if head is ell1 else 1
    one, two = (weight_slope(tail([3.0], [1, 1]), x, 1, draw, head) for x in torch.eye(2).double())
    yield refutes(f"{what}, widths 2, 1, 1, a_2 = 3: slope in W_1 at x = (0, 1)", two, published=0.0)
    yield equals("the same, with the whole norm", two, predicted=3.0)
    yield equals("at x = (1, 0)", one, predicted=3.0, published=3.0)
    slope, of_cut = (weight_slope(tail(gains, widths), v, widths[0], draw, head) for v in (h, cut))
    whole = math.sqrt(rows) * math.prod(gains) * float(h.norm())
    yield equals(f"slope of the {what} in W_i", slope, predicted=whole, published=told)
    factor = f"√{rows} times the" if rows > 1 else "the"
    yield equals(f"the same, its input cut to the later widths: {factor} printed", of_cut, predicted=rows**0.5 * told)


def loss_and_network(draw: Draw) -> Found:
    for n, gains in ((2, [1.0]), (draw.integer(2, 9), [draw.decade(-1, 1) for _ in range(draw.integer(1, 4))])):
        h, after = draw.uniform(draw.integer(1, 6), low=0.2), tail(gains, [n] * (len(gains) + 1))
        of_net, of_loss = (weight_slope(after, h, n, draw, head) for head in (torch.clone, ell1))
        yield exceeds(f"loss against network, {n} outputs", of_loss, published=of_net)
        yield equals("loss: √n_K times the network's", of_loss, predicted=math.sqrt(n) * of_net, published=of_net)


def in_weights(gains: Sequence[float], weight: Tensor, h: Tensor, head: float, widths: Sequence[int]) -> Tensor:
    """∂L/∂W_i by autograd: mean of (tanh(c·1ᵀh_K) − 1)² over the rows of h = h_{i−1}(x), extremal layers after W_i."""
    net = extremal(gains, widths)
    return grad_of(lambda w: ((head * net((h @ w.T).relu()).sum(1)).tanh() - 1).square().mean(), weight)


def bent(u: Tensor) -> Tensor:
    """The slope of (tanh(u) − 1)², written out."""
    return 2 * (u.tanh() - 1) * (1 - u.tanh().square())


def theorem_15(draw: Draw) -> Found:
    depth, m = draw.integer(1, 4), draw.integer(2, 9)
    gains, head = [draw.decade(-0.5, 0.5) for _ in range(depth)], float(draw.normal(1))
    widths, h = [draw.integer(3, 7), *(draw.integer(2, 7) for _ in range(depth))], draw.normal(m, draw.integer(2, 6))
    weight, kept, way = draw.normal(widths[0], h.shape[1]), min(widths), draw.normal(h.shape[1])
    for sample, t in enumerate((0, kept - 1)):  # one that passes each row compared
        h[sample] *= (h[sample] @ weight[t]).sign()
    found, factor = in_weights(gains, weight, h, head, widths), head * math.prod(gains)
    slopes = bent(factor * (h @ weight.T)[:, :kept].clamp_min(0).sum(1))
    for t in (0, kept - 1):
        row = factor / m * ((h @ weight[t] > 0) * slopes) @ h
        yield equals(f"row {t + 1}, along a random direction", found[t] @ way, predicted=row @ way, scale=found.norm())
    yield equals("rows behind the narrowest width", found[kept:].norm(), predicted=0.0, scale=1.0)


def remark_16(draw: Draw) -> Found:
    depth, n, u, target = draw.integer(2, 30), draw.integer(2, 5), *draw.uniform(2, low=0.5, high=1.5)
    x, weight, a = draw.uniform(1, n, low=0.1), draw.uniform(n, n, low=0.1), draw.number(1.2, 3.0)
    for gain in (a, 1 / a, 1.0):
        scaled = u / gain**depth * weight / (weight @ x[0]).sum()  # so that u is the same at every depth
        found = in_weights([gain] * depth, scaled, x, 1.0, [n] * (depth + 1)).norm()
        size = gain**depth * math.sqrt(n) * float(x.norm() * bent(u).abs())
        yield equals(f"gradient behind {depth} gains of {gain:.2f}", found, predicted=size)
    trained = gradient_descent(
        lambda gains: (gains.relu().prod() - target).square() / 2, ones(depth), 0.3 / depth, 300
    )[-1]
    yield equals("output of a plain chain trained from gains of 1", trained.prod(), predicted=target, rel=1e-6)


def how_much_is_flat(draw: Draw) -> Found:
    depth, n, a = draw.integer(2, 5), draw.integer(2, 4), draw.number(0.7, 0.9)
    tangent = jacobian(lambda gains: (gains[:, None, None] * torch.eye(n)).flatten(), draw.uniform(depth))
    yield equals("dimension of the networks constructed", int(torch.linalg.matrix_rank(tangent)), predicted=depth)
    norms = torch.linalg.matrix_norm(draw.uniform(60_000, 2, 2, low=-1.0), 2)
    share = float((norms <= a).sum() / (norms <= 1).sum())
    yield equals(f"share with norm ≤ {a:.2f} of 2 × 2 matrices with norm ≤ 1", share, predicted=a**4, rel=0.06)


def gradients_under_normalizers(draw: Draw) -> Found:
    weights = random_matrices(draw, draw.integer(3, 6), low=6, high=10)
    x, c, i = draw.normal(5, weights[0].shape[1]), draw.decade(1, 3), draw.integer(0, len(weights) - 2)

    def size(scaled: int | None, normal: bool) -> float:
        y, leaves = x, [(c * w if k == scaled else w.clone()).requires_grad_() for k, w in enumerate(weights)]
        for leaf in leaves[:-1]:
            y = (F.layer_norm(y @ leaf.T, (len(leaf),), eps=0.0) if normal else y @ leaf.T).relu()
        return float(torch.autograd.grad((y @ leaves[-1].T).sum(), leaves[i])[0].norm())

    yield equals("LayerNorm: another layer scaled", size(i + 1, True), predicted=size(None, True))
    yield equals("LayerNorm: the layer itself scaled", size(i, True), predicted=size(None, True) / c)
    yield equals("without: another layer scaled", size(i + 1, False), predicted=size(None, False) * c)


def remark_17(draw: Draw) -> Found:
    depth, n = draw.integer(3, 7), draw.integer(1, 5)
    gains, x, i = [draw.decade(0.2, 0.8) for _ in range(depth)], draw.uniform(n, low=0.2), draw.integer(1, depth - 1)

    def slope(gains: Sequence[float], i: int) -> float:
        h = extremal(gains[:i], [n] * (i + 1))(x[None])[0].detach() if i else x
        after = tail(gains[i + 1 :], [n] * (depth - i)) if i + 1 < depth else torch.relu
        return spectral_norm(jacobian(lambda w: after(w @ h), gains[i] * torch.eye(n)))

    for k in (0, i, depth - 1):
        right = float(x.norm()) * math.prod(gains[:k] + gains[k + 1 :])
        yield equals(f"slope in layer {k + 1} of {depth}", slope(gains, k), predicted=right)
    grown, told = slope([2 * a for a in gains], i) / slope(gains, i), 2.0 ** (depth - 1 - i)
    yield equals(f"layer {i + 1}: all gains doubled, over before", grown, predicted=2.0 ** (depth - 1), published=told)
    yield exceeds("the same, against s_{i+1}···s_K doubled", grown, published=told)
    even = tuple(slope([gains[0]] * depth, k) for k in range(depth))
    lines = (("true", even), ("s_{i+1}···s_K·‖x‖", tuple(float(x.norm()) * gains[0] ** k for k in range(depth)[::-1])))
    yield Curve("Equal gains", "layer", "slope in W_i", tuple(k + 1.0 for k in range(depth)), lines, log_y=True)


def factor_of_normalizers(draw: Draw) -> Found:
    flat, _ = equal_channels(draw, draw.integer(2, 6), draw.integer(2, 5), same=True)
    k, n, depth = draw.integer(0, len(flat.weights)), len(flat.weights[0]), len(flat.weights)
    plain = replace(flat, variances=((1 - flat.eps) * torch.ones(n).double(),) * depth)
    with_, without = (spectral_norm(jacobian(net.after(k), torch.ones(n))) for net in (flat, plain))
    sigma, printed = float((flat.variances[0][0] + flat.eps).sqrt()), float(flat.inverses[0].norm()) ** (depth - k)
    yield equals("slope in y_i, with over without normalizers", with_ / without, predicted=sigma ** (-depth + k))
    yield equals(
        "factor with ‖1/σ_k‖, over the true one", printed / (with_ / without), predicted=n ** ((depth - k) / 2)
    )
    stack = frozen_stack(draw, draw.integer(2, 5), on=True)
    factors = [draw.decade(0.5, 2) for _ in stack.weights]
    other, k, x = stack.rescaled(factors), draw.integer(0, len(factors)), draw.normal(stack.weights[0].shape[1])
    before, after = (math.prod(float(s.max()) for s in net.inverses[k:]) for net in (stack, other))
    yield moves("Π_{k≥i}‖NO_k‖", before, after)
    yield equals("moved by the factors chosen", after, predicted=before / math.prod(factors[k:]))
    way, n = draw.normal(len(stack(x))), len(stack.weights[k])
    units, c = stack.rescaled([10 ** draw.uniform(len(w), low=0.5, high=2) for w in stack.weights]), draw.integer(0, n)

    def weighed(s: Stack) -> float:
        slopes = jacobian(lambda w: s.after(k)(w @ s.entering(k, x)), s.weights[k])
        return float(s.weights[k][c].norm()) * spectral_norm(slopes.reshape(len(slopes), n, -1)[:, c])

    for what, same in (("scaled by layers", other), ("scaled by units", units)):
        yield equals(f"output, {what}, along a random direction", way @ same(x), predicted=way @ stack(x))
        yield equals(f"a unit's ‖w‖ times the slope in w, {what}", weighed(same), predicted=weighed(stack))


def other_networks(draw: Draw) -> Found:
    gains, x = [draw.decade(-1, 1) for _ in range(draw.integer(2, 8))], draw.uniform(3, low=1e-14, high=1e-13)

    def slope(layer: Callable[[Tensor, float], Tensor]) -> float:
        return spectral_norm(jacobian(lambda y: reduce(layer, gains, y), x))

    yield equals("constant with tanh", slope(lambda y, a: (a * y).tanh()), predicted=math.prod(gains))
    yield equals("constant with leaky ReLU", slope(lambda y, a: F.leaky_relu(a * y)), predicted=math.prod(gains))
    grown = math.prod(1 + a for a in gains)
    yield equals("constant with residual connections", slope(lambda y, a: y + (a * y).relu()), predicted=grown)


def oracle_steps(n: int, slope: float, length: float, mu: float = 0.0) -> int:
    """Steps of ``length`` along the coordinates an oracle names, until slope·max(w_i) + (μ/2)‖w‖² is below its start.

    It names one it has not named yet, as it may: all of them are largest.
    """
    w = torch.zeros(n, dtype=torch.float64)
    for step in range(1, 2 * n):
        w[int(w.argmax())] -= length
        if slope * float(w.max()) + mu / 2 * float(w @ w) < -1e-9 * slope * length:
            return step
    return 2 * n


def rate_convex(draw: Draw) -> Found:
    n, t, (slope, radius) = draw.integer(5, 40), draw.integer(20, 60), draw.uniform(2, low=0.5, high=5.0).tolist()
    alpha = slope * radius / math.sqrt(n)  # what −slope·max(w) is at most in the ball
    steps = oracle_steps(n, slope, radius / math.sqrt(n))
    yield equals("steps on slope·max(w) until the gap is below α", steps, predicted=(slope * radius / alpha) ** 2)
    rows, away, gaps = draw.normal(8, 6), draw.normal(6), []
    lipschitz, w = float(rows.norm(dim=1).max()), radius * away / away.norm()
    for _ in range(t):
        worst = int((rows @ w).abs().argmax())
        gaps.append(float((rows @ w)[worst].abs()))
        w = w - radius / (lipschitz * math.sqrt(t)) * rows[worst] * (rows @ w)[worst].sign()
    yield below("best gap of T subgradient steps on max|aᵢ·w|", min(gaps), predicted=lipschitz * radius / math.sqrt(t))


def brute_minimum(n: int, slope: float, mu: float) -> float:
    """The minimum of slope·max(w_i) + (μ/2)‖w‖², over a fine grid of w = −t·1: by symmetry it lies there."""
    grid = torch.linspace(0, 3 * slope / (mu * n), 30001, dtype=torch.float64)
    return float((-slope * grid + mu / 2 * n * grid**2).min())


def rate_strong(draw: Draw) -> Found:
    n, slope, mu = draw.integer(5, 40), *draw.uniform(2, low=1.0, high=2.0).tolist()
    alpha, steps = -brute_minimum(n, slope, mu), oracle_steps(n, slope, slope / (mu * n), mu)
    lipschitz = slope + mu * (slope / mu)  # the largest subgradient in the ball that holds the minimum
    yield equals("steps until the gap is below α", steps, predicted=lipschitz**2 / (8 * mu * alpha), rel=1e-6)
    yield below("the same with L for L²/μ, L ≥ μ", lipschitz / (8 * alpha), predicted=steps)


def rate_stationary(draw: Draw) -> Found:
    slope, theta = draw.number(0.5, 3.0), draw.number(0.1, 0.9)
    alpha, doublings = slope / draw.number(2.0, 5.0), draw.integer(5, 20)
    low, high, needed, smallest = 0.0, 1.0, 0, math.inf
    for step in range(1, 41):
        middle = (low + high) / 2
        gradient = slope if middle > theta else -slope
        low, high = (low, middle) if gradient > 0 else (middle, high)
        smallest = min(smallest, abs(gradient))
        needed = needed or (step if high - low <= 2.0**-doublings else 0)
    yield below("L/α, against the steps that did not suffice", slope / alpha, predicted=40)
    yield equals("smallest gradient met in 40 steps", smallest, predicted=slope)
    yield exceeds("the same, against the α asked for", smallest, published=alpha)
    yield equals("steps until gradients of both signs lie within δ = 2⁻ᵏ", needed, predicted=doublings)


def goldstein_steps(slope: float, start: float, delta: float) -> int:
    """Steps of length δ down slope·|w| until gradients of both signs lie within δ."""
    w, steps = start, 0
    while slope * (w - delta) > 0:
        w, steps = w - delta, steps + 1
    return steps


def goldstein_rate(lipschitz: float, gap: float, delta: float, alpha: float, power: int = 3) -> float:
    """L²Δ/(δα³), or LΔ/(δα²) with ``power`` 2, without constants."""
    return lipschitz ** (power - 1) * gap / (delta * alpha**power)


def rate_nonconvex(draw: Draw) -> Found:
    slope, delta = draw.number(0.5, 3.0), draw.number(0.01, 0.1)
    start, c = (draw.integer(5, 60) + 0.5) * delta, draw.number(2.0, 5.0)
    steps = goldstein_steps(slope, start, delta)
    for power, law in ((2, "LΔ/(δα²)"), (3, "L²Δ/(δα³)")):
        for what, (a, b) in (("", (1.0, 1.0)), (", loss × c", (c, 1.0)), (", weights × c", (1 / c, c))):
            told = goldstein_rate(slope * a, slope * start * a * b, delta * b, slope * a, power)
            again = goldstein_steps(slope * a, start * b, delta * b)
            yield equals(f"steps on slope·|w| to α = L, by {law}{what}", again, predicted=math.floor(told))
    error = (slope**2 * slope * start / (delta * steps)) ** (1 / 3)
    yield below("gradient left before the last of T steps, against (L²Δ/(δT))^(1/3)", slope, predicted=error)


def c18(draw: Draw) -> Found:
    n, gains, h = draw.integer(2, 5), draw.uniform(3, low=0.5, high=3.0).tolist(), draw.uniform(4, low=0.1)
    weight, target = draw.uniform(n, 4, low=0.1), draw.uniform(n, low=0.5)
    for scale in (1.0, 100.0):
        net, p = extremal([scale * a for a in gains], [n] * 4), scale**3 * math.prod(gains)

        def loss(w: Tensor) -> Tensor:
            return (net((w @ h).relu()[None])[0] - target).square().sum() / 2  # noqa: B023

        first = grad_of(loss, weight)
        size = p * float((p * weight @ h - target).norm() * h.norm())
        yield equals(f"gradient in W_i, s_{{i+1}}···s_K = {p:.3g}", first.norm(), predicted=size)
        left = grad_of(loss, weight - first / (p**2 * h @ h)).norm()
        yield equals("the same after one step", left, predicted=0.0, scale=first.norm())


def t1(draw: Draw) -> Found:
    n, m, slope, trials = draw.integer(4, 12), draw.integer(80, 200), draw.number(0.2, 2.0), 300
    x = draw.uniform(trials, m)
    gaps = slope * (0.5 - (x * n - (x * n).floor()).mean(1)).abs() / n
    met = torch.stack([((x * n).floor() == i).any(1) for i in range(n)]).sum(0)
    limits = torch.tensor([slope / n * (1 + tau_published(int(t), n, m, DELTA)) for t in met])
    yield below("share of draws that break (6)", float((gaps > limits).double().mean()), predicted=DELTA)
    p = torch.full((n,), 1 / n, dtype=torch.float64)
    sides = float(variation(p, draw_counts(draw, p, m, trials)).max())
    yield below("largest gap of any model constant on cells", sides, predicted=tau_published(n, n, m, DELTA))
    large, constant = 1e14, (math.sqrt(2) + 1) * math.sqrt(n * math.log(2 * m / DELTA))
    yield equals("√m·g, m large", math.sqrt(large) * tau_published(n, m, large, DELTA), predicted=constant, rel=1e-4)


def smaller_constants(draw: Draw) -> Found:
    m, slope, fine = draw.integer(10, 40), draw.number(2.0, 9.0), 100_000
    x, grid = draw.uniform(m).sort().values, (torch.arange(fine) + 0.5) / fine
    loss = slope * (torch.searchsorted(x, grid) / m - grid).sign().cumsum(0) / fine  # the one misjudged most
    gap = float(loss.mean() - loss[(x * fine).long()].mean())
    low, high = x - torch.arange(m) / m, (torch.arange(m) + 1) / m - x
    apart = float((low * low.abs() + high * high.abs()).sum() / 2)  # ∫ of the distance of quantiles
    yield equals("largest gap of a loss with constant L", gap, predicted=slope * apart, rel=1e-3)
    flat = abs(slope / 2 - float((0 - slope * x).abs().mean()))
    yield exceeds("gap of the network 0 for labels L·x, against ‖h‖_Lip", flat, published=0.0)


def lla(draw: Draw) -> Found:
    size, c, (tau, slope) = draw.decade(-2, -1), draw.decade(0.5, 1), draw.uniform(2, low=0.5, high=3.0).tolist()

    def samples(mu: float) -> float:
        low, high = 10.0, 1e30
        for _ in range(200):
            m = math.sqrt(low * high)
            low, high = (m, high) if math.log(m) / (mu * math.sqrt(m)) > size else (low, m)
        return low

    few, many = samples(0.1), samples(0.1 / c)
    logs = math.log(many) / math.log(few)
    yield equals("samples for noise μ/c, over those for μ", many / few, predicted=(c * logs) ** 2)
    yield below("c², against the same", c**2, predicted=many / few)
    grid = torch.logspace(-6, 12, 180_001, dtype=torch.float64)

    def power(bound: Callable[[float], torch.Tensor]) -> float:
        return math.log10(float(bound(1e9).min() / bound(1e6).min())) / 3

    found = power(lambda m: tau * grid**2 / 2 + 1 / (grid * math.sqrt(m)))
    yield equals("power of m in (LLA), at the best μ", found, predicted=-1 / 3, rel=1e-5)
    for n in (1, draw.integer(2, 10)):
        found = power(lambda m: slope * grid ** (-1 / n) + (grid / m).sqrt())  # noqa: B023
        yield equals(f"power of m in (13), best even cells in {n} dimensions", found, predicted=-1 / (n + 2), rel=1e-5)

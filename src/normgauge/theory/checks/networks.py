"""Checks: Lipschitz constants of whole networks, with and without normalizers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.lab.zoo import extremal
from normgauge.theory.checks.attention import steep_point
from normgauge.theory.checks.normalizers import TINY, chord, parts, sideways, spread, touching
from normgauge.theory.claim import Found, below, equals, exceeds, moves
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian, jacobian_slope, spectral_norm
from normgauge.theory.nets import (
    Map,
    Stack,
    equal_channels,
    frozen_stack,
    layer_norm,
    live_stack,
    norm_product,
    ones,
    random_matrices,
)


def growth_with_depth(draw: Draw) -> Found:
    n, depth = draw.integer(3, 8), draw.integer(3, 7)
    x = draw.normal(1, n)
    before = float(x.square().sum())
    for branch in (draw.orthogonal(n) for _ in range(depth)):
        x = torch.cat([x + x @ branch, x - x @ branch])
    yield equals(f"mean square behind {depth} blocks", x.square().sum(1).mean(), predicted=2**depth * before)


def steepest(function: Map, low: float = -8.0, high: float = 8.0) -> float:
    """The largest |f'| on an interval."""
    return jacobian_slope(function, steep_point(function, low, high))


def activations(draw: Draw) -> Found:
    a, n = draw.number(0.01, 0.9), draw.integer(2, 8)
    yield equals("leaky ReLU", steepest(lambda x: F.leaky_relu(x, a)), predicted=1.0)
    for name, constant in {"relu": 1.0, "tanh": 1.0, "sigmoid": 1 / 4}.items():
        yield equals(name, steepest(getattr(torch, name)), predicted=constant)
    found = max(spectral_norm(jacobian(lambda v: F.softmax(v, 0), 3 * draw.normal(n))) for _ in range(5))
    yield below("softmax at five random points", found, predicted=1 / 2)
    logits = draw.normal(n) - 50
    logits[:2] = draw.normal(1)
    yield equals(
        "softmax with two leading logits", spectral_norm(jacobian(lambda v: F.softmax(v, 0), logits)), predicted=1 / 2
    )
    gelu = (1 + math.erf(1)) / 2 + math.sqrt(2) * math.exp(-1) / math.sqrt(2 * math.pi)
    larger = {"gelu": gelu, "silu": 1.0998393, "mish": 1.0884980, "hardswish": 3 / 2, "selu": 1.7580993}
    shift = draw.number()  # another grid each time
    for name, constant in larger.items():
        yield equals(name, steepest(getattr(F, name), -8 - shift, 8 - shift), predicted=constant, rel=1e-6)


def relu_net(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """h_k = ReLU(W_k h_{k−1}), one vector or rows."""
    for weight in weights:
        x = F.relu(x @ weight.T)
    return x


def live_chain(draw: Draw) -> tuple[list[Tensor], Tensor]:
    """Random weights of a ReLU network, and a point where it is not 0: else they are drawn again."""
    while True:
        weights = random_matrices(draw, draw.integer(2, 5), low=3)
        x = draw.normal(weights[0].shape[1])
        if relu_net(weights, x).any():
            return weights, x


def lemma_5(draw: Draw) -> Found:
    weights, x, cells = random_matrices(draw, draw.integer(2, 5)), draw.normal(5, 7), draw.integer(2, 5)
    acts = [(F.relu, torch.tanh, torch.sigmoid, torch.sin)[draw.integer(0, 4)] for _ in weights]

    def net(v: Tensor) -> Tensor:
        for weight, act in zip(weights, acts, strict=True):
            v = act(weight @ v)
        return v

    found = max(spectral_norm(jacobian(net, v[: weights[0].shape[1]])) for v in x)
    yield below("largest slope of five points", found, predicted=norm_product(weights))
    ways = [draw.uniform(w, low=0.1) for w in (weights[0].shape[1], *map(len, weights))]
    aligned = [draw.decade(-1, 1) * torch.outer(b / b.norm(), a / a.norm()) for a, b in itertools.pairwise(ways)]
    top = spectral_norm(jacobian(lambda v: relu_net(aligned, v), ways[0]))
    yield equals("each matrix feeds the next one's top direction", top, predicted=norm_product(aligned))
    line, loss = list(draw.uniform(len(weights), 1, 1, low=0.5, high=2.0)), draw.normal(1)  # linear in the output
    data = draw.uniform(cells, 12, 1) + torch.arange(cells)[:, None, None]
    apart, change = (float(torch.cdist(c, c).mean()) for c in (data, loss * relu_net(line, data)))
    yield equals(
        "mean change of a loss over cells of a line", change, predicted=loss.abs() * norm_product(line) * apart
    )


def beyond_plain_chains(draw: Draw) -> Found:
    n, gain, peak = draw.integer(2, 8), draw.decade(-2, 1), 0.01 * draw.normal(7, 7)
    block = spectral_norm(jacobian(lambda x: x + F.relu(gain * x), draw.uniform(n, low=0.1)))
    yield equals("residual block x + ReLU(a x)", block, predicted=1 + gain)
    peak[2, 2] = 1.0  # four windows meet here
    pool = spectral_norm(jacobian(lambda x: F.max_pool2d(x[None, None], 3, stride=2), peak))
    yield equals("3×3 max-pool of stride 2 around a peak", pool, predicted=math.sqrt(math.ceil(3 / 2) ** 2))


def theorem_6(draw: Draw) -> Found:
    depth, a = draw.integer(3, 7), draw.number(1.2, 3.0)
    widths, gains = [draw.integer(1, 8) for _ in range(depth + 1)], [draw.decade(-1, 1) for _ in range(depth)]

    def slope(gains: list[float], x: Tensor) -> float:
        return spectral_norm(jacobian(lambda v: extremal(gains, widths)(v[None])[0], x))

    x, weight, positive = draw.normal(widths[0]), draw.normal(widths[-1]), draw.uniform(widths[0], low=0.1)
    product = math.prod(gains)
    yield equals("slope at a positive point", slope(gains, positive), predicted=product, published=product)
    yield below("slope anywhere", slope(gains, x), predicted=math.prod(gains))
    x = torch.cat([x[:1].abs(), x[1:]])  # its first entry passes
    out, formula = extremal(gains, widths)(x[None])[0].detach(), math.prod(gains) * x[: min(widths)].clamp_min(0)
    yield equals("output, along a random direction", weight @ out, predicted=weight[: min(widths)] @ formula)
    yield equals(f"{depth} layers of gain {a:.2f}", slope([a] * depth, positive), predicted=a**depth)
    yield equals(f"{depth} layers of gain 1/{a:.2f}", slope([1 / a] * depth, positive), predicted=a**-depth)
    split = draw.number(0.1, 0.9)
    uneven = [a**split, a ** (1 - split), *[1.0] * (depth - 2)]
    yield equals("one constant, other gains", slope(uneven, positive), predicted=a)
    yield equals("Lemma 5", norm_product(list(extremal(gains, widths).parameters())), predicted=math.prod(gains))


def same_function(draw: Draw, what: str, printed: Callable[[Stack], float], power: int) -> Found:
    """A printed number of a network, and of the same function with the weights' scale changed."""
    stack, (x,), slope = live_stack(draw, draw.integer(2, 5))
    factors = [draw.decade(1, 3) for _ in stack.weights]
    other, weight = stack.rescaled(factors), draw.normal(len(stack.weights[-1]))
    yield moves(what, printed(stack), printed(other))
    yield equals("moved by the factors chosen", printed(other), predicted=printed(stack) * math.prod(factors) ** power)
    yield equals("output, along a random direction", weight @ other(x), predicted=weight @ stack(x))
    yield equals("slope at a point", spectral_norm(jacobian(other, x)), predicted=slope)
    yield equals("folded product", norm_product(other.folded), predicted=norm_product(stack.folded))
    decades = tuple(float(k) for k in range(-3, 4))
    copies = [stack.rescaled([10**k] * len(factors)) for k in decades]
    lines = (
        (what, tuple(printed(c) for c in copies)),
        ("folded product", tuple(norm_product(c.folded) for c in copies)),
    )
    yield Curve("One function, seven ways", "log10 of the weights' scale", "product", decades, lines, log_y=True)


def product_of_norms(draw: Draw) -> Found:
    yield from same_function(draw, "P_w", lambda stack: norm_product(stack.weights), 1)
    weights, x = live_chain(draw)
    spread, even = torch.logspace(-3, 3, 7).double(), draw.decade(-3, 3)
    ways = [spread[torch.arange(len(w)) % 7] for w in weights[:-1]]  # the factors of each hidden unit
    units, whole = ([*weights], [*weights])
    for k, d in enumerate(ways):
        units[k : k + 2] = d[:, None] * units[k], units[k + 1] / d
        whole[k : k + 2] = even * whole[k], whole[k + 1] / even
    yield moves("P_w of a ReLU network, its units rescaled", norm_product(weights), norm_product(units))
    yield equals("P_w, its layers rescaled", norm_product(whole), predicted=norm_product(weights))
    there, way = relu_net(weights, x), draw.normal(len(weights[-1]))
    yield equals("its output, along a random direction", relu_net(units, x), predicted=there, along=way)
    slope = spectral_norm(jacobian(lambda v: relu_net(weights, v), x))
    yield below("its slope, against P_w of the copy", slope, predicted=norm_product(units))


def product_of_deviations(draw: Draw) -> Found:
    yield from same_function(draw, "Π‖1/σ_k‖", lambda stack: math.prod(float(s.norm()) for s in stack.inverses), -1)


def constants_and_fit(draw: Draw) -> Found:
    n, m, scale = draw.integer(2, 6), draw.integer(20, 40), draw.decade(2, 6)
    teacher, guess, test, x = draw.normal(n), draw.normal(n), draw.normal(200, n), draw.normal(m, n)
    yield moves("constant of a classifier", spectral_norm(guess[None]), spectral_norm(scale * guess[None]))
    wrong = ((test @ (scale * guess)).sign() != (test @ teacher).sign()).double().mean()
    yield equals("its test error", wrong, predicted=((test @ guess) * (test @ teacher) < 0).double().mean())
    for size in (scale, 1 / scale):
        fitted = torch.linalg.lstsq(x, (x @ (size * teacher))[:, None]).solution[:, 0]
        yield equals("constant, fitted to a target as steep", fitted.norm(), predicted=size * teacher.norm())
        yield equals("its test error", (test @ (fitted / size - teacher)).norm(), predicted=0.0, scale=1.0)


def bounds(stack: Stack) -> tuple[float, float, float, float]:
    """P_w times Π max 1/σ_k, times Π‖1/σ_k‖₂, and times (max_k‖1/σ_k‖₂)^K; and Π‖diag(1/σ_k)W_k‖."""
    weight = norm_product(stack.weights)
    lengths = [math.sqrt(float((s**2).sum())) for s in stack.inverses]
    largest = math.prod(float(s.max()) for s in stack.inverses)
    return (
        weight * largest,
        weight * math.prod(lengths),
        weight * max(lengths) ** len(lengths),
        norm_product(stack.folded),
    )


def theorem_9(draw: Draw) -> Found:
    depth, channels = draw.integer(2, 5), draw.integer(2, 7)
    (stack, _, found), layer = live_stack(draw, depth, points=5), frozen_stack(draw, 1, on=True)
    separate, _, _, folded = bounds(stack)
    yield below("largest slope of five points", found, predicted=folded, published=separate)
    yield below("folded bound, against Theorem 9's", folded, predicted=separate, published=separate)
    slope = jacobian_slope(layer, draw.normal(layer.weights[0].shape[1]))
    yield equals(
        "slope of one layer, its ReLUs on: the folded norm",
        slope,
        predicted=bounds(layer)[3],
        published=bounds(layer)[0],
    )
    two = Stack((torch.tensor([[1.0], [-1.0]]).double(),), (torch.zeros(2).double(),), (ones(2) - TINY,), TINY)
    slope = jacobian_slope(two, draw.normal(1))
    yield equals("slope with the activation, W = (1, −1)ᵀ", slope, predicted=1.0, published=math.sqrt(2))
    flat, slope = equal_channels(draw, depth, channels)
    met = bounds(flat)[0]
    yield equals("equal channels: Theorem 9 is met", slope, predicted=met, published=met)


def corollary_10_1(draw: Draw) -> Found:
    depth, channels = draw.integer(2, 5), draw.integer(2, 7)
    stack, _, found = live_stack(draw, depth, points=5)
    separate, first, _, folded = bounds(stack)
    yield below("largest slope of five points", found, predicted=folded, published=first)
    yield below("Theorem 9's bound, with the largest entries, against (1)", separate, predicted=first, published=first)
    flat, slope = equal_channels(draw, depth, channels)
    separate, first, _, _ = bounds(flat)
    yield equals("equal channels: slope", slope, predicted=separate, published=first)
    yield equals(f"(1) over slope, C = {channels}, K = {depth}: √C^K", first / slope, predicted=channels ** (depth / 2))


def corollary_10_2(draw: Draw) -> Found:
    depth, channels = draw.integer(2, 5), draw.integer(2, 7)
    stack, _, found = live_stack(draw, depth, points=5)
    _, first, second, folded = bounds(stack)
    yield below("largest slope of five points", found, predicted=folded, published=second)
    yield below("bound (1), against (2)", first, predicted=second, published=second)
    alike, slope = equal_channels(draw, depth, channels, same=True)
    separate, _, second, _ = bounds(alike)
    yield equals("layers alike: slope", slope, predicted=separate, published=second)
    yield equals(
        f"(2) over slope, C = {channels}, K = {depth}: √C^K", second / slope, predicted=channels ** (depth / 2)
    )


def batch_norm_reduces(draw: Draw) -> Found:
    n, other = draw.integer(2, 5), draw.decade(-2, 3)
    x, scale = draw.normal(4000, n), 10.0

    def normalized(gain: float) -> Stack:
        first = gain * x
        second = -gain * ((first - first.mean(0)) / (first.var(0) + TINY).sqrt()).relu()
        eye, both = gain * torch.eye(n).double(), (first, second)
        return Stack((eye, -eye), tuple(y.mean(0) for y in both), tuple(y.var(0) for y in both), TINY)

    plain, net, just_on = (-scale * (scale * x).relu()).relu(), normalized(scale), x.mean(0) + 1e-6
    slope = spectral_norm(jacobian(net, just_on))
    yield exceeds("slope with BatchNorm, W = ±10·I, against that without", slope, published=0.0)
    yield equals("largest output without BatchNorm, a constant 0", plain.max(), predicted=0.0, scale=1.0)
    yield below("largest 1/σ, against 1/5", max(float(s.max()) for s in net.inverses), predicted=1 / 5)
    yield equals("slope with BatchNorm", slope, predicted=scale**2 * (net.inverses[0] * net.inverses[1]).max())
    again = spectral_norm(jacobian(normalized(other), just_on))
    yield equals(f"the same, W = ±{other:.3g}·I", again, predicted=slope)
    most = norm_product(net.weights) / 5**2
    yield below("bound P_w·Π max 1/σ_k, W = ±10·I, against P_w/5²", bounds(net)[0], predicted=most)


def chain(weights: Sequence[Tensor], x: Tensor, eps: float) -> tuple[Tensor, list[Tensor]]:
    """h_k = ReLU(LayerNorm(W_k h_{k−1})) of one vector, and what each LayerNorm was given."""
    given = []
    for weight in weights:
        given.append(weight @ x)
        x = layer_norm(given[-1], eps).relu()
    return x, given


def steep(weights: Sequence[Tensor], x: Tensor, eps: float) -> float:
    """The norm of the chain's Jacobian at x."""
    return spectral_norm(jacobian(lambda v: chain(weights, v, eps)[0], x))


def at_point(weights: Sequence[Tensor], x: Tensor, eps: float) -> float:
    """P_w·Π1/σ_k with the σ_k met at x."""
    return norm_product(weights) / math.prod(float(spread(v, eps)) for v in chain(weights, x, eps)[1])


def corollary_11(draw: Draw) -> Found:
    depth, eps = draw.integer(1, 4), draw.decade(-3, -1)
    weights = random_matrices(draw, depth, low=3, high=8)
    found = max(steep(weights, s * draw.normal(weights[0].shape[1]), eps) for s in (1.0, 1e-2, 1e-4))
    yield below("largest slope of three points", found, predicted=norm_product(weights) * eps ** (-depth / 2))
    gains, widths = [draw.decade(-1, 1) for _ in range(depth)], [draw.integer(3, 8) for _ in range(depth + 1)]
    net, ray = extremal(gains, widths, "layer", eps=eps), torch.where(torch.arange(widths[0]) < 2, 1.0, -1.0).double()
    near = spectral_norm(jacobian(lambda v: net(v[None])[0], 1e-12 * ray))
    yield equals("scaled identities near zero", near, predicted=math.prod(gains) * eps ** (-depth / 2), rel=1e-7)


def layer_norm_reduces(draw: Draw) -> Found:
    eps, n = draw.decade(-5, -3), draw.integer(3, 8)
    data, constant = 10 * draw.normal(40, n), draw.normal(1).expand(n)
    seen, least = (math.sqrt(float(x.var(-1, correction=0).min()) + eps) for x in (data, constant))
    yield below("Lemma 2's σ, against the smallest of the data", least, predicted=seen)
    yield equals("Lemma 2's σ", least, predicted=math.sqrt(eps))
    eye, example = [torch.eye(3).double()], torch.tensor([10.0, 4.0, -14.0], dtype=torch.float64)
    near = steep(eye, 1e-9 * example, 1e-5)
    yield exceeds(
        "slope near zero, against 1/σ of the data ±(10, 4, −14)", near, published=at_point(eye, example, 1e-5)
    )
    yield equals("slope near zero", near, predicted=100 * math.sqrt(10), rel=1e-7)
    apart = [(layer_norm(x, eps) - layer_norm(y, eps)).norm() / (x - y).norm() for x, y in itertools.pairwise(data)]
    yield below("steepest secant between data", max(apart), predicted=1 / seen)
    weights = [draw.orthogonal(6) * draw.decade(0, 1) for _ in range(draw.integer(1, 4))]
    x = 10 * draw.normal(6)
    yield below("slope at a data point", steep(weights, x, eps), predicted=at_point(weights, x, eps))
    one = spectral_norm(jacobian(lambda v: layer_norm(weights[0] @ v, eps), x))
    yield equals("one orthogonal layer: the slope at its data point", one, predicted=at_point(weights[:1], x, eps))


def certified(weights: Sequence[Tensor], x: Tensor, reach: float, eps: float) -> tuple[float, float]:
    """Constant and displacement of a chain over ‖x' − x‖ ≤ reach, layer by layer."""
    constant = 1.0
    for weight, v in zip(weights, chain(weights, x, eps)[1], strict=True):
        root, sigma, size = math.sqrt(len(v)), float(spread(v, 0.0)), float(spread(v, eps))
        reach = spectral_norm(weight) * reach
        slope = 1 / math.sqrt(max(0.0, sigma - reach / root) ** 2 + eps)
        constant = constant * spectral_norm(weight) * slope
        q = reach / (root * size)
        reach = min(reach * slope, chord(len(v), q) if q < 1 else math.inf, root * (1 + sigma / size))
    return constant, reach


def certified_ball(draw: Draw) -> Found:
    eps, weights = draw.decade(-5, -3), random_matrices(draw, draw.integer(1, 4), low=6, high=10)
    x = draw.normal(weights[0].shape[1])
    for radius in (1e-3, 1e-1, 1.0):
        constant, reach = certified(weights, x, radius, eps)
        there = [x + radius * step / step.norm() for step in draw.normal(6, len(x))]
        yield below(f"slope within {radius:g}", max(steep(weights, v, eps) for v in there), predicted=constant)
        gone = max(float((chain(weights, v, eps)[0] - chain(weights, x, eps)[0]).norm()) for v in there)
        yield below(f"displacement within {radius:g}", gone, predicted=reach)
    turn, y, q = 3.0 * draw.orthogonal(8), draw.normal(8), draw.number(0.1, 0.9)
    (sigma, unit), centre = parts(y), turn.T @ y / 9
    radius = q * math.sqrt(8) * sigma  # behind the layer; a third of it before

    def gone_to(v: Tensor, eps: float) -> float:
        return float((layer_norm(turn @ (turn.T @ v / 9), eps) - layer_norm(turn @ centre, eps)).norm())

    worst = spectral_norm(jacobian(lambda v: layer_norm(turn @ v, eps), turn.T @ (y - radius * unit) / 9))
    yield equals("one orthogonal layer: slope attained", worst, predicted=certified([turn], centre, radius / 3, eps)[0])
    found = gone_to(touching(y, radius, sideways(draw, unit)), TINY)
    yield equals("displacement attained", found, predicted=certified([turn], centre, radius / 3, TINY)[1])
    yield equals("beyond the origin", gone_to(-1e9 * unit, eps), predicted=certified([turn], centre, 1e9, eps)[1])


def lla(draw: Draw) -> Found:
    n, mu = draw.integer(3, 10), draw.number(0.1, 0.5)
    root, noise = draw.normal(n, n), mu * torch.cat([torch.eye(n), -torch.eye(n)]).double()
    # ±μe_i, one at a time, have the mean 0 and the covariance μ²/n of the noise: exact for a quadratic
    cost = float((noise @ root).square().sum(1).mean() / 2)
    yield equals("mean loss under the noise, minus the loss", cost, predicted=mu**2 / (2 * n) * (root @ root.T).trace())
    yield below("the same, against τμ²/2", cost, predicted=spectral_norm(root) ** 2 * mu**2 / 2)
    even = float((noise @ draw.orthogonal(n)).square().sum(1).mean() / 2)
    yield equals("the same, all eigenvalues 1", even, predicted=mu**2 / 2)


def weight_normalization(draw: Draw) -> Found:
    k, n, rho = draw.integer(2, 6), draw.integer(3, 8), draw.number(0.5, 5.0)
    x, head, top, drawn = draw.uniform(n, low=0.1), draw.normal(n), torch.eye(n).double()[:1], draw.normal(k, n, n)

    def constant(weights: Sequence[Tensor], last: Tensor) -> float:
        return rho * spectral_norm(last @ jacobian(lambda v: relu_net(weights, v), x))

    found = constant([w / w.norm() for w in drawn], head[None] / head.norm())
    yield below("constant of a random one", found, predicted=rho)
    yield equals("constant of rank-one layers", constant([top.T @ top] * k, top), predicted=rho)
    flat = constant([torch.eye(n).double() / math.sqrt(n)] * k, top)
    yield equals("constant of equal-singular-value layers", flat, predicted=rho * n ** (-k / 2))

"""Checks: networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.ledger.checks.learning import spread
from normgauge.ledger.checks.normalizers import TINY, around, parts, sideways, tangent
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.nets import BatchNormNet, Stack, decade, equal_channels, frozen_stack, matrices, product, rescaled
from normgauge.zoo import extremal

Activation = Callable[[Tensor], Tensor]


def steepest(function: Activation, low: float = -8.0, high: float = 8.0) -> float:
    """The largest |f'| on an interval: a grid, then finer ones around the best point."""
    best, x = 0.0, 0.0
    for _ in range(4):
        grid = torch.linspace(low, high, 801, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(function(grid).sum(), grid)
        x, best = float(grid.detach()[slope.abs().argmax()]), max(best, float(slope.abs().max()))
        low, high = x - (high - low) / 400, x + (high - low) / 400
    return best


def named_activations(draw: Draw) -> Found:
    a = float(draw.uniform(1, low=0.01, high=0.9))
    yield equal("ReLU", steepest(F.relu), predicted=1.0)
    yield equal("leaky ReLU, slope below zero", steepest(lambda x: F.leaky_relu(x, a), -8, -1), predicted=a)
    yield equal("leaky ReLU", steepest(lambda x: F.leaky_relu(x, a)), predicted=1.0)
    yield equal("tanh", steepest(torch.tanh), predicted=1.0)
    yield equal("sigmoid", steepest(torch.sigmoid), predicted=1 / 4)
    n = draw.integer(2, 8)
    found = max(norm(jacobian(lambda v: F.softmax(v, 0), 3 * draw.normal(n))) for _ in range(5))
    yield below("softmax at five random points", found, predicted=1 / 2)
    logits = draw.normal(n) - 50
    logits[:2] = draw.normal(1)
    yield equal("softmax with two leading logits", norm(jacobian(lambda v: F.softmax(v, 0), logits)), predicted=1 / 2)


def other_activations(draw: Draw) -> Found:
    phi = math.exp(-1) / math.sqrt(2 * math.pi)
    gelu = (1 + math.erf(1)) / 2 + math.sqrt(2) * phi
    gate = 1 / (1 + math.exp(-2.399357280520))
    silu = gate * (1 + 2.399357280520 * (1 - gate))
    soft = math.log1p(math.exp(1.490571))
    mish = math.tanh(soft) + 1.490571 * (1 - math.tanh(soft) ** 2) / (1 + math.exp(-1.490571))
    shift = float(draw.uniform(1))  # another grid each time
    for name, function, constant in (
        ("GELU", F.gelu, gelu),
        ("SiLU", F.silu, silu),
        ("Mish", F.mish, mish),
        ("Hardswish", F.hardswish, 3 / 2),
        ("SELU", F.selu, 1.0507009873554805 * 1.6732632423543772),
    ):
        found = steepest(function, -8 - shift, 8 - shift)
        yield equal(name, found, predicted=constant, published=1.0, rel=1e-6)
        yield exceeds(f"{name} against 1", found, published=1.0)


def lemma_5(draw: Draw) -> Found:
    weights = matrices(draw, draw.integer(2, 5))
    acts = [(F.relu, torch.tanh, torch.sigmoid, torch.sin)[draw.integer(0, 4)] for _ in weights]

    def net(x: Tensor) -> Tensor:
        for weight, act in zip(weights, acts, strict=True):
            x = act(weight @ x)
        return x

    found = max(norm(jacobian(net, draw.normal(weights[0].shape[1]))) for _ in range(5))
    yield below("largest slope of five points", found, predicted=product(weights))
    ways = [draw.uniform(len(weight), low=0.1) for weight in weights]
    ways = [way / way.norm() for way in [draw.uniform(weights[0].shape[1], low=0.1), *ways]]
    gains = [decade(draw, -1, 1) for _ in weights]
    aligned = [g * torch.outer(ways[k + 1], ways[k]) for k, g in enumerate(gains)]

    def chain(x: Tensor) -> Tensor:
        for weight in aligned:
            x = F.relu(weight @ x)
        return x

    yield equal(
        "each matrix feeds the next one's top direction", norm(jacobian(chain, ways[0])), predicted=product(aligned)
    )


def beyond_plain_chains(draw: Draw) -> Found:
    n, gain = draw.integer(2, 8), decade(draw, -2, 1)
    weight = draw.normal(n, n)
    block = norm(jacobian(lambda x: x + weight @ x, draw.normal(n)))
    yield below("residual block x + Wx", block, predicted=1 + norm(weight))
    block = norm(jacobian(lambda x: x + F.relu(gain * x), draw.uniform(n, low=0.1)))
    yield equal("residual block x + ReLU(a x)", block, predicted=1 + gain, published=gain)
    yield exceeds("residual block against P_w", block, published=gain)
    peak = 0.01 * draw.normal(7, 7)
    peak[2, 2] = 1.0  # four windows meet here

    def pool(x: Tensor) -> Tensor:
        return F.max_pool2d(x[None, None], 3, stride=2)

    yield equal("max-pool around a peak", norm(jacobian(pool, peak)), predicted=math.sqrt(math.ceil(3 / 2) ** 2))
    yield exceeds("max-pool against 1", norm(jacobian(pool, peak)), published=1.0)


def theorem_6(draw: Draw) -> Found:
    depth = draw.integer(2, 6)
    gains = [decade(draw, -1, 1) for _ in range(depth)]
    widths = [draw.integer(1, 8) for _ in range(depth + 1)]
    net, x, weight = extremal(gains, widths), draw.normal(widths[0]), draw.normal(widths[-1])

    def single(v: Tensor) -> Tensor:
        return net(v[None])[0]

    yield equal("slope at a positive point", norm(jacobian(single, x.abs() + 0.1)), predicted=math.prod(gains))
    yield below("slope anywhere", norm(jacobian(single, x)), predicted=math.prod(gains))
    kept = min(widths)
    formula = math.prod(gains) * x[:kept].clamp_min(0)
    yield equal("output, along a random direction", (weight @ single(x)).detach(), predicted=weight[:kept] @ formula)


def remark_7(draw: Draw) -> Found:
    depth, width, a = draw.integer(3, 9), draw.integer(1, 5), float(draw.uniform(1, low=1.2, high=3.0))

    def slope(gains: Sequence[float]) -> float:
        net = extremal(list(gains), [width] * (len(gains) + 1))
        return norm(jacobian(lambda v: net(v[None])[0], draw.uniform(width, low=0.1)))

    yield equal(f"{depth} layers of gain {a:.2f}", slope([a] * depth), predicted=a**depth)
    yield equal(f"{depth} layers of gain 1/{a:.2f}", slope([1 / a] * depth), predicted=a**-depth)
    target = float(draw.uniform(1, high=a**depth))
    split = float(draw.uniform(1, low=0.1, high=0.9))
    even = [target ** (1 / depth)] * depth
    uneven = [target**split, target ** (1 - split), *[1.0] * (depth - 2)]
    yield equal("a constant chosen at random", slope(even), predicted=target)
    yield equal("the same constant with other gains", slope(uneven), predicted=target)
    bound = product(list(extremal(uneven, [width] * (depth + 1)).parameters()))
    yield equal("Lemma 5 met", slope(uneven), predicted=bound)
    depths = [float(k) for k in range(1, 21)]
    lines = tuple((f"gain {g}", tuple(g**k for k in depths)) for g in (0.5, 1.0, 2.0))
    yield Curve("Constant of the extremal network", "depth", "constant", tuple(depths), lines, log_y=True)


def figure_1_as_evidence(draw: Draw) -> Found:
    stack = frozen_stack(draw, depth=draw.integer(2, 5))
    factors = [decade(draw, 1, 3) for _ in stack.weights]
    other = rescaled(stack, factors)
    x, weight = draw.normal(stack.weights[0].shape[1]), draw.normal(len(stack.weights[-1]))
    yield moves("P_w", product(stack.weights), product(other.weights))
    yield equal("output, along a random direction", weight @ other(x), predicted=weight @ stack(x))
    before, after = (math.prod(norm(w) for w in s.folded) for s in (stack, other))
    yield equal("folded product", after, predicted=before)
    yield equal(
        "P_w moved by the factors chosen", product(other.weights), predicted=math.prod(factors) * product(stack.weights)
    )
    decades = [float(k) for k in range(-3, 4)]
    copies = [rescaled(stack, [10**k] * len(factors)) for k in decades]
    lines = (
        ("P_w", tuple(product(c.weights) for c in copies)),
        ("folded product", tuple(math.prod(norm(w) for w in c.folded) for c in copies)),
    )
    yield Curve(
        "One function, written in seven ways",
        "log10 of the weights' scale",
        "product",
        tuple(decades),
        lines,
        log_y=True,
    )


def constants_and_fit(draw: Draw) -> Found:
    n, m, scale = draw.integer(2, 6), draw.integer(20, 40), decade(draw, 2, 6)
    teacher, guess, test = draw.normal(n), draw.normal(n), draw.normal(200, n)

    def errors(w: Tensor) -> float:
        return float(((test @ w).sign() != (test @ teacher).sign()).double().mean())

    yield moves("constant of a classifier", norm(guess[None]), norm(scale * guess[None]))
    yield equal("its test error", errors(scale * guess), predicted=errors(guess))
    for name, size in (("steep", scale), ("flat", 1 / scale)):
        x = draw.normal(m, n)
        fitted = torch.linalg.lstsq(x, (x @ (size * teacher))[:, None]).solution[:, 0]
        wrong = (test @ (fitted - size * teacher)).square().mean().sqrt()
        yield equal(f"constant of a network fitted to a {name} target", fitted.norm(), predicted=size * teacher.norm())
        yield equal("its test error", wrong, predicted=0.0, scale=size)


def steepest_stacks(stack: Stack, draw: Draw) -> float:
    """The largest slope of a stack at five random points."""
    return max(norm(jacobian(stack, draw.normal(stack.weights[0].shape[1]))) for _ in range(5))


def separate(stack: Stack) -> float:
    """P_w·Π‖NO_k‖: matrices and normalizers one by one."""
    return product(stack.weights) * math.prod(float(s.max()) for s in stack.inverses)


def in_l2(stack: Stack) -> float:
    """P_w·Π‖1/σ_k‖₂."""
    return product(stack.weights) * math.prod(math.sqrt(float((s**2).sum())) for s in stack.inverses)


def by_the_worst(stack: Stack) -> float:
    """σ^−K·P_w, σ the smallest 1/‖1/σ_k‖₂."""
    sigma = min(1 / math.sqrt(float((s**2).sum())) for s in stack.inverses)
    return sigma ** -len(stack.weights) * product(stack.weights)


def theorem_9(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5))
    folded = math.prod(norm(s[:, None] * w) for s, w in zip(stack.inverses, stack.weights, strict=True))
    yield below(
        "largest slope of five points", steepest_stacks(stack, draw), predicted=folded, published=separate(stack)
    )
    yield below("folded bound against the printed one", folded, predicted=separate(stack))
    layer = frozen_stack(draw, 1, on=True)
    slope = norm(jacobian(layer, draw.normal(layer.weights[0].shape[1])))
    single = norm(layer.inverses[0][:, None] * layer.weights[0])
    yield equal("slope of one layer: the folded norm", slope, predicted=single, published=separate(layer))
    flat, slope = equal_channels(draw, 3, draw.integer(2, 6))
    yield equal("equal channels: the printed bound is met", slope, predicted=separate(flat))


def corollary_10_first(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5))
    yield below("largest slope of five points", steepest_stacks(stack, draw), predicted=in_l2(stack))
    yield below("with the largest entry instead", separate(stack), predicted=in_l2(stack))
    depth, channels = draw.integer(2, 5), draw.integer(2, 7)
    flat, slope = equal_channels(draw, depth, channels)
    slack = channels ** (depth / 2)
    yield equal("equal channels: printed over slope is √C^K", slack * slope, predicted=in_l2(flat))
    yield equal("with the largest entry it is met", slope, predicted=separate(flat), published=in_l2(flat))
    widths = [2.0**k for k in range(1, 10)]
    lines = tuple((f"{k} layers", tuple(math.sqrt(c) ** k for c in widths)) for k in (1, 5, 20))
    yield Curve("Printed bound / true constant", "channels C", "ratio", tuple(widths), lines, log_x=True, log_y=True)


def corollary_10_second(draw: Draw) -> Found:
    depth = draw.integer(2, 5)
    stack = frozen_stack(draw, depth)
    yield below("largest slope of five points", steepest_stacks(stack, draw), predicted=by_the_worst(stack))
    yield below("first form against the second", in_l2(stack), predicted=by_the_worst(stack))
    channels = draw.integer(2, 7)
    flat, slope = equal_channels(draw, depth, channels, same=True)
    slack = channels ** (depth / 2)
    yield equal("layers all alike: printed over slope is √C^K", slack * slope, predicted=by_the_worst(flat))
    yield equal("with the largest entry it is met", slope, predicted=separate(flat), published=by_the_worst(flat))


def batch_norm_reduces(draw: Draw) -> Found:
    depth, width = draw.integer(3, 9), draw.integer(1, 4)
    batch, far = draw.normal(200, width), torch.full((width,), 1e6).double()

    def slope(gain: float) -> float:
        net = extremal([gain] * depth, [width] * (depth + 1), "batch", batch=batch, eps=1e-14)
        return norm(jacobian(lambda v: net(v[None])[0], far))

    value, passing = batch, torch.ones(width).double()
    for _ in range(depth):
        passing = passing / value.var(0, unbiased=False).sqrt()
        value = ((value - value.mean(0)) / value.var(0, unbiased=False).sqrt()).clamp_min(0)
    small, large = decade(draw, -2, -1), decade(draw, 1, 2)
    yield equal("normalized, small gains", slope(small), predicted=passing.max(), published=small**depth)
    yield equal("normalized, large gains", slope(large), predicted=passing.max(), published=large**depth)
    yield exceeds("small gains: normalized against unnormalized", slope(small), published=small**depth)
    plain = extremal([small] * depth, [width] * (depth + 1))
    yield equal("unnormalized", norm(jacobian(lambda v: plain(v[None])[0], far)), predicted=small**depth)
    gains = [10 ** (k / 4) for k in range(-4, 5)]
    lines = (
        ("without normalizers", tuple(g**depth for g in gains)),
        ("with BatchNorm", tuple(slope(g) for g in gains)),
    )
    yield Curve(f"{depth} layers of a·I", "gain a", "constant", tuple(gains), lines, log_x=True, log_y=True)


def reduction_factor(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5))
    factors = [decade(draw, 0.5, 2) for _ in stack.weights]
    other = rescaled(stack, factors)
    before, after = (math.prod(float(s.norm()) for s in net.inverses) for net in (stack, other))
    x = draw.normal(stack.weights[0].shape[1])
    weight = draw.normal(len(stack.weights[-1]))
    yield moves("Π‖1/σ_k‖", before, after)
    yield equal("moved by the factors chosen", after, predicted=before / math.prod(factors))
    yield equal("output, along a random direction", weight @ other(x), predicted=weight @ stack(x))
    yield equal("slope at a point", norm(jacobian(other, x)), predicted=norm(jacobian(stack, x)))
    yield equal("folded product", product(other.folded), predicted=product(stack.folded))


def chain(weights: Sequence[Tensor], x: Tensor, eps: float) -> Tensor:
    """h_k = ReLU(LayerNorm(W_k h_{k−1})) of one vector."""
    for weight in weights:
        x = F.layer_norm(weight @ x, weight.shape[:1], eps=eps).relu()
    return x


def entering(weights: Sequence[Tensor], x: Tensor, eps: float) -> list[Tensor]:
    """What each LayerNorm of the chain is given."""
    return [weight @ chain(weights[:k], x, eps) for k, weight in enumerate(weights)]


def at_point(weights: Sequence[Tensor], x: Tensor, eps: float) -> float:
    """P_w·Π1/σ_k with the σ_k met at x."""
    spreads = [float(v.var(unbiased=False) + eps) ** -0.5 for v in entering(weights, x, eps)]
    return product(weights) * math.prod(spreads)


def corollary_11(draw: Draw) -> Found:
    depth, eps = draw.integer(1, 4), decade(draw, -3, -1)
    weights = matrices(draw, depth, low=3, high=8)
    found = max(
        norm(jacobian(lambda v: chain(weights, v, eps), s * draw.normal(weights[0].shape[1])))
        for s in (1.0, 1e-2, 1e-4)
    )
    yield below("largest slope of three points", found, predicted=product(weights) * eps ** (-depth / 2))
    gains, widths = [decade(draw, -1, 1) for _ in range(depth)], [draw.integer(3, 8) for _ in range(depth + 1)]
    net = extremal(gains, widths, "layer", eps=eps)
    ray = torch.full((widths[0],), -1.0).double()
    ray[:2] = 1.0
    near = norm(jacobian(lambda v: net(v[None])[0], 1e-12 * ray))
    yield equal("scaled identities near zero", near, predicted=math.prod(gains) * eps ** (-depth / 2), rel=1e-7)


def layer_norm_reduces(draw: Draw) -> Found:
    depth, eps = draw.integer(1, 4), decade(draw, -5, -3)
    weights = [draw.orthogonal(6) * decade(draw, 0, 1) for _ in range(depth)]
    data = 10 * draw.normal(6, 6)
    pointwise = []
    for x in data:
        pointwise.append(at_point(weights, x, eps))
        yield below(
            "slope at a data point", norm(jacobian(lambda v: chain(weights, v, eps), x)), predicted=pointwise[-1]
        )
    near = 1e-9 * draw.normal(6)
    elsewhere = max(norm(jacobian(lambda v: chain(weights, v, eps), s * near)) for s in (1.0, -1.0))
    yield exceeds("slope near zero against the data's bound", elsewhere, published=max(pointwise))
    one = norm(jacobian(lambda v: F.layer_norm(weights[0] @ v, (6,), eps=eps), data[0]))
    yield equal("one orthogonal layer: the slope at its data point", one, predicted=at_point(weights[:1], data[0], eps))


def certified_ball(draw: Draw) -> Found:
    eps = decade(draw, -5, -3)
    weights = matrices(draw, draw.integer(1, 4), low=6, high=10)
    x = draw.normal(weights[0].shape[1])
    for radius in (1e-3, 1e-1, 1.0):
        constant, reach = certified(weights, x, radius, eps)
        steps = draw.normal(6, len(x))
        there = [x + radius * step / step.norm() for step in steps]
        found = max(norm(jacobian(lambda v: chain(weights, v, eps), v)) for v in there)
        yield below(f"slope within {radius:g}", found, predicted=constant)
        gone = max(float((chain(weights, v, eps) - chain(weights, x, eps)).norm()) for v in there)
        yield below(f"displacement within {radius:g}", gone, predicted=reach)
    turn, y = [3.0 * draw.orthogonal(8)], draw.normal(8)
    sigma, unit = parts(y)

    def put_through(v: Tensor, eps: float) -> Tensor:
        return F.layer_norm(turn[0] @ v, (8,), eps=eps)

    def back(v: Tensor) -> Tensor:
        return turn[0].T @ v / 9

    q = float(draw.uniform(1, low=0.1, high=0.9))
    radius = q * math.sqrt(8) * sigma  # behind the layer; a third of it before
    slope = norm(jacobian(lambda v: put_through(v, eps), back(y - radius * unit)))
    yield equal("one orthogonal layer: slope attained", slope, predicted=certified(turn, back(y), radius / 3, eps)[0])
    touching = around(y, radius, tangent(q), sideways(draw, unit))
    gone = float((put_through(back(touching), TINY) - put_through(back(y), TINY)).norm())
    yield equal("displacement attained", gone, predicted=certified(turn, back(y), radius / 3, TINY)[1])
    mirror = float((put_through(back(-1e9 * unit), eps) - put_through(back(y), eps)).norm())
    yield equal("displacement beyond the origin", mirror, predicted=certified(turn, back(y), 1e9, eps)[1])
    radii = [10 ** (k / 4) for k in range(-16, 5)]
    lines = (
        ("certified over the ball", tuple(certified(weights, there[0], r, eps)[0] for r in radii)),
        ("over all inputs", (product(weights) * eps ** (-len(weights) / 2),) * len(radii)),
    )
    yield Curve(f"{len(weights)} LayerNorms", "radius", "constant", tuple(radii), lines, log_x=True, log_y=True)


def certified(weights: Sequence[Tensor], x: Tensor, reach: float, eps: float) -> tuple[float, float]:
    """Constant and displacement of a chain over ‖x' − x‖ ≤ reach, layer by layer."""
    constant = 1.0
    for weight, v in zip(weights, entering(weights, x, eps), strict=True):
        root, sigma = math.sqrt(len(v)), float(v.var(unbiased=False).sqrt())
        size = math.sqrt(sigma**2 + eps)
        reach = norm(weight) * reach
        slope = 1 / math.sqrt(max(0.0, sigma - reach / root) ** 2 + eps)
        constant = constant * norm(weight) * slope
        q = reach / (root * size)
        chord = 2 * root * math.sin(math.asin(q) / 2) if q < 1 else math.inf
        reach = min(reach * slope, chord, root * (1 + sigma / size))
    return constant, reach


DELTA = 0.1


def _affine_loss(gains: Tensor, slope: float, x: Tensor) -> Tensor:
    for a in gains:
        x = torch.relu(a * x)
    return slope * x


def c22_plain(draw: Draw) -> Found:
    k, cells, slope = draw.integer(2, 6), draw.integer(2, 5), float(draw.uniform(1, low=0.5, high=3.0))
    gains = draw.uniform(k, low=0.5, high=2.0)
    x = draw.uniform(cells, 12, 1) + torch.arange(cells)[:, None, None]
    change = sum(spread(_affine_loss(gains, slope, c)) for c in x) / cells
    distance = sum(spread(c) for c in x) / cells
    yield equal("mean change of the loss over the cells", change, predicted=slope * float(gains.prod()) * distance)
    n = draw.integer(3, 7)
    weights, direction = [draw.normal(n, n) for _ in range(k)], draw.normal(n)

    steep = norm(jacobian(lambda v: directed(v, weights, direction), draw.normal(n)))
    yield below("gradient of a random net's loss", steep, predicted=plain_bound(weights, direction))
    diagonal = [float(a) * torch.eye(n, dtype=torch.float64) for a in gains]
    exact = norm(jacobian(lambda v: directed(v, diagonal, direction), draw.uniform(n, low=0.5)))
    yield equal("the same, W_k = a_k·I", exact, predicted=plain_bound(diagonal, direction))


def directed(v: Tensor, weights: list[Tensor], direction: Tensor) -> Tensor:
    """A ReLU net and a loss that is linear in its output."""
    for w in weights:
        v = torch.relu(w @ v)
    return direction @ v


def plain_bound(weights: list[Tensor], direction: Tensor) -> float:
    """L_f·P_w."""
    return float(direction.norm()) * math.prod(norm(w) for w in weights)


def c22_batch(draw: Draw) -> Found:
    k, n = draw.integer(2, 6), draw.integer(3, 8)
    gains, x = draw.uniform(k, low=0.5, high=2.0), draw.uniform(n, low=0.5, high=2.0)
    sigmas = draw.uniform(k, n, low=0.5, high=2.0)

    def net(v: Tensor, sigma: Tensor) -> Tensor:
        for a, s in zip(gains, sigma, strict=True):
            v = torch.relu(a * v / s)
        return v

    found = norm(jacobian(lambda v: net(v, sigmas), x))
    largest, printed = channel_bounds(gains, sigmas)
    yield below("constant with BatchNorm", found, predicted=largest)
    yield below("the same, against the printed bound", found, predicted=printed, published=printed)
    even = sigmas[:1, :1].expand(k, n)
    tight = norm(jacobian(lambda v: net(v, even), x))
    steps = draw.uniform(k, 1, low=0.5, high=2.0).expand(k, n)  # another σ in every layer, one for its channels
    uneven = norm(jacobian(lambda v: net(v, steps), x))
    yield equal("constant, equal channels in each layer", uneven, predicted=channel_bounds(gains, steps)[0])
    yield equal("printed over true, all channels equal", channel_bounds(gains, even)[1] / tight, predicted=n ** (k / 2))


def channel_bounds(gains: Tensor, sigmas: Tensor) -> tuple[float, float]:
    """Πa_k·Πmax_c 1/σ_{k,c}, and the printed Πa_k·(max_k‖1/σ_k‖₂)^K."""
    largest = float(gains.prod() / sigmas.min(1).values.prod())
    return largest, float(gains.prod()) * float((1 / sigmas).norm(dim=1).max()) ** len(sigmas)


def c22_layer(draw: Draw) -> Found:
    k, n, eps = draw.integer(2, 5), draw.integer(3, 8), 10 ** float(draw.uniform(1, low=-5.0, high=-2.0))
    gains = draw.uniform(k, low=0.5, high=2.0)

    def net(v: Tensor) -> Tensor:
        for a in gains:
            v = torch.tanh(F.layer_norm(a * v, (n,), eps=eps))
        return v

    constant = draw.normal(1).expand(n)
    yield equal(
        "constant at a constant input", norm(jacobian(net, constant)), predicted=float(gains.prod()) * eps ** (-k / 2)
    )
    v, seen = 3 * draw.normal(n), float(gains.prod())
    for a in gains:
        seen /= math.sqrt(float((a * v).var(correction=0)) + eps)
        v = torch.tanh(F.layer_norm(a * v, (n,), eps=eps))
    yield exceeds("the same, against Π1/σ_k seen at a sample", norm(jacobian(net, constant)), published=seen)


def c22_reduction(draw: Draw) -> Found:
    depth, width = draw.integer(3, 6), draw.integer(6, 12)
    net, t = BatchNormNet.drawn(draw, depth, width), 10 ** float(draw.uniform(1, low=1.0, high=3.0))
    other, x = net.rescaled([torch.full((width,), t, dtype=torch.float64)] * depth), draw.normal(20, width)
    change = float((other(x) - net(x)).abs().max())
    yield equal("largest change of an output", change, predicted=0.0, scale=float(net(x).abs().max()))
    yield moves("Π1/σ", 10**net.log_reduction, 10**other.log_reduction)
    yield equal("log10 of Π1/σ, moved by", other.log_reduction - net.log_reduction, predicted=-depth * math.log10(t))


def lla(draw: Draw) -> Found:
    n, mu = draw.integer(3, 10), float(draw.uniform(1, low=0.1, high=0.5))
    root = draw.normal(n, n)
    hessian = root @ root.T
    noise = torch.cat([torch.eye(n, dtype=torch.float64), -torch.eye(n, dtype=torch.float64)]) * mu
    # ±μe_i, one at a time, have the mean 0 and the covariance μ²/n of the noise: exact for a quadratic
    cost = float((noise @ hessian * noise).sum(1).mean() / 2)
    yield equal("mean loss under the noise, minus the loss", cost, predicted=mu**2 / (2 * n) * float(hessian.trace()))
    tau = float(torch.linalg.eigvalsh(hessian)[-1])
    yield below("the same, against τμ²/2", cost, predicted=tau * mu**2 / 2)
    even = float((tau * noise * noise).sum(1).mean() / 2)
    yield equal("the same, all eigenvalues τ", even, predicted=tau * mu**2 / 2)
    c, m = float(draw.uniform(1, low=0.5, high=3.0)), draw.integer(1000, 100_000)
    grid = torch.logspace(-4, 2, 60_001, dtype=torch.float64)
    best = float((tau * grid**2 / 2 + c / (grid * math.sqrt(m))).min())
    yield equal(
        "both terms at the best μ", best, predicted=1.5 * tau ** (1 / 3) * (c / math.sqrt(m)) ** (2 / 3), rel=1e-5
    )


def wn(draw: Draw) -> Found:
    k, n, rho = draw.integer(2, 6), draw.integer(3, 8), float(draw.uniform(1, low=0.5, high=5.0))
    x, head = draw.uniform(n, low=0.1), draw.normal(n)
    head = rho * head / head.norm()

    def net(v: Tensor, weights: list[Tensor], last: Tensor) -> Tensor:
        for w in weights:
            v = torch.relu(w @ v)
        return last @ v

    drawn = [draw.normal(n, n) for _ in range(k)]
    drawn = [w / w.norm() for w in drawn]
    yield below("constant of a random one", norm(jacobian(lambda v: net(v, drawn, head), x)), predicted=rho)
    unit = torch.zeros(n, n, dtype=torch.float64)
    unit[0, 0] = 1.0
    last = rho * unit[0]
    yield equal("constant of rank-one layers", norm(jacobian(lambda v: net(v, [unit] * k, last), x)), predicted=rho)
    spread = torch.eye(n, dtype=torch.float64) / math.sqrt(n)
    flat = norm(jacobian(lambda v: net(v, [spread] * k, last), x))
    yield refutes("constant of equal-singular-value layers, against ρ", flat, published=rho)
    yield equal("the same", flat, predicted=rho * n ** (-k / 2))

"""Checks: weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.nets import Stack, decade, equal_channels, frozen_stack, matrices, rescaled
from normgauge.zoo import extremal


def tail(gains: Sequence[float], widths: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """y_i ↦ h(x) for layers of scaled truncated identities after layer i; ``widths`` begins with n_i."""
    net = extremal(gains, widths)
    return lambda y: net(y.relu()[None])[0]


def weight_slope(after: Callable[[Tensor], Tensor], h: Tensor, width: int, draw: Draw, loss: bool = False) -> float:
    """The largest slope in W_i of after(W_i h), or of its ℓ1 distance to a target; all rows along h, or random."""

    def output(weight: Tensor) -> Tensor:
        out = after(weight @ h)
        return (out + 1).abs().sum().reshape(1) if loss else out

    candidates = [h.expand(width, -1), *(draw.normal(width, len(h)) for _ in range(5))]
    return max(norm(jacobian(output, weight)) for weight in candidates)


def shape(draw: Draw) -> tuple[list[float], list[int], Tensor]:
    """Gains and widths of the layers after layer i, and h_{i−1}(x), which is wider than the narrowest of them."""
    depth = draw.integer(1, 4)
    widths = [draw.integer(2, 5) for _ in range(depth + 1)]
    return [decade(draw, -1, 1) for _ in range(depth)], widths, draw.uniform(draw.integer(5, 9), low=0.2)


def after_bound(stack: Stack, k: int) -> float:
    """‖W_{i+1}‖···‖W_K‖·Π_{k≥i}‖NO_k‖ for layer i = k + 1."""
    return math.prod(float(s.max()) for s in stack.inverses[k:]) * math.prod(norm(w) for w in stack.weights[k + 1 :])


def theorem_12_entering(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5))
    k = draw.integer(0, len(stack.weights))
    x = draw.normal(stack.weights[0].shape[1])
    h, weight, after = stack.entering(k, x), stack.weights[k], stack.after(k)
    slope = norm(jacobian(lambda w: after(w @ h), weight))
    inner = norm(jacobian(after, weight @ h))
    yield equal("slope in W_i at one input", slope, predicted=float(h.norm()) * inner, scale=max(slope, 1e-9))
    columns = draw.normal(weight.shape[1], draw.integer(2, 6))
    yield equal("slope of W ↦ WH for a batch", norm(jacobian(lambda w: w @ columns, weight)), predicted=norm(columns))
    n, gain, shift = draw.integer(3, 9), decade(draw, -1, 1), decade(draw, -1, 1)
    v = draw.normal(n)
    z = F.layer_norm(1e9 * v, (n,))
    cap = math.sqrt(n) * gain + shift
    out = F.layer_norm(1e9 * v, (n,), torch.full_like(v, gain), shift * z / z.norm())
    yield equal("largest output of LayerNorm", out.norm(), predicted=cap)
    sizes = 10 ** draw.uniform(10, low=-6, high=6)
    gains, bias = draw.normal(n), draw.normal(n)
    longest = max(float(F.layer_norm(s * draw.normal(n, n) @ v, (n,), gains, bias).norm()) for s in sizes)
    cap = math.sqrt(n) * float(gains.abs().max()) + float(bias.norm())
    yield below("behind ten other layers of all sizes", longest, predicted=cap)


def theorem_12_after(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5))
    k = draw.integer(0, len(stack.weights))
    y = stack.weights[k] @ stack.entering(k, draw.normal(stack.weights[0].shape[1]))
    yield below("slope in y_i", norm(jacobian(stack.after(k), y)), predicted=after_bound(stack, k))
    flat, _ = equal_channels(draw, draw.integer(2, 5), draw.integer(2, 5))
    k = draw.integer(0, len(flat.weights) - 1)
    ones = torch.ones(len(flat.weights[0])).double()
    slope = norm(jacobian(flat.after(k), ones))
    yield equal("slope in y_i, equal channels", slope, predicted=after_bound(flat, k))
    last = frozen_stack(draw, 1, on=True)
    slope = norm(jacobian(last.after(0), draw.normal(len(last.weights[0]))))
    yield equal("slope in y_K", slope, predicted=after_bound(last, 0))


def theorem_12_moving_statistics(draw: Draw) -> Found:
    m, n, outputs, eps = draw.integer(6, 10), draw.integer(3, 5), draw.integer(1, 4), decade(draw, -3, -1)
    x, weight = draw.normal(m, n), draw.normal(outputs, n)
    mean, var = (x @ weight.T).mean(0), (x @ weight.T).var(0, unbiased=False)
    frozen = norm(jacobian(lambda w: F.batch_norm(x @ w.T, mean, var, eps=eps), weight))
    printed = norm(x) * float((var + eps).rsqrt().max())
    yield equal("slope with frozen statistics", frozen, predicted=printed)

    def slope(w: Tensor, eps: float) -> float:
        return norm(jacobian(lambda v: F.batch_norm(x @ v.T, None, None, training=True, eps=eps), w))

    def formula(eps: float) -> float:
        z = (x @ weight.T - mean) / (var + eps).sqrt()
        bends = [torch.eye(m).double() - 1 / m - torch.outer(c, c) / m for c in z.T]
        return max(norm(bend @ x) / math.sqrt(float(v) + eps) for bend, v in zip(bends, var, strict=True))

    yield equal("slope when they follow the weights", slope(weight, eps), predicted=formula(eps))
    shrink = decade(draw, -4, -3)
    smaller = slope(shrink * weight, shrink**2 * eps)
    yield equal("the same for smaller weights, and ε with them", smaller, predicted=formula(eps) / shrink)
    yield exceeds("smaller weights against the frozen bound", smaller, published=printed)


def extremal_tail(draw: Draw) -> Found:
    gains, widths, _ = shape(draw)
    y, weight = draw.normal(widths[0]), draw.normal(widths[-1])
    kept = min(widths)
    formula = math.prod(gains) * weight[:kept] @ y[:kept].clamp_min(0)
    out = tail(gains, widths)(y).detach()
    yield equal("output, along a random direction", weight @ out, predicted=formula)
    yield equal("entries behind the narrowest width", out[kept:].abs().sum(), predicted=0.0, scale=1.0)


def theorem_13_weights(draw: Draw) -> Found:
    gains, widths, h = shape(draw)
    after, kept = tail(gains, widths), min(widths[1:])
    slope = weight_slope(after, h, widths[0], draw)
    printed = math.prod(gains) * math.sqrt(float((h[:kept] ** 2).sum()))
    yield equal("largest slope in W_i", slope, predicted=math.prod(gains) * float(h.norm()), published=printed)
    yield refutes("largest slope against the printed one", slope, published=printed)
    cut = torch.where(torch.arange(len(h)) < kept, h, 0.0)
    yield equal(
        "the printed one is that of the cut input", weight_slope(after, cut, widths[0], draw), predicted=printed
    )
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    example = weight_slope(tail([3.0], [1, 1]), x, 1, draw)
    yield equal("x = (0, 1), widths 2, 1, 1, a_2 = 3", example, predicted=3.0, published=3.0 * float(x[:1].norm()))
    yield refutes("x = (0, 1), widths 2, 1, 1, a_2 = 3", example, published=3.0 * float(x[:1].norm()))
    h = draw.uniform(8, low=0.2)
    narrow = list(range(1, 9))
    lines = (
        ("true", tuple(weight_slope(tail([2.0], [8, k]), h, 8, draw) for k in narrow)),
        ("as printed", tuple(2 * float(h[:k].norm()) for k in narrow)),
    )
    yield Curve("Slope in W_1, 8 inputs, a_2 = 2", "width of the last layer", "slope", tuple(map(float, narrow)), lines)


def theorem_13_inputs(draw: Draw) -> Found:
    gains, widths, _ = shape(draw)
    after = tail(gains, widths)
    slope = norm(jacobian(after, draw.uniform(widths[0], low=0.1)))
    yield equal("slope in y_i where it is positive", slope, predicted=math.prod(gains))
    yield below("slope in y_i elsewhere", norm(jacobian(after, draw.normal(widths[0]))), predicted=math.prod(gains))


def loss_and_network(draw: Draw) -> Found:
    n, depth = draw.integer(2, 9), draw.integer(1, 4)
    yield equal("slope of the ℓ1 norm", norm(jacobian(lambda v: v.abs().sum()[None], draw.normal(n))), predicted=n**0.5)
    gains, h = [decade(draw, -1, 1) for _ in range(depth)], draw.uniform(draw.integer(2, 6), low=0.2)
    after = tail(gains, [n] * (depth + 1))
    of_net, of_loss = (weight_slope(after, h, n, draw, loss) for loss in (False, True))
    yield exceeds("loss against network", of_loss, published=of_net)
    yield equal("loss: √n_K times the network's", of_loss, predicted=math.sqrt(n) * of_net, published=of_net)


def written_out(stack: Stack, k: int, h: Tensor) -> float:
    """(10) for layer i = k + 1 with what its O hides: √n_K·‖h_{i−1}‖."""
    return after_bound(stack, k) * math.sqrt(len(stack.weights[-1])) * float(h.norm())


def as_printed(gains: Sequence[float], widths: Sequence[int], h: Tensor) -> float:
    """(11): a_{i+1}···a_K times the norm of h cut to the later widths."""
    return math.prod(gains) * float(h[: min(widths[1:])].norm())


def corollary_14_upper(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5))
    k, x = draw.integer(0, len(stack.weights)), draw.normal(stack.weights[0].shape[1])
    h, after = stack.entering(k, x), stack.after(k)
    slope = norm(jacobian(lambda w: (after(w @ h) + 1).abs().sum()[None], stack.weights[k]))
    yield below("slope of the loss in W_i", slope, predicted=written_out(stack, k, h))
    channels = draw.integer(2, 5)
    flat, _ = equal_channels(draw, 3, channels)
    k, x = draw.integer(0, 3), draw.uniform(channels, low=0.1)
    h, after = flat.entering(k, x), flat.after(k)
    slope = norm(jacobian(lambda w: (after(w @ h) + 1).abs().sum()[None], flat.weights[k]))
    yield equal("equal channels: attained", slope, predicted=written_out(flat, k, h))
    pair = frozen_stack(draw, 2, on=True)
    even = replace(pair, variances=(pair.variances[0], torch.full_like(pair.variances[1], decade(draw, -1, 1))))
    h = even.entering(1, draw.normal(even.weights[0].shape[1]))
    slope = norm(jacobian(lambda w: (even.after(1)(w @ h) + 1).abs().sum()[None], 1e-3 * even.weights[1]))
    yield equal("last layer of any width: attained", slope, predicted=written_out(even, 1, h))


def hidden_in_the_o(draw: Draw) -> Found:
    n, depth, s = draw.integer(2, 6), draw.integer(2, 6), decade(draw, 0.5, 1)
    x = draw.uniform(n, low=0.2)
    h = extremal([s] * (depth - 1), [n] * depth)(x[None])[0].detach()
    slope = weight_slope(torch.relu, h, n, draw, loss=True)
    plain = math.sqrt(n) * float(x.norm())
    yield exceeds("last layer against √n ‖x‖, all that (10) shows", slope, published=plain)
    yield equal("last layer", slope, predicted=plain * s ** (depth - 1), published=plain)
    normed = [F.layer_norm(t * draw.normal(5, 5) @ draw.normal(5), (5,)) for t in (1.0, 1e6)]
    longest = max(weight_slope(torch.relu, v, n, draw, loss=True) for v in normed)
    yield below("behind LayerNorm, earlier weights of any size", longest, predicted=math.sqrt(n) * math.sqrt(5))


def corollary_14_lower(draw: Draw) -> Found:
    gains, widths, h = shape(draw)
    slope = weight_slope(tail(gains, widths), h, widths[0], draw, loss=True)
    printed = as_printed(gains, widths, h)
    right = math.sqrt(min(widths)) * math.prod(gains) * float(h.norm())
    yield equal("largest slope of the loss in W_i", slope, predicted=right, published=printed)
    yield refutes("largest slope against the printed one", slope, published=printed)
    narrow, more = [*widths, 1], [*gains, decade(draw, -1, 1)]
    cut = torch.where(torch.arange(len(h)) < 1, h, 0.0)
    slope = weight_slope(tail(more, narrow), cut, widths[0], draw, loss=True)
    yield equal("last width 1: printed is that of the cut input", slope, predicted=as_printed(more, narrow, h))


def outer(u: Tensor) -> Tensor:
    """A smooth f∘g: a squared distance to 1 behind a tanh."""
    return (u.tanh() - 1).square()


def gradient(gains: Sequence[float], widths: Sequence[int], weight: Tensor, h: Tensor, head: float) -> Tensor:
    """∂L/∂W_i by autograd: mean of f(g(c·1ᵀh_K)) over the rows of h = h_{i−1}(x), extremal layers after W_i."""
    net, leaf = extremal(gains, widths), weight.clone().requires_grad_()
    loss = outer(head * net((h @ leaf.T).relu()).sum(1)).mean()
    return torch.autograd.grad(loss, leaf)[0]


def bent(gains: Sequence[float], kept: int, weight: Tensor, h: Tensor, head: float) -> Tensor:
    """(f∘g)'(u(x)) of every sample, u written out: c·Πa_j times the sum of the passing positive entries."""
    u = (head * math.prod(gains) * (h @ weight.T)[:, :kept].clamp_min(0).sum(1)).requires_grad_()
    return torch.autograd.grad(outer(u).sum(), u)[0]


def theorem_15(draw: Draw) -> Found:
    depth, m = draw.integer(1, 4), draw.integer(2, 9)
    gains, head = [decade(draw, -0.5, 0.5) for _ in range(depth)], float(draw.normal(1))
    widths = [draw.integer(3, 7), *(draw.integer(2, 7) for _ in range(depth))]
    h = draw.normal(m, draw.integer(2, 6))
    weight = draw.normal(widths[0], h.shape[1])
    kept, way = min(widths), draw.normal(h.shape[1])
    found, slopes = gradient(gains, widths, weight, h, head), bent(gains, kept, weight, h, head)
    for t in (0, kept - 1):
        on = (h @ weight[t] > 0).double()
        row = head * math.prod(gains) / m * (on * slopes) @ h
        yield equal(f"row {t + 1}, along a random direction", found[t] @ way, predicted=row @ way, scale=found.norm())
    yield equal("rows behind the narrowest width", found[kept:].norm(), predicted=0.0, scale=1.0)


def theorem_15_edge(draw: Draw) -> Found:
    m, n, gain, head = draw.integer(2, 9), draw.integer(2, 6), decade(draw, -0.5, 0.5), float(draw.normal(1))
    h, weight = draw.uniform(m, n, low=0.1), draw.normal(3, n)
    weight[1] = 0.0
    slopes = bent([gain], 3, weight, h, head)
    on = (h @ weight[1] >= 0).double()
    printed = (head * gain / m * (on * slopes) @ h).norm()
    found = gradient([gain], [3, 3], weight, h, head)[1].norm()
    yield refutes("gradient of a zero row", found, published=printed)
    strict = (h @ weight[1] > 0).double()
    yield equal("with a strict indicator", found, predicted=(gain * (strict * slopes) @ h).norm(), scale=printed)
    weight[1] = 1e-13
    above = gradient([gain], [3, 3], weight, h, head)[1].norm()
    yield equal("just above zero the printed one is right", above, predicted=printed)


def remark_16(draw: Draw) -> Found:
    depth, n = draw.integer(2, 8), draw.integer(2, 5)
    x, weight = draw.uniform(n, low=0.1), draw.uniform(n, n, low=0.1)

    def size(gains: Sequence[float]) -> float:
        after = tail(list(gains), [n] * (len(gains) + 1))
        return norm(jacobian(lambda w: after(w @ x).sum()[None], weight))

    a, plain = float(draw.uniform(1, low=1.2, high=3.0)), math.sqrt(n) * float(x.norm())
    yield equal(f"gradient behind {depth} gains of {a:.2f}", size([a] * depth), predicted=plain * a**depth)
    yield equal(f"gradient behind {depth} gains of 1/{a:.2f}", size([1 / a] * depth), predicted=plain * a**-depth)
    gains = [decade(draw, -1, 1) for _ in range(depth)]
    yield equal("gradient behind random gains", size(gains), predicted=plain * math.prod(gains))


def how_much_is_flat(draw: Draw) -> Found:
    depth, n = draw.integer(2, 5), draw.integer(2, 4)
    gains = draw.uniform(depth, low=0.5, high=2.0)
    tangent = jacobian(lambda a: (a[:, None, None] * torch.eye(n)).flatten(), gains)
    dimension = int(torch.linalg.matrix_rank(tangent))
    yield equal("dimension of the networks constructed", dimension, predicted=depth)
    yield equal("directions it leaves out", len(tangent) - dimension, predicted=depth * (n**2 - 1))
    weights, x = [draw.normal(n, n).abs() for _ in range(depth + 1)], draw.uniform(n, low=0.1)

    def size(scale: float) -> float:
        def loss(w: Tensor) -> Tensor:
            y = (w @ x).relu()
            for weight in weights[1:]:
                y = (scale * weight @ y).relu()
            return y.sum()[None]

        return norm(jacobian(loss, weights[0]))

    scale = decade(draw, -2, -1)
    yield moves("gradient of a random network", size(1.0), size(scale))
    yield equal("moved by the scale it was drawn at", size(scale), predicted=size(1.0) * scale**depth)


def layered(weights: Sequence[Tensor], x: Tensor, normal: bool) -> Tensor:
    """Summed outputs of a ReLU chain for the rows of x, with a LayerNorm without ε before every ReLU or with none."""
    for weight in weights[:-1]:
        x = x @ weight.T
        x = F.layer_norm(x, x.shape[1:], eps=0.0).relu() if normal else x.relu()
    return (x @ weights[-1].T).sum()


def gradients_under_normalizers(draw: Draw) -> Found:
    weights = matrices(draw, draw.integer(3, 6), low=6, high=10)
    x, c = draw.normal(5, weights[0].shape[1]), decade(draw, 1, 3)
    i = draw.integer(0, len(weights) - 2)

    def size(factors: Sequence[float], normal: bool) -> float:
        leaves = [(t * w).requires_grad_() for t, w in zip(factors, weights, strict=True)]
        return float(torch.autograd.grad(layered(leaves, x, normal), leaves[i])[0].norm())

    ones = [1.0] * len(weights)
    other, own = list(ones), list(ones)
    other[i + 1], own[i] = c, c
    yield equal("LayerNorm: another layer scaled", size(other, True), predicted=size(ones, True))
    yield equal("LayerNorm: the layer itself scaled", size(own, True), predicted=size(ones, True) / c)
    yield equal("without: another layer scaled", size(other, False), predicted=size(ones, False) * c)


def remark_17(draw: Draw) -> Found:
    depth, n = draw.integer(3, 7), draw.integer(1, 5)
    gains, x = [decade(draw, 0.2, 0.8) for _ in range(depth)], draw.uniform(n, low=0.2)

    def slope(gains: Sequence[float], i: int) -> float:
        h = extremal(gains[:i], [n] * (i + 1))(x[None])[0].detach() if i else x
        after = tail(gains[i + 1 :], [n] * (depth - i)) if i + 1 < depth else torch.relu
        return norm(jacobian(lambda w: after(w @ h), gains[i] * torch.eye(n)))

    for i in (0, draw.integer(1, depth - 1), depth - 1):
        right = float(x.norm()) * math.prod(gains[:i] + gains[i + 1 :])
        printed = float(x.norm()) * math.prod(gains[i + 1 :])
        yield equal(f"slope in layer {i + 1} of {depth}", slope(gains, i), predicted=right, published=printed)
    yield exceeds("last layer against ‖x‖", slope(gains, depth - 1), published=float(x.norm()))
    even = [gains[0]] * depth
    yield equal("equal gains: last layer as the first", slope(even, depth - 1), predicted=slope(even, 0))
    layers = range(depth)
    lines = (
        ("true", tuple(slope(even, i) for i in layers)),
        ("as printed, with ‖x‖", tuple(float(x.norm()) * gains[0] ** (depth - 1 - i) for i in layers)),
    )
    yield Curve("Equal gains", "layer", "slope in W_i", tuple(i + 1.0 for i in layers), lines, log_y=True)


def factor_of_normalizers(draw: Draw) -> Found:
    stack = frozen_stack(draw, draw.integer(2, 5), on=True)
    factors = [decade(draw, 0.5, 2) for _ in stack.weights]
    other = rescaled(stack, factors)
    k, x = draw.integer(0, len(factors)), draw.normal(stack.weights[0].shape[1])
    way = draw.normal(len(stack.weights[-1]))
    before, after = (math.prod(float(s.max()) for s in net.inverses[k:]) for net in (stack, other))
    yield moves("Π_{k≥i}‖NO_k‖", before, after)
    yield equal("moved by the factors chosen", after, predicted=before / math.prod(factors[k:]))
    yield equal("output, along a random direction", way @ other(x), predicted=way @ stack(x))

    def scale_free(net: Stack) -> float:
        h, weight = net.entering(k, x), net.weights[k]
        return norm(weight) * norm(jacobian(lambda w: net.after(k)(w @ h), weight))

    yield equal("‖W_i‖ times the slope in W_i", scale_free(other), predicted=scale_free(stack))

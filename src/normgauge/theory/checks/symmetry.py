"""Checks: changes of the weights that a normalizer hides, and gradients and metrics under them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from normgauge.theory import losses
from normgauge.theory.claim import Found, equals, moves, refutes, shown
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian
from normgauge.theory.losses import (
    extent,
    flattened,
    grad_of,
    gradient_flow,
    hessian_of,
    idle_count,
    nullity,
    probed,
    random_layer,
    random_unit,
    standardized,
)


def unit_variance(draw: Draw) -> Found:
    eps = draw.number(1e-3, 2.0)
    z = draw.normal(draw.integer(3, 9), 1) * 2
    out = F.batch_norm(z, None, None, training=True, eps=eps)
    sigma2 = float((z - z.mean()).square().mean())
    yield equals("mean", out.mean(), predicted=0.0, scale=1.0)
    yield equals("variance", out.square().mean(), predicted=sigma2 / (sigma2 + eps), published=1.0)


def layer_norm(draw: Draw) -> Found:
    m, n, eps = draw.integer(2, 6), draw.integer(3, 8), draw.number(1e-3, 0.5)
    z, probe, module = draw.normal(m, n), draw.normal(m, n), nn.LayerNorm(n, eps=eps, dtype=torch.float64)
    out = module(z).detach()
    right = (z - z.mean(1, keepdim=True)) / (z.var(1, unbiased=False, keepdim=True) + eps).sqrt()
    yield equals("output", out, predicted=right, along=probe)
    yield shown("one sample alone, in eval mode: the same", torch.allclose(module.eval()(z[:1]), out[:1], rtol=1e-12))


def sphere(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    c, probe = draw.number(0.01, 100.0), draw.normal(len(neuron.x))
    yield equals("output at c·w", neuron.outputs(c * w), predicted=neuron.outputs(w), along=probe)
    yield equals("output at −c·w", probed(neuron.outputs(-c * w), probe), predicted=-probed(neuron.outputs(w), probe))


def idle_bias(draw: Draw) -> Found:
    net = random_layer(draw, eps=draw.number(0.0, 0.1))
    moved = net.using(bias=net.bias + 10 * draw.normal(len(net.bias)))
    yield equals("loss with another bias", moved.loss(), predicted=float(net.loss()))
    weight, bias = net.gradients("weight", "bias")
    yield equals("gradient in the bias", extent(bias), predicted=0.0, scale=extent(weight))
    yield equals("idle directions of (w, b), a unit", idle_count(net) / len(net.bias), predicted=2.0)
    matter = net.weight.numel() + net.bias.numel() - idle_count(net)
    yield equals("dimensions that matter, a unit", matter / len(net.bias), predicted=net.x.shape[1] - 1)


def parts(draw: Draw) -> Found:
    batch, net, d = random_layer(draw), random_layer(draw, dim=1), draw.number(2.0, 5.0)
    before, factor = float(net.loss()), draw.uniform(len(net.bias), low=1.0, high=5.0)
    own = batch.scaled(draw.uniform(len(batch.bias), low=1.0, high=5.0))
    yield equals("batch norm, each unit scaled by itself: loss", own.loss(), predicted=float(batch.loss()))
    yield equals("layer norm, all units scaled: loss", net.scaled(d).loss(), predicted=before)
    yield equals("layer norm, common shift: loss", net.using(bias=net.bias + d).loss(), predicted=before)
    for name, other in {"scaled": net.scaled(factor), "shifted": net.using(bias=net.bias + factor)}.items():
        yield shown(f"layer norm, unevenly {name}: another loss", abs(float(other.loss()) - before) > 1e-6 * before)


def gain_left_out_batch(draw: Draw) -> Found:
    yield from gain_left_out(draw, each=False)


def gain_left_out_layer(draw: Draw) -> Found:
    yield from gain_left_out(draw, each=True)


def gain_left_out(draw: Draw, each: bool) -> Found:
    """The printed gradient in front of a normalizer, with one gain for all it normalizes, or one for each."""
    n, eps = draw.integer(3, 9), draw.number(high=0.3)
    z, slope, gamma, probe = draw.normal(n) * 2, draw.normal(n), draw.uniform(n, low=1.3, high=3.0), draw.normal(n)
    hat, sigma = standardized(z, eps), math.sqrt(float(z.var(unbiased=False)) + eps)

    def slopes(gains: Tensor) -> Tensor:
        return grad_of(lambda z: (slope * torch.sin(gains * standardized(z, eps))).sum(), z)

    gains = gamma if each else gamma[0]
    truth, delta = slopes(gains), slope * torch.cos(gains * hat)
    printed = (n * delta - delta.sum() - hat * (delta * hat).sum()) / (n * sigma)
    q = gains * delta
    right = (n * q - q.sum() - hat * (q * hat).sum()) / (n * sigma)
    yield refutes("error of the printed gradient over its size", extent(truth - printed) / extent(truth), published=0.0)
    yield equals("gradient along a direction", truth, predicted=right, along=probe)


def gradients_in_front(draw: Draw) -> Found:
    n, eps, c = draw.integer(3, 9), draw.number(high=0.3), draw.number(0.1, 10.0)
    z, gamma, slope = draw.normal(n), draw.normal(n), draw.normal(n)

    def slopes(z: Tensor, eps: float) -> Tensor:
        return grad_of(lambda z: (slope * torch.sin(gamma * standardized(z, eps))).sum(), z)

    truth = slopes(z, eps)
    yield equals("sum of the gradients", truth.sum(), predicted=0.0, scale=extent(truth))
    yield equals("size of the gradient at c·z", extent(slopes(c * z, 0.0)), predicted=extent(slopes(z, 0.0)) / c)
    for name, net in {"batch": random_layer(draw), "layer": random_layer(draw, dim=1)}.items():
        (here,), (there,) = net.gradients("weight"), net.scaled(c).gradients("weight")
        probe = draw.normal(*here.shape)
        yield equals(f"{name} norm, gradient at c·W", probed(there, probe), predicted=probed(here, probe) / c)


def scale(draw: Draw) -> Found:
    c, eps = draw.number(0.1, 5.0), draw.number(0.01, 0.5)
    for name, net in {"batch": random_layer(draw), "layer": random_layer(draw, dim=1)}.items():
        probe, wide = draw.normal(*net.target.shape), net.scaled(1e3 * c).outputs()
        yield equals(f"{name} norm at c·(W, b)", wide, predicted=net.outputs(), along=probe)
        out, right = net.scaled(c).using(eps=eps).outputs(), net.using(eps=eps / c**2).outputs()
        yield equals(f"{name} norm at c·(W, b), with ε", out, predicted=right, along=probe)
    z, gamma = draw.normal(6), float(draw.normal(1))
    divided = extent(gamma / c * standardized(c * z))
    yield equals("size of γẑ at c·z and γ/c", divided, predicted=extent(gamma * standardized(z)) / c)


def radial_gradient(draw: Draw) -> Found:
    net = random_layer(draw)
    weight, bias = net.gradients("weight", "bias")
    along = (net.weight * weight).sum() + net.bias @ bias
    yield equals("W·∂L/∂W + b·∂L/∂b, ε = 0", along, predicted=0.0, scale=extent(weight) * extent(net.weight))
    eps, i = draw.number(0.05, 1.0), draw.integer(0, len(net.bias))
    net = net.using(eps=eps)
    weight, gamma = net.gradients("weight", "gamma")
    sigma2 = float((net.x @ net.weight[i]).var(unbiased=False))
    radial = float(net.weight[i] @ weight[i])
    yield equals("w·∂L/∂w of one unit, with ε", radial, predicted=eps / (sigma2 + eps) * float(net.gamma[i] * gamma[i]))


def one_unit_alone(draw: Draw) -> Found:
    net = random_layer(draw)
    probe, own = draw.normal(*net.target.shape), net.scaled(draw.uniform(len(net.bias), low=1.0, high=5.0)).outputs()
    yield refutes("idle directions of (W, b)", idle_count(net), published=1.0)
    yield equals("idle directions of (W, b)", idle_count(net), predicted=2.0 * len(net.bias))
    yield equals("outputs, each unit scaled by itself", own, predicted=net.outputs(), along=probe)


def scalar_weight(draw: Draw) -> Found:
    neuron, _ = random_unit(draw, n=1)
    one, other = draw.uniform(1, low=0.1, high=5.0), draw.uniform(1, low=0.1, high=5.0)
    yield equals("loss at another weight", neuron.loss(other), predicted=float(neuron.loss(one)))
    yield shown("loss at the opposite weight: another one", abs(float(neuron.loss(-one) - neuron.loss(one))) > 1e-9)


def linear_example(draw: Draw) -> Found:
    x, target = draw.normal(draw.integer(2, 6)), float(draw.normal(1))
    values = torch.linalg.eigvalsh(hessian_of(lambda w: 0.5 * (w @ x - target) ** 2, torch.ones_like(x)))
    yield equals("largest eigenvalue", values[-1], predicted=float(x @ x))
    yield equals("all the others", extent(values[:-1]), predicted=0.0, scale=float(values[-1]))


def layer_shifts(draw: Draw) -> Found:
    net = random_layer(draw, dim=1)
    shifted = net.using(weight=net.weight + 3 * draw.normal(net.x.shape[1]))
    (weight,) = net.gradients("weight")
    yield refutes("idle directions", idle_count(net), published=2.0)
    yield equals("idle directions", idle_count(net), predicted=1.0 + (net.x.shape[1] + 1))
    yield equals("loss at W + 1uᵀ", shifted.loss(), predicted=float(net.loss()))
    yield equals("column sums of the gradient", extent(weight.sum(0)), predicted=0.0, scale=extent(weight))


def _weight_norm(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """v, g, the gradient of a smooth loss in w, and its gradient in (v, g)."""
    n = draw.integer(3, 7)
    v, slope, g = draw.normal(n), draw.normal(n), draw.uniform(1, low=0.5, high=2.0)

    def loss(w: Tensor) -> Tensor:
        return (slope * torch.sin(w + slope)).sum()

    at = flattened(v, g)
    return (v, g, grad_of(loss, losses.weight_norm(at)), grad_of(lambda flat: loss(losses.weight_norm(flat)), at))


def weight_norm_symmetry(draw: Draw) -> Found:
    v, g, _, grad = _weight_norm(draw)
    alpha, probe = draw.number(1.5, 4.0), draw.normal(len(v))
    before, after, kept = (
        losses.weight_norm(flattened(*at)) for at in ((v, g), (alpha * v, g / alpha), (alpha * v, g))
    )
    yield refutes("length of the weight at (αv, g/α)", extent(after), published=extent(before))
    yield equals("weight at (αv, g/α)", probed(after, probe), predicted=probed(before, probe) / alpha)
    yield equals("weight at (αv, g)", kept, predicted=before, along=probe)
    radial = float(v @ grad[:-1])
    yield refutes("v·∂L/∂v", radial, published=float(g * grad[-1]))
    yield refutes("|cosine| of v and ∂L/∂v", abs(radial) / extent(v) / extent(grad[:-1]), published=1.0)
    yield equals("v·∂L/∂v", radial, predicted=0.0, scale=extent(v) * extent(grad[:-1]))


def weight_norm_gradients(draw: Draw) -> Found:
    v, g, back, grad = _weight_norm(draw)
    probe = draw.normal(len(v))
    right = float(g) / extent(v) * (back - v * (v @ back) / extent(v) ** 2)
    yield equals("∂L/∂v along a random direction", grad[:-1], predicted=right, along=probe)
    yield equals("∂L/∂g", grad[-1], predicted=float(back @ v) / extent(v))


def weight_norm_partials(draw: Draw) -> Found:
    v, g, back, grad = _weight_norm(draw)
    length, probe, truth = extent(v), draw.normal(len(v)), grad[:-1]
    diagonal = back * (g / length - g * v.square() / length**3)
    full = float(g) / length * (back - v * (v @ back) / length**2)
    yield refutes("∂L/∂v: error of the diagonal over its size", extent(truth - diagonal) / extent(truth), published=0.0)
    yield equals("∂L/∂v along a random direction", truth, predicted=full, along=probe)


def gain_matters(draw: Draw) -> Found:
    v, g, back, _ = _weight_norm(draw)
    c, orthogonal = draw.number(1.5, 5.0), back - v * (v @ back) / (v @ v)
    angle = [
        grad_of(lambda at: back @ F.normalize(losses.weight_norm(at), dim=0), flattened(v, k * g))[:-1]
        for k in (1.0, c)
    ]
    yield equals("‖∂L/∂v‖ at c·g, a loss of the angle", extent(angle[1]), predicted=extent(angle[0]))
    other = grad_of(lambda at: back @ losses.weight_norm(at), flattened(v, c * g))[:-1]
    yield equals("‖∂L/∂v‖ at c·g, another loss", extent(other), predicted=c * float(g) / extent(v) * extent(orthogonal))


def weight_norm_parts(draw: Draw) -> Found:
    n = draw.integer(2, 7)
    v, g, probe = draw.normal(1, n), draw.normal(1, 1), draw.normal(1, n)
    module = weight_norm(nn.Linear(n, 1, bias=False, dtype=torch.float64))
    module.load_state_dict({"parametrizations.weight.original0": g, "parametrizations.weight.original1": v})
    weight, at = module.weight.detach(), flattened(v, g)
    yield equals("weight", probed(weight, probe), predicted=float(g) * probed(v, probe) / extent(v))
    yield equals("length of the weight", extent(weight), predicted=abs(float(g)))
    yield equals("weight at (−v, −g)", losses.weight_norm(-at), predicted=weight, along=probe)
    neuron, w = random_unit(draw, n=n)
    yield equals("idle directions of (v, g), weight norm", nullity(losses.weight_norm, at), predicted=1)
    yield equals("idle directions of w, batch norm", nullity(neuron.outputs, w), predicted=1)
    yield equals("idle directions of w alone", nullity(lambda w: neuron.x @ w, w), predicted=0, scale=1.0)


def cho_lee(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    n, c = len(w), draw.number(0.1, 10.0)
    a, b, probe = draw.normal(n), draw.normal(n), draw.normal(n)
    metric = torch.eye(n, dtype=torch.float64) / extent(c * w) ** 2
    inner, steepest = (c * a) @ metric @ (c * b), torch.linalg.solve(metric, grad_of(neuron.loss, c * w))
    yield equals("metric at c·w of c·a and c·b", inner, predicted=float(a @ b) / extent(w) ** 2)
    right = extent(w) ** 2 * grad_of(neuron.loss, w)
    yield equals("its gradient at c·w", probed(steepest, probe), predicted=c * probed(right, probe))


def radial_length(draw: Draw) -> Found:
    growth, turn = (float(v) for v in draw.uniform(2, low=0.3, high=1.5))
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    path = (growth * t).exp()[:, None] * torch.stack([(turn * t).cos(), (turn * t).sin()], 1)
    middle, step = (path[1:] + path[:-1]) / 2, path[1:] - path[:-1]
    unit_step, ray = step / middle.norm(dim=1, keepdim=True), F.normalize(middle)
    around = unit_step - (unit_step * ray).sum(1, keepdim=True) * ray
    length = unit_step.norm(dim=1).sum()
    yield equals("spiral, Cho and Lee's metric", length, predicted=math.sqrt(growth**2 + turn**2), rel=1e-7)
    yield equals("spiral, the radius projected out", around.norm(dim=1).sum(), predicted=turn, rel=1e-7)


def sphere_gradient(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    u, probe = w / w.norm(), draw.normal(len(w))
    basis = torch.linalg.qr(torch.cat([u[:, None], draw.normal(len(w), len(w) - 1)], 1))[0][:, 1:]
    slopes = grad_of(lambda t: neuron.loss(F.normalize(u + basis @ t, dim=0)), torch.zeros_like(w[1:]))
    right = grad_of(neuron.loss, u)
    yield equals("gradient on the sphere", basis @ slopes, predicted=right, along=probe)


def fisher_null_space(draw: Draw) -> Found:
    net = random_layer(draw)
    net = net.using(x=draw.normal(30, net.x.shape[1]), head=draw.normal(3, len(net.bias)))
    labels, flat, factor = (draw.normal(30, 3).argmax(1), flattened(net.weight, net.bias), draw.normal(len(net.bias)))

    def logits(flat: Tensor) -> Tensor:
        return net.vary(flat).outputs()

    p = logits(flat).softmax(1)
    rows = jacobian(logits, flat).reshape(*p.shape, -1)
    fisher = torch.einsum("nip,nij,njq->pq", rows, torch.diag_embed(p) - p[:, :, None] * p[:, None, :], rows) / len(p)
    along = flattened(factor[:, None] * net.weight, factor * net.bias)
    yield equals(
        "Fisher matrix along a scale", extent(fisher @ along), predicted=0.0, scale=extent(fisher) * extent(along)
    )
    zeros = int((torch.linalg.eigvalsh(fisher) < 1e-10 * extent(fisher)).sum())
    yield equals("zero eigenvalues", zeros, predicted=2 * len(net.bias))
    grad, damped = (grad_of(lambda f: F.cross_entropy(logits(f), labels), flat), fisher + 0.1 * torch.eye(len(flat)))
    inverses = {"pseudo-inverse": torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True), "damped": damped.inverse()}
    for name, inverse in inverses.items():
        step = inverse @ grad
        yield equals(f"{name}: part along the scale", step @ along, predicted=0.0, scale=extent(step) * extent(along))


def natural_metric(draw: Draw) -> Found:
    n = draw.integer(4, 7)
    neuron, w = random_unit(draw, n=n)
    wide, probe = neuron.x * torch.logspace(-0.5, 0.5, n, dtype=torch.float64), draw.normal(n, n)
    white = (neuron.x - neuron.x.mean(0)) @ torch.linalg.cholesky(neuron.covariance).T.inverse()

    def metric(x: Tensor) -> tuple[Tensor, float]:
        told = replace(neuron, x=x)
        slope, grad = jacobian(told.outputs, w), grad_of(told.loss, w)
        fisher = slope.T @ slope / len(x)
        natural = torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True) @ grad
        return fisher, float(natural @ grad) / extent(natural) / extent(grad)

    s, (fisher, cosine) = replace(neuron, x=wide).covariance, metric(wide)
    q = float(w @ s @ w)
    right = neuron.gamma**2 / q * (s - torch.outer(s @ w, s @ w) / q)
    yield equals("Fisher matrix", fisher, predicted=right, along=probe)
    yield shown("both gradients: other directions", cosine < 0.999)
    yield equals("cosine of both, white inputs", metric(white)[1], predicted=1.0)


def geodesic_curvature(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    u, c, e = w / w.norm(), draw.number(2.0, 20.0), draw.normal(len(w))
    e = (e - u * (u @ e)) / (e - u * (u @ e)).norm()
    matrix, bend = hessian_of(neuron.loss, c * u), neuron.bend(u, e)
    yield equals("curvature per radian at length c", neuron.bend(u, e, c), predicted=bend)
    yield equals("curvature along the angle at length c", e @ matrix @ e, predicted=bend / c**2)
    yield equals("curvature along the radius", u @ matrix @ u, predicted=0.0, scale=extent(matrix))


def condition_number(draw: Draw) -> Found:
    n, c = draw.integer(3, 5), 10.0
    x, start = draw.normal(40, 2 * n) + 1, draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardized(x[:, :n] @ flat[:n]) + standardized(x[:, n:] @ flat[n:])

    def kappa(flat: Tensor, units: int) -> float:
        target, kept = outputs(flat), units * n
        matrix = hessian_of(lambda p: (outputs(p) - target).square().mean(), flat)[:kept, :kept]
        values = torch.linalg.eigvalsh(matrix)[units:]  # one zero a unit
        return float(values[-1] / values[0])

    scaled = flattened(c * start[:n], start[n:])
    yield moves("condition number, two units", kappa(start, 2), kappa(scaled, 2))
    yield equals("size of the outputs", extent(outputs(scaled)), predicted=extent(outputs(start)))
    yield equals("condition number, one unit", kappa(scaled, 1), predicted=kappa(start, 1), rel=1e-7)


def slow_turn(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    w, c, probe = w / w.norm(), draw.number(0.3, 4.0), draw.normal(len(w))
    near, far = gradient_flow(neuron.loss, w, 0.6, 40), gradient_flow(neuron.loss, c * w, 0.6 * c**2, 40)
    yield equals("where flow from c·w is after c²·T", probed(far, probe), predicted=c * probed(near, probe))
    yield shown("the direction did turn", extent(near - w) > 1e-3)

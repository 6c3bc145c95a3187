"""Checks: changes of the weights that a normalizer hides, and gradients and metrics under them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from normgauge.theory import losses
from normgauge.theory.claim import Found, expect_change, expect_equal, expect_fact, expect_refuted
from normgauge.theory.draw import RandomDraw
from normgauge.theory.jacobians import jacobian
from normgauge.theory.losses import (
    flatten_tensors,
    gradient_flow,
    idle_directions,
    loss_gradient,
    loss_hessian,
    nullity,
    probe_product,
    random_layer,
    random_unit,
    standardize_values,
    vector_length,
)


def unit_variance(draw: RandomDraw) -> Found:
    eps = draw.number(1e-3, 2.0)
    z = draw.normal(draw.integer(3, 9), 1) * 2
    out = F.batch_norm(z, None, None, training=True, eps=eps)
    sigma2 = float((z - z.mean()).square().mean())
    yield expect_equal("mean", out.mean(), predicted=0.0, scale=1.0)
    yield expect_equal("variance", out.square().mean(), predicted=sigma2 / (sigma2 + eps), published=1.0)


def layer_norm(draw: RandomDraw) -> Found:
    m, n, eps = draw.integer(2, 6), draw.integer(3, 8), draw.number(1e-3, 0.5)
    z, probe, module = draw.normal(m, n), draw.normal(m, n), nn.LayerNorm(n, eps=eps, dtype=torch.float64)
    out = module(z).detach()
    right = (z - z.mean(1, keepdim=True)) / (z.var(1, unbiased=False, keepdim=True) + eps).sqrt()
    yield expect_equal("output", out, predicted=right, along=probe)
    yield expect_fact(
        "one sample alone, in eval mode: the same", torch.allclose(module.eval()(z[:1]), out[:1], rtol=1e-12)
    )


def sphere(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    c, probe = draw.number(0.01, 100.0), draw.normal(len(neuron.x))
    yield expect_equal("output at c·w", neuron.outputs(c * w), predicted=neuron.outputs(w), along=probe)
    yield expect_equal(
        "output at −c·w",
        probe_product(neuron.outputs(-c * w), probe),
        predicted=-probe_product(neuron.outputs(w), probe),
    )


def idle_bias(draw: RandomDraw) -> Found:
    net = random_layer(draw, eps=draw.number(0.0, 0.1))
    moved = net.using(bias=net.bias + 10 * draw.normal(len(net.bias)))
    yield expect_equal("loss with another bias", moved.loss(), predicted=float(net.loss()))
    weight, bias = net.gradients("weight", "bias")
    yield expect_equal("gradient in the bias", vector_length(bias), predicted=0.0, scale=vector_length(weight))
    yield expect_equal("idle directions of (w, b), a unit", idle_directions(net) / len(net.bias), predicted=2.0)
    matter = net.weight.numel() + net.bias.numel() - idle_directions(net)
    yield expect_equal("dimensions that matter, a unit", matter / len(net.bias), predicted=net.x.shape[1] - 1)


def parts(draw: RandomDraw) -> Found:
    batch, net, d = random_layer(draw), random_layer(draw, dim=1), draw.number(2.0, 5.0)
    before, factor = float(net.loss()), draw.uniform(len(net.bias), low=1.0, high=5.0)
    own = batch.scaled(draw.uniform(len(batch.bias), low=1.0, high=5.0))
    yield expect_equal("batch norm, each unit scaled by itself: loss", own.loss(), predicted=float(batch.loss()))
    yield expect_equal("layer norm, all units scaled: loss", net.scaled(d).loss(), predicted=before)
    yield expect_equal("layer norm, common shift: loss", net.using(bias=net.bias + d).loss(), predicted=before)
    for name, other in {"scaled": net.scaled(factor), "shifted": net.using(bias=net.bias + factor)}.items():
        yield expect_fact(
            f"layer norm, unevenly {name}: another loss", abs(float(other.loss()) - before) > 1e-6 * before
        )


def gain_left_out(draw: RandomDraw) -> Found:
    n, eps = draw.integer(3, 9), draw.number(high=0.3)
    z, slope, gamma, probe = draw.normal(n) * 2, draw.normal(n), draw.uniform(n, low=1.3, high=3.0), draw.normal(n)
    hat, sigma = standardize_values(z, eps), math.sqrt(float(z.var(unbiased=False)) + eps)

    def slopes(gains: Tensor) -> Tensor:
        return loss_gradient(lambda z: (slope * torch.sin(gains * standardize_values(z, eps))).sum(), z)

    for name, gains in {"batch norm": gamma[0], "layer norm": gamma}.items():
        truth, delta = slopes(gains), slope * torch.cos(gains * hat)
        printed = (n * delta - delta.sum() - hat * (delta * hat).sum()) / (n * sigma)
        q = gains * delta
        right = (n * q - q.sum() - hat * (q * hat).sum()) / (n * sigma)
        yield expect_refuted(
            f"{name}: gradient's error over its size",
            vector_length(truth - printed) / vector_length(truth),
            published=0.0,
        )
        yield expect_equal(f"{name}: gradient along a direction", truth, predicted=right, along=probe)


def gradients_in_front(draw: RandomDraw) -> Found:
    n, eps, c = draw.integer(3, 9), draw.number(high=0.3), draw.number(0.1, 10.0)
    z, gamma, slope = draw.normal(n), draw.normal(n), draw.normal(n)

    def slopes(z: Tensor, eps: float) -> Tensor:
        return loss_gradient(lambda z: (slope * torch.sin(gamma * standardize_values(z, eps))).sum(), z)

    truth = slopes(z, eps)
    yield expect_equal("sum of the gradients", truth.sum(), predicted=0.0, scale=vector_length(truth))
    yield expect_equal(
        "size of the gradient at c·z", vector_length(slopes(c * z, 0.0)), predicted=vector_length(slopes(z, 0.0)) / c
    )
    for name, net in {"batch": random_layer(draw), "layer": random_layer(draw, dim=1)}.items():
        (here,), (there,) = net.gradients("weight"), net.scaled(c).gradients("weight")
        probe = draw.normal(*here.shape)
        yield expect_equal(
            f"{name} norm, gradient at c·W", probe_product(there, probe), predicted=probe_product(here, probe) / c
        )


def scale(draw: RandomDraw) -> Found:
    c, eps = draw.number(0.1, 5.0), draw.number(0.01, 0.5)
    for name, net in {"batch": random_layer(draw), "layer": random_layer(draw, dim=1)}.items():
        probe, wide = draw.normal(*net.target.shape), net.scaled(1e3 * c).outputs()
        yield expect_equal(f"{name} norm at c·(W, b)", wide, predicted=net.outputs(), along=probe)
        out, right = net.scaled(c).using(eps=eps).outputs(), net.using(eps=eps / c**2).outputs()
        yield expect_equal(f"{name} norm at c·(W, b), with ε", out, predicted=right, along=probe)
    z, gamma = draw.normal(6), float(draw.normal(1))
    divided = vector_length(gamma / c * standardize_values(c * z))
    yield expect_equal("size of γẑ at c·z and γ/c", divided, predicted=vector_length(gamma * standardize_values(z)) / c)


def radial_gradient(draw: RandomDraw) -> Found:
    net = random_layer(draw)
    weight, bias = net.gradients("weight", "bias")
    along = (net.weight * weight).sum() + net.bias @ bias
    yield expect_equal(
        "W·∂L/∂W + b·∂L/∂b, ε = 0", along, predicted=0.0, scale=vector_length(weight) * vector_length(net.weight)
    )
    eps, i = draw.number(0.05, 1.0), draw.integer(0, len(net.bias))
    net = net.using(eps=eps)
    weight, gamma = net.gradients("weight", "gamma")
    sigma2 = float((net.x @ net.weight[i]).var(unbiased=False))
    radial = float(net.weight[i] @ weight[i])
    yield expect_equal(
        "w·∂L/∂w of one unit, with ε", radial, predicted=eps / (sigma2 + eps) * float(net.gamma[i] * gamma[i])
    )


def one_unit_alone(draw: RandomDraw) -> Found:
    net = random_layer(draw)
    probe, own = draw.normal(*net.target.shape), net.scaled(draw.uniform(len(net.bias), low=1.0, high=5.0)).outputs()
    yield expect_refuted("idle directions of (W, b)", idle_directions(net), published=1.0)
    yield expect_equal("idle directions of (W, b)", idle_directions(net), predicted=2.0 * len(net.bias))
    yield expect_equal("outputs, each unit scaled by itself", own, predicted=net.outputs(), along=probe)


def scalar_weight(draw: RandomDraw) -> Found:
    neuron, _ = random_unit(draw, n=1)
    one, other = draw.uniform(1, low=0.1, high=5.0), draw.uniform(1, low=0.1, high=5.0)
    yield expect_equal("loss at another weight", neuron.loss(other), predicted=float(neuron.loss(one)))
    yield expect_fact(
        "loss at the opposite weight: another one", abs(float(neuron.loss(-one) - neuron.loss(one))) > 1e-9
    )


def linear_example(draw: RandomDraw) -> Found:
    x, target = draw.normal(draw.integer(2, 6)), float(draw.normal(1))
    values = torch.linalg.eigvalsh(loss_hessian(lambda w: 0.5 * (w @ x - target) ** 2, torch.ones_like(x)))
    yield expect_equal("largest eigenvalue", values[-1], predicted=float(x @ x))
    yield expect_equal("all the others", vector_length(values[:-1]), predicted=0.0, scale=float(values[-1]))


def layer_shifts(draw: RandomDraw) -> Found:
    net = random_layer(draw, dim=1)
    shifted = net.using(weight=net.weight + 3 * draw.normal(net.x.shape[1]))
    (weight,) = net.gradients("weight")
    yield expect_refuted("idle directions", idle_directions(net), published=2.0)
    yield expect_equal("idle directions", idle_directions(net), predicted=1.0 + (net.x.shape[1] + 1))
    yield expect_equal("loss at W + 1uᵀ", shifted.loss(), predicted=float(net.loss()))
    yield expect_equal(
        "column sums of the gradient", vector_length(weight.sum(0)), predicted=0.0, scale=vector_length(weight)
    )


def _weight_norm(draw: RandomDraw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """v, g, the gradient of a smooth loss in w, and its gradient in (v, g)."""
    n = draw.integer(3, 7)
    v, slope, g = draw.normal(n), draw.normal(n), draw.uniform(1, low=0.5, high=2.0)

    def loss(w: Tensor) -> Tensor:
        return (slope * torch.sin(w + slope)).sum()

    at = flatten_tensors(v, g)
    return (
        v,
        g,
        loss_gradient(loss, losses.weight_norm(at)),
        loss_gradient(lambda flat: loss(losses.weight_norm(flat)), at),
    )


def weight_norm_symmetry(draw: RandomDraw) -> Found:
    v, g, _, grad = _weight_norm(draw)
    alpha, probe = draw.number(1.5, 4.0), draw.normal(len(v))
    before, after, kept = (
        losses.weight_norm(flatten_tensors(*at)) for at in ((v, g), (alpha * v, g / alpha), (alpha * v, g))
    )
    yield expect_refuted("length of the weight at (αv, g/α)", vector_length(after), published=vector_length(before))
    yield expect_equal(
        "weight at (αv, g/α)", probe_product(after, probe), predicted=probe_product(before, probe) / alpha
    )
    yield expect_equal("weight at (αv, g)", kept, predicted=before, along=probe)
    radial = float(v @ grad[:-1])
    yield expect_refuted("v·∂L/∂v", radial, published=float(g * grad[-1]))
    yield expect_refuted(
        "|cosine| of v and ∂L/∂v", abs(radial) / vector_length(v) / vector_length(grad[:-1]), published=1.0
    )
    yield expect_equal("v·∂L/∂v", radial, predicted=0.0, scale=vector_length(v) * vector_length(grad[:-1]))


def weight_norm_gradients(draw: RandomDraw) -> Found:
    v, g, back, grad = _weight_norm(draw)
    probe = draw.normal(len(v))
    right = float(g) / vector_length(v) * (back - v * (v @ back) / vector_length(v) ** 2)
    yield expect_equal("∂L/∂v along a random direction", grad[:-1], predicted=right, along=probe)
    yield expect_equal("∂L/∂g", grad[-1], predicted=float(back @ v) / vector_length(v))


def weight_norm_partials(draw: RandomDraw) -> Found:
    v, g, back, grad = _weight_norm(draw)
    length, probe, truth = vector_length(v), draw.normal(len(v)), grad[:-1]
    diagonal = back * (g / length - g * v.square() / length**3)
    full = float(g) / length * (back - v * (v @ back) / length**2)
    yield expect_refuted(
        "∂L/∂v: error of the diagonal over its size",
        vector_length(truth - diagonal) / vector_length(truth),
        published=0.0,
    )
    yield expect_equal("∂L/∂v along a random direction", truth, predicted=full, along=probe)


def gain_matters(draw: RandomDraw) -> Found:
    v, g, back, _ = _weight_norm(draw)
    c, orthogonal = draw.number(1.5, 5.0), back - v * (v @ back) / (v @ v)
    angle = [
        loss_gradient(lambda at: back @ F.normalize(losses.weight_norm(at), dim=0), flatten_tensors(v, k * g))[:-1]
        for k in (1.0, c)
    ]
    yield expect_equal(
        "‖∂L/∂v‖ at c·g, a loss of the angle", vector_length(angle[1]), predicted=vector_length(angle[0])
    )
    other = loss_gradient(lambda at: back @ losses.weight_norm(at), flatten_tensors(v, c * g))[:-1]
    yield expect_equal(
        "‖∂L/∂v‖ at c·g, another loss",
        vector_length(other),
        predicted=c * float(g) / vector_length(v) * vector_length(orthogonal),
    )


def weight_norm_parts(draw: RandomDraw) -> Found:
    n = draw.integer(2, 7)
    v, g, probe = draw.normal(1, n), draw.normal(1, 1), draw.normal(1, n)
    module = weight_norm(nn.Linear(n, 1, bias=False, dtype=torch.float64))
    module.load_state_dict({"parametrizations.weight.original0": g, "parametrizations.weight.original1": v})
    weight, at = module.weight.detach(), flatten_tensors(v, g)
    yield expect_equal(
        "weight", probe_product(weight, probe), predicted=float(g) * probe_product(v, probe) / vector_length(v)
    )
    yield expect_equal("length of the weight", vector_length(weight), predicted=abs(float(g)))
    yield expect_equal("weight at (−v, −g)", losses.weight_norm(-at), predicted=weight, along=probe)
    neuron, w = random_unit(draw, n=n)
    yield expect_equal("idle directions of (v, g), weight norm", nullity(losses.weight_norm, at), predicted=1)
    yield expect_equal("idle directions of w, batch norm", nullity(neuron.outputs, w), predicted=1)
    yield expect_equal("idle directions of w alone", nullity(lambda w: neuron.x @ w, w), predicted=0, scale=1.0)


def cho_lee(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    n, c = len(w), draw.number(0.1, 10.0)
    a, b, probe = draw.normal(n), draw.normal(n), draw.normal(n)
    metric = torch.eye(n, dtype=torch.float64) / vector_length(c * w) ** 2
    inner, steepest = (c * a) @ metric @ (c * b), torch.linalg.solve(metric, loss_gradient(neuron.loss, c * w))
    yield expect_equal("metric at c·w of c·a and c·b", inner, predicted=float(a @ b) / vector_length(w) ** 2)
    right = vector_length(w) ** 2 * loss_gradient(neuron.loss, w)
    yield expect_equal("its gradient at c·w", probe_product(steepest, probe), predicted=c * probe_product(right, probe))


def radial_length(draw: RandomDraw) -> Found:
    growth, turn = (float(v) for v in draw.uniform(2, low=0.3, high=1.5))
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    path = (growth * t).exp()[:, None] * torch.stack([(turn * t).cos(), (turn * t).sin()], 1)
    middle, step = (path[1:] + path[:-1]) / 2, path[1:] - path[:-1]
    unit_step, ray = step / middle.norm(dim=1, keepdim=True), F.normalize(middle)
    around = unit_step - (unit_step * ray).sum(1, keepdim=True) * ray
    length = unit_step.norm(dim=1).sum()
    yield expect_equal("spiral, Cho and Lee's metric", length, predicted=math.sqrt(growth**2 + turn**2), rel=1e-7)
    yield expect_equal("spiral, the radius projected out", around.norm(dim=1).sum(), predicted=turn, rel=1e-7)


def sphere_gradient(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    u, probe = w / w.norm(), draw.normal(len(w))
    basis = torch.linalg.qr(torch.cat([u[:, None], draw.normal(len(w), len(w) - 1)], 1))[0][:, 1:]
    slopes = loss_gradient(lambda t: neuron.loss(F.normalize(u + basis @ t, dim=0)), torch.zeros_like(w[1:]))
    right = loss_gradient(neuron.loss, u)
    yield expect_equal("gradient on the sphere", basis @ slopes, predicted=right, along=probe)


def fisher_null_space(draw: RandomDraw) -> Found:
    net = random_layer(draw)
    net = net.using(x=draw.normal(30, net.x.shape[1]), head=draw.normal(3, len(net.bias)))
    labels, flat, factor = (
        draw.normal(30, 3).argmax(1),
        flatten_tensors(net.weight, net.bias),
        draw.normal(len(net.bias)),
    )

    def logits(flat: Tensor) -> Tensor:
        return net.vary(flat).outputs()

    p = logits(flat).softmax(1)
    rows = jacobian(logits, flat).reshape(*p.shape, -1)
    fisher = torch.einsum("nip,nij,njq->pq", rows, torch.diag_embed(p) - p[:, :, None] * p[:, None, :], rows) / len(p)
    along = flatten_tensors(factor[:, None] * net.weight, factor * net.bias)
    yield expect_equal(
        "Fisher matrix along a scale",
        vector_length(fisher @ along),
        predicted=0.0,
        scale=vector_length(fisher) * vector_length(along),
    )
    zeros = int((torch.linalg.eigvalsh(fisher) < 1e-10 * vector_length(fisher)).sum())
    yield expect_equal("zero eigenvalues", zeros, predicted=2 * len(net.bias))
    grad, damped = (
        loss_gradient(lambda f: F.cross_entropy(logits(f), labels), flat),
        fisher + 0.1 * torch.eye(len(flat)),
    )
    inverses = {"pseudo-inverse": torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True), "damped": damped.inverse()}
    for name, inverse in inverses.items():
        step = inverse @ grad
        yield expect_equal(
            f"{name}: part along the scale",
            step @ along,
            predicted=0.0,
            scale=vector_length(step) * vector_length(along),
        )


def natural_metric(draw: RandomDraw) -> Found:
    n = draw.integer(4, 7)
    neuron, w = random_unit(draw, n=n)
    wide, probe = neuron.x * torch.logspace(-0.5, 0.5, n, dtype=torch.float64), draw.normal(n, n)
    white = (neuron.x - neuron.x.mean(0)) @ torch.linalg.cholesky(neuron.covariance).T.inverse()

    def metric(x: Tensor) -> tuple[Tensor, float]:
        told = replace(neuron, x=x)
        slope, grad = jacobian(told.outputs, w), loss_gradient(told.loss, w)
        fisher = slope.T @ slope / len(x)
        natural = torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True) @ grad
        return fisher, float(natural @ grad) / vector_length(natural) / vector_length(grad)

    s, (fisher, cosine) = replace(neuron, x=wide).covariance, metric(wide)
    q = float(w @ s @ w)
    right = neuron.gamma**2 / q * (s - torch.outer(s @ w, s @ w) / q)
    yield expect_equal("Fisher matrix", fisher, predicted=right, along=probe)
    yield expect_fact("both gradients: other directions", cosine < 0.999)
    yield expect_equal("cosine of both, white inputs", metric(white)[1], predicted=1.0)


def geodesic_curvature(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    u, c, e = w / w.norm(), draw.number(2.0, 20.0), draw.normal(len(w))
    e = (e - u * (u @ e)) / (e - u * (u @ e)).norm()
    matrix, bend = loss_hessian(neuron.loss, c * u), neuron.bend(u, e)
    yield expect_equal("curvature per radian at length c", neuron.bend(u, e, c), predicted=bend)
    yield expect_equal("curvature along the angle at length c", e @ matrix @ e, predicted=bend / c**2)
    yield expect_equal("curvature along the radius", u @ matrix @ u, predicted=0.0, scale=vector_length(matrix))


def condition_number(draw: RandomDraw) -> Found:
    n, c = draw.integer(3, 5), 10.0
    x, start = draw.normal(40, 2 * n) + 1, draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardize_values(x[:, :n] @ flat[:n]) + standardize_values(x[:, n:] @ flat[n:])

    def kappa(flat: Tensor, units: int) -> float:
        target, kept = outputs(flat), units * n
        matrix = loss_hessian(lambda p: (outputs(p) - target).square().mean(), flat)[:kept, :kept]
        values = torch.linalg.eigvalsh(matrix)[units:]  # one zero a unit
        return float(values[-1] / values[0])

    scaled = flatten_tensors(c * start[:n], start[n:])
    yield expect_change("condition number, two units", kappa(start, 2), kappa(scaled, 2))
    yield expect_equal("size of the outputs", vector_length(outputs(scaled)), predicted=vector_length(outputs(start)))
    yield expect_equal("condition number, one unit", kappa(scaled, 1), predicted=kappa(start, 1), rel=1e-7)


def slow_turn(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    w, c, probe = w / w.norm(), draw.number(0.3, 4.0), draw.normal(len(w))
    near, far = gradient_flow(neuron.loss, w, 0.6, 40), gradient_flow(neuron.loss, c * w, 0.6 * c**2, 40)
    yield expect_equal(
        "where flow from c·w is after c²·T", probe_product(far, probe), predicted=c * probe_product(near, probe)
    )
    yield expect_fact("the direction did turn", vector_length(near - w) > 1e-3)

"""Checks: symmetry."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from normgauge.core.claim import Curve
from normgauge.ledger.claim import Found, below, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import (
    Layer,
    Unit,
    batch_backward,
    flatten,
    flow,
    gradient,
    hessian,
    idle,
    layer,
    nullity,
    project,
    size,
    split,
    standardize,
    unit,
)


def batch_norm(draw: Draw) -> Found:
    m, n, eps = draw.integer(3, 9), draw.integer(2, 6), float(draw.uniform(1, low=1e-3, high=0.5))
    z, gamma, beta, probe = draw.normal(m, n), draw.normal(n), draw.normal(n), draw.normal(m, n)
    module = nn.BatchNorm1d(n, eps=eps, momentum=1.0, dtype=torch.float64)
    module.load_state_dict({"weight": gamma, "bias": beta}, strict=False)
    out = module(z).detach()
    mean, variance = z.mean(0), (z - z.mean(0)).square().mean(0)
    yield equal(
        "output", project(out, probe), predicted=project(gamma * (z - mean) / (variance + eps).sqrt() + beta, probe)
    )
    assert module.running_var is not None
    yield equal("stored variance", module.running_var[0], predicted=variance[0] * m / (m - 1))


def unit_variance(draw: Draw) -> Found:
    eps = float(draw.uniform(1, low=1e-3, high=2.0))
    z = draw.normal(draw.integer(3, 9), 1) * 2
    out = F.batch_norm(z, None, None, training=True, eps=eps)
    sigma2 = float((z - z.mean()).square().mean())
    yield equal("mean", out.mean(), predicted=0.0, scale=1.0)
    yield below("variance", out.square().mean(), predicted=1.0, published=1.0)
    yield equal("variance", out.square().mean(), predicted=sigma2 / (sigma2 + eps), published=1.0)


def layer_norm(draw: Draw) -> Found:
    m, n, eps = draw.integer(2, 6), draw.integer(3, 8), float(draw.uniform(1, low=1e-3, high=0.5))
    z, gamma, beta, probe = draw.normal(m, n), draw.normal(n), draw.normal(n), draw.normal(m, n)
    module = nn.LayerNorm(n, eps=eps, dtype=torch.float64)
    module.load_state_dict({"weight": gamma, "bias": beta})
    out = module(z).detach()
    mean, variance = z.mean(1, keepdim=True), z.var(1, unbiased=False, keepdim=True)
    yield equal(
        "output", project(out, probe), predicted=project(gamma * (z - mean) / (variance + eps).sqrt() + beta, probe)
    )
    yield shown("one sample alone, in eval mode: the same", torch.allclose(module.eval()(z[:1]), out[:1], rtol=1e-12))


def batch_norm_scale(draw: Draw) -> Found:
    z, probe, c = draw.normal(draw.integer(3, 9)), draw.normal(9), float(draw.uniform(1, low=0.01, high=50.0))
    probe = probe[: len(z)]
    yield equal("output at c·z", project(standardize(c * z), probe), predicted=project(standardize(z), probe))
    yield equal("output at −c·z", project(standardize(-c * z), probe), predicted=-project(standardize(z), probe))


def bias_is_idle(draw: Draw) -> Found:
    net = layer(draw, eps=float(draw.uniform(1, low=0.0, high=0.1)))
    moved = net.using(bias=net.bias + 10 * draw.normal(len(net.bias)))
    yield equal("loss with another bias", moved.loss(), predicted=float(net.loss()))
    weight, bias = net.gradients("weight", "bias")
    yield equal("gradient in the bias", size(bias), predicted=0.0, scale=size(weight))


def one_unit_alone(draw: Draw) -> Found:
    c = float(draw.uniform(1, low=2.0, high=5.0))
    batch, per_sample = layer(draw), layer(draw, dim=1)
    for net, changes in ((batch, False), (per_sample, True)):
        factor = torch.ones(len(net.bias), dtype=torch.float64)
        factor[draw.integer(0, len(factor))] = c
        scaled = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
        if changes:
            yield shown("layer norm, one unit scaled: another loss", abs(float(scaled.loss() / net.loss()) - 1) > 1e-6)
        else:
            yield equal("batch norm, one unit scaled: loss", scaled.loss(), predicted=float(net.loss()))
    scaled = per_sample.using(weight=c * per_sample.weight, bias=c * per_sample.bias)
    yield equal("layer norm, all units scaled: loss", scaled.loss(), predicted=float(per_sample.loss()))


def batch_norm_gradient(draw: Draw) -> Found:
    z, delta, truth, gamma, eps = batch_backward(draw)
    m, hat, probe = len(z), standardize(z, eps), draw.normal(len(z))
    sigma = math.sqrt(float(z.var(unbiased=False)) + eps)
    printed = (m * delta - delta.sum() - hat * (delta * hat).sum()) / (m * sigma)
    yield refutes("gradient along a random direction", project(truth, probe), published=project(printed, probe))
    yield equal("gradient along a random direction", project(truth, probe), predicted=gamma * project(printed, probe))


def batch_gradient_sum(draw: Draw) -> Found:
    _, _, truth, _, _ = batch_backward(draw)
    yield equal("sum over the batch", truth.sum(), predicted=0.0, scale=size(truth))


def gradient_scale(draw: Draw) -> Found:
    net, c = layer(draw), float(draw.uniform(1, low=0.05, high=20.0))
    (here,) = net.gradients("weight")
    (there,) = net.using(weight=c * net.weight, bias=c * net.bias).gradients("weight")
    probe = draw.normal(*here.shape)
    yield equal("gradient at c·W", project(there, probe), predicted=project(here, probe) / c)


def layer_norm_gradient(draw: Draw) -> Found:
    n, eps = draw.integer(3, 9), float(draw.uniform(1, high=0.3))
    z, gamma, slope, probe = draw.normal(n) * 2, draw.uniform(n, low=1.3, high=3.0), draw.normal(n), draw.normal(n)

    def after(a: Tensor) -> Tensor:
        return (slope * torch.sin(a)).sum()

    delta = gradient(after, gamma * standardize(z, eps))
    truth = gradient(lambda z: after(gamma * standardize(z, eps)), z)
    hat, sigma = standardize(z, eps), math.sqrt(float(z.var(unbiased=False)) + eps)
    outer = (n * delta - delta.sum() - hat * (delta * hat).sum()) / (n * sigma)
    inner = (n * delta - delta.sum() - (hat * delta * hat).sum()) / (n * sigma)
    q = gamma * delta
    right = (n * q - q.sum() - hat * (q * hat).sum()) / (n * sigma)
    yield refutes("gradient, index read as i", size(truth - outer) / size(truth), published=0.0)
    yield refutes("gradient, index read as j", size(truth - inner) / size(truth), published=0.0)
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))


def layer_gradient_sum(draw: Draw) -> Found:
    z, gamma, slope, c = draw.normal(6), draw.normal(6), draw.normal(6), float(draw.uniform(1, low=0.1, high=10.0))

    def loss(z: Tensor) -> Tensor:
        return (slope * torch.sin(gamma * standardize(z))).sum()

    truth = gradient(loss, z)
    yield equal("sum over the units", truth.sum(), predicted=0.0, scale=size(truth))
    yield equal("size of the gradient at c·z", size(gradient(loss, c * z)), predicted=size(truth) / c)


def first_form(draw: Draw) -> Found:
    net, c = layer(draw), float(draw.uniform(1, low=1.5, high=4.0))
    z = net.x @ net.weight.T + net.bias
    before, printed = net.gamma * standardize(z), net.gamma / c * standardize(c * z)
    yield refutes("size of the output with γ/c", size(printed), published=size(before))
    yield equal("size of the output with γ/c", size(printed), predicted=size(before) / c)
    scaled = net.using(weight=c * net.weight, bias=c * net.bias)
    yield equal("loss with γ kept", scaled.loss(), predicted=float(net.loss()))


def batch_scale(draw: Draw) -> Found:
    net = layer(draw)
    factor = draw.uniform(len(net.bias), low=-7.0, high=7.0).exp()
    scaled = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
    probe = draw.normal(*net.target.shape)
    yield equal("outputs", project(scaled.outputs(), probe), predicted=project(net.outputs(), probe))


def eps_law(draw: Draw) -> Found:
    z, eps = draw.normal(draw.integer(4, 12), 1), 1e-5
    sigma2 = float(z.var(unbiased=False))

    def spread(c: float) -> float:
        return size(F.batch_norm(c * z, None, None, training=True, eps=eps))

    c = float(draw.uniform(1, low=1e-4, high=3e-3))
    yield refutes("output at c·z over output at z", spread(c) / spread(1.0), published=1.0)
    yield equal(
        "output at c·z over output at z",
        spread(c) / spread(1.0),
        predicted=math.sqrt((sigma2 + eps) / (sigma2 + eps / c**2)),
    )
    scales = tuple(10.0 ** (-6 + k / 5) for k in range(36))
    yield Curve(
        "Batch norm at weights scaled by c, ε = 1e-5",
        "c",
        "output at c over output at 1",
        scales,
        (("measured", tuple(spread(s) / spread(1.0) for s in scales)), ("published", (1.0,) * len(scales))),
        log_x=True,
    )


def eval_mode(draw: Draw) -> Found:
    n, c = draw.integer(2, 6), float(draw.uniform(1, low=1.5, high=4.0))
    z, probe = draw.normal(5, n), draw.normal(5, n)
    module = nn.BatchNorm1d(n, dtype=torch.float64).eval()
    mean, variance = draw.normal(n), draw.uniform(n, low=0.5, high=2.0)

    def output(z: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        module.load_state_dict({"running_mean": mean, "running_var": variance}, strict=False)
        return module(z).detach()

    before = output(z, mean, variance)
    yield refutes(
        "relative change of the outputs", size(output(c * z, mean, variance) - before) / size(before), published=0.0
    )
    after = output(c * z, c * mean, c**2 * (variance + module.eps) - module.eps)
    yield equal("outputs with scaled statistics", project(after, probe), predicted=project(before, probe))


def radial_gradient(draw: Draw) -> Found:
    net = layer(draw)
    (weight,) = net.gradients("weight")
    yield equal("w·∂L/∂w, ε = 0", (net.weight * weight).sum(), predicted=0.0, scale=size(weight) * size(net.weight))
    eps, i = float(draw.uniform(1, low=0.05, high=1.0)), draw.integer(0, len(net.bias))
    net = net.using(eps=eps)
    weight, gamma = net.gradients("weight", "gamma")
    sigma2 = float((net.x @ net.weight[i]).var(unbiased=False))
    radial = float(net.weight[i] @ weight[i])
    yield equal("w·∂L/∂w of one unit, with ε", radial, predicted=eps / (sigma2 + eps) * float(net.gamma[i] * gamma[i]))


def group_size(draw: Draw) -> Found:
    d, a, b, m = draw.integer(2, 4), draw.integer(2, 4), draw.integer(2, 4), 40
    x = draw.normal(m, d)
    shapes = [(a, d), (a,), (a,), (a,), (b, a), (b,), (b,), (b,), (2, b)]
    start = [draw.normal(*shape) for shape in shapes]
    start[2], start[6] = draw.uniform(a, low=0.7, high=1.5), draw.uniform(b, low=0.7, high=1.5)  # no unit is silent

    def outputs(flat: Tensor) -> Tensor:
        w1, b1, g1, s1, w2, b2, g2, s2, head = split(flat, start)
        hidden = torch.tanh(g1 * standardize(x @ w1.T + b1) + s1)
        return torch.tanh(g2 * standardize(hidden @ w2.T + b2) + s2) @ head.T

    count = nullity(outputs, flatten(*start))
    yield refutes("idle directions", count, published=2.0)
    yield equal("idle directions", count, predicted=2.0 * (a + b))


def sphere(draw: Draw) -> Found:
    neuron, w = unit(draw)
    c, probe = float(draw.uniform(1, low=0.01, high=100.0)), draw.normal(len(neuron.x))
    yield equal("loss on the ray", neuron.loss(c * w), predicted=float(neuron.loss(w)))
    yield equal("output at −w", project(neuron.outputs(-w), probe), predicted=-project(neuron.outputs(w), probe))


def bias_sphere(draw: Draw) -> Found:
    neuron, w = unit(draw)
    start = flatten(w, draw.normal(1))
    idle = nullity(lambda p: standardize(neuron.x @ p[:-1] + p[-1]), start)
    yield refutes("dimensions that matter", len(start) - idle, published=len(w))
    yield equal("dimensions that matter", len(start) - idle, predicted=len(w) - 1)


def scalar_weight(draw: Draw) -> Found:
    neuron, _ = unit(draw, n=1)
    one, other = draw.uniform(1, low=0.1, high=5.0), draw.uniform(1, low=0.1, high=5.0)
    yield equal("loss at another weight", neuron.loss(other), predicted=float(neuron.loss(one)))
    yield shown("loss at the opposite weight: another one", abs(float(neuron.loss(-one) - neuron.loss(one))) > 1e-9)


def linear_example(draw: Draw) -> Found:
    n = draw.integer(2, 6)
    x, target = draw.normal(n), float(draw.normal(1))
    values = torch.linalg.eigvalsh(hessian(lambda w: 0.5 * (w @ x - target) ** 2, draw.normal(n)))
    yield equal("largest eigenvalue", values[-1], predicted=float(x @ x))
    yield equal("all the others", size(values[:-1]), predicted=0.0, scale=float(values[-1]))


def layer_scale(draw: Draw) -> Found:
    net, c = layer(draw, dim=1), float(draw.uniform(1, low=0.01, high=100.0))
    scaled, probe = net.using(weight=c * net.weight, bias=c * net.bias), draw.normal(*net.target.shape)
    yield equal("outputs", project(scaled.outputs(), probe), predicted=project(net.outputs(), probe))
    weight, bias = net.gradients("weight", "bias")
    along = float((net.weight * weight).sum() + net.bias @ bias)
    yield equal("gradient along (W, b)", along, predicted=0.0, scale=size(weight) * size(net.weight))


def layer_parts(draw: Draw) -> Found:
    net, d = layer(draw, dim=1), float(draw.uniform(1, low=1.0, high=5.0))
    before = float(net.loss())
    one = torch.ones(len(net.bias), dtype=torch.float64)
    uneven = one.clone()
    uneven[0] = 3.0
    scaled = net.using(weight=uneven[:, None] * net.weight, bias=uneven * net.bias)
    yield shown("one unit scaled: another loss", abs(float(scaled.loss()) - before) > 1e-6 * before)
    yield shown(
        "uneven shift: another loss", abs(float(net.using(bias=net.bias + d * uneven).loss()) - before) > 1e-6 * before
    )
    yield equal("loss after a common shift", net.using(bias=net.bias + d * one).loss(), predicted=before)


def layer_shifts(draw: Draw) -> Found:
    net = layer(draw, dim=1)
    shifted = net.using(weight=net.weight + 3 * draw.normal(net.x.shape[1]))
    (weight,) = net.gradients("weight")
    free = idle(net)
    yield refutes("idle directions", free, published=2.0)
    yield equal("idle directions", free, predicted=1.0 + (net.x.shape[1] + 1))
    yield equal("loss at W + 1uᵀ", shifted.loss(), predicted=float(net.loss()))
    yield equal("column sums of the gradient", size(weight.sum(0)), predicted=0.0, scale=size(weight))


def _weight_norm(draw: Draw) -> tuple[Layer, Tensor, Tensor]:
    """A unit whose first row is g·v/‖v‖ as a plain loss: the layer, v and g; its loss takes (v, g)."""
    net = layer(draw)
    return net, draw.normal(net.x.shape[1]), draw.uniform(1, low=0.5, high=2.0)


def _loss(net: Layer, flat: Tensor) -> Tensor:
    """Half the mean squared error of x·(g v/‖v‖); the last entry of ``flat`` is g."""
    v, g = flat[:-1], flat[-1]
    return 0.5 * (net.x @ (g * v / v.norm()) - net.target[:, 0]).square().mean()


def weight_norm_symmetry(draw: Draw) -> Found:
    net, v, g = _weight_norm(draw)
    alpha = float(draw.uniform(1, low=1.5, high=4.0))
    before = float(_loss(net, flatten(v, g)))
    yield refutes("loss at (αv, g/α)", _loss(net, flatten(alpha * v, g / alpha)), published=before, by=1e-6)
    yield equal("loss at (αv, g)", _loss(net, flatten(alpha * v, g)), predicted=before)


def weight_norm_identity(draw: Draw) -> Found:
    net, v, g = _weight_norm(draw)
    grad = gradient(lambda flat: _loss(net, flat), flatten(v, g))
    radial = float(v @ grad[:-1])
    yield refutes("v·∂L/∂v", radial, published=float(g * grad[-1]))
    yield equal("v·∂L/∂v", radial, predicted=0.0, scale=size(v) * size(grad))


def weight_norm_length(draw: Draw) -> Found:
    net, v, g = _weight_norm(draw)
    v = v / size(v) * float(draw.uniform(1, low=1.5, high=3.0))
    truth = float(gradient(lambda flat: _loss(net, flat), flatten(v, g))[-1])
    back = gradient(lambda w: 0.5 * (net.x @ w - net.target[:, 0]).square().mean(), g * v / v.norm())
    yield refutes("∂L/∂g", truth, published=float(back @ v) / size(v) / size(v))
    yield equal("∂L/∂g", truth, predicted=float(back @ v) / size(v))


def weight_norm_direction(draw: Draw) -> Found:
    net, v, g = _weight_norm(draw)
    truth, probe = gradient(lambda flat: _loss(net, flat), flatten(v, g))[:-1], draw.normal(len(v))
    back = gradient(lambda w: 0.5 * (net.x @ w - net.target[:, 0]).square().mean(), g * v / v.norm())
    right = float(g) / size(v) * (back - v * (v @ back) / size(v) ** 2)
    yield equal("∂L/∂v along a random direction", project(truth, probe), predicted=project(right, probe))


def weight_norm_quotient(draw: Draw) -> Found:
    n = draw.integer(2, 7)
    v, g, probe = draw.normal(n), draw.normal(1), draw.normal(n)

    def weight(flat: Tensor) -> Tensor:
        return flat[-1] * flat[:-1] / flat[:-1].norm()

    start = flatten(v, g)
    yield equal("numbers that matter", n + 1 - nullity(weight, start), predicted=n)
    yield equal("weight at (−v, −g)", project(weight(-start), probe), predicted=project(weight(start), probe))


def same_kind(draw: Draw) -> Found:
    neuron, w = unit(draw)
    n, g = len(w), float(draw.uniform(1, low=0.5, high=2.0))
    yield equal("idle directions of w under batch norm", nullity(neuron.outputs, w), predicted=1)
    yield equal(
        "idle directions of v under weight norm", nullity(lambda v: neuron.x @ (g * v / v.norm()), w), predicted=1
    )
    yield equal("idle directions of a plain w", nullity(lambda w: neuron.x @ w, draw.normal(n)), predicted=0, scale=1.0)


def table(draw: Draw) -> Found:
    batch, per_sample = layer(draw), layer(draw, dim=1)
    yield equal("batch norm, each unit", idle(batch) / len(batch.bias), predicted=2.0, published=2.0)
    yield refutes("layer norm, the layer", idle(per_sample), published=2.0)
    yield equal("layer norm, the layer", idle(per_sample), predicted=per_sample.x.shape[1] + 2)
    net, v, g = _weight_norm(draw)
    free = nullity(lambda flat: net.x @ (flat[-1] * flat[:-1] / flat[:-1].norm()), flatten(v, g))
    yield equal("weight norm, each vector", free, predicted=1.0, published=1.0)


def gain_matters(draw: Draw) -> Found:
    n, c, g = draw.integer(3, 7), float(draw.uniform(1, low=1.5, high=5.0)), float(draw.uniform(1, low=0.5, high=2.0))
    v, back = draw.normal(n), draw.normal(n)

    def speed(g: float) -> float:
        return size(gradient(lambda v: back @ (g * v / v.norm()), v))

    yield refutes("size of ∂L/∂v at c·g over that at g", speed(c * g) / speed(g), published=1.0)
    orthogonal = back - v * (v @ back) / (v @ v)
    yield equal("size of ∂L/∂v at c·g", speed(c * g), predicted=c * g / size(v) * size(orthogonal))


def weight_norm_definition(draw: Draw) -> Found:
    n = draw.integer(2, 7)
    v, g, probe = draw.normal(1, n), draw.normal(1, 1), draw.normal(1, n)
    module = weight_norm(nn.Linear(n, 1, bias=False, dtype=torch.float64))
    module.load_state_dict({"parametrizations.weight.original0": g, "parametrizations.weight.original1": v})
    weight = module.weight.detach()
    yield equal("weight", project(weight, probe), predicted=float(g) * project(v, probe) / size(v))
    yield equal("length of the weight", size(weight), predicted=abs(float(g)))


def weight_norm_scale(draw: Draw) -> Found:
    n, alpha = draw.integer(2, 7), float(draw.uniform(1, low=1.5, high=4.0))
    v, g = draw.normal(n), float(draw.uniform(1, low=0.5, high=2.0))

    def length(v: Tensor, g: float) -> float:
        return size(g * v / v.norm())

    yield refutes("length of the weight at (αv, g/α)", length(alpha * v, g / alpha), published=length(v, g))
    yield equal("length of the weight at (αv, g/α)", length(alpha * v, g / alpha), predicted=g / alpha)
    yield equal("length of the weight at (αv, g)", length(alpha * v, g), predicted=g)


def _weight_norm_gradient(draw: Draw) -> tuple[Tensor, Tensor, Tensor, float]:
    """The direction v, ∂L/∂w, the true ∂L/∂v, and g, for an arbitrary smooth loss."""
    n = draw.integer(3, 7)
    v, slope, g = draw.normal(n), draw.normal(n), float(draw.uniform(1, low=0.5, high=2.0))

    def loss(w: Tensor) -> Tensor:
        return (slope * torch.sin(w + slope)).sum()

    return v, gradient(loss, g * v / v.norm()), gradient(lambda v: loss(g * v / v.norm()), v), g


def weight_norm_partials(draw: Draw) -> Found:
    v, back, truth, g = _weight_norm_gradient(draw)
    length, probe = size(v), draw.normal(len(v))
    diagonal = back * (g / length - g * v.square() / length**3)
    full = g / length * (back - v * (v @ back) / length**2)
    yield refutes("gradient in v: relative error of the diagonal", size(truth - diagonal) / size(truth), published=0.0)
    yield equal("gradient in v along a random direction", project(truth, probe), predicted=project(full, probe))


def weight_norm_parallel(draw: Draw) -> Found:
    v, _, truth, _ = _weight_norm_gradient(draw)
    cosine = float(v @ truth) / size(v) / size(truth)
    yield refutes("|cosine| of v and its gradient", abs(cosine), published=1.0)
    yield equal("cosine of v and its gradient", cosine, predicted=0.0, scale=1.0)


def cho_lee(draw: Draw) -> Found:
    neuron, w = unit(draw)
    n, c = len(w), float(draw.uniform(1, low=0.1, high=10.0))
    a, b, probe = draw.normal(n), draw.normal(n), draw.normal(n)

    def metric(w: Tensor) -> Tensor:
        return torch.eye(n, dtype=torch.float64) / (w @ w)

    yield equal(
        "metric at c·w of c·a and c·b", (c * a) @ metric(c * w) @ (c * b), predicted=float(a @ b) / size(w) ** 2
    )
    steepest = torch.linalg.solve(metric(c * w), gradient(neuron.loss, c * w))
    right = size(w) ** 2 * gradient(neuron.loss, w)
    yield equal("its gradient at c·w", project(steepest, probe), predicted=c * project(right, probe))


def radial_length(draw: Draw) -> Found:
    growth, turn = (float(v) for v in draw.uniform(2, low=0.3, high=1.5))
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)

    def length(turn: float) -> float:
        path = (growth * t).exp()[:, None] * torch.stack([(turn * t).cos(), (turn * t).sin()], 1)
        middle = (path[1:] + path[:-1]) / 2
        return float(((path[1:] - path[:-1]).norm(dim=1) / middle.norm(dim=1)).sum())

    yield refutes("length of a ray from w to e^a·w", length(0.0), published=0.0)
    yield equal("length of a ray from w to e^a·w", length(0.0), predicted=growth, rel=1e-7)
    yield equal("length of a spiral", length(turn), predicted=math.sqrt(growth**2 + turn**2), rel=1e-7)


def sphere_gradient(draw: Draw) -> Found:
    neuron, w = unit(draw)
    u, probe = w / w.norm(), draw.normal(len(w))
    basis = torch.linalg.qr(torch.cat([u[:, None], draw.normal(len(w), len(w) - 1)], 1))[0].T[1:]

    def slope(e: Tensor) -> Tensor:
        return gradient(lambda t: neuron.loss(t.cos() * u + t.sin() * e), torch.zeros((), dtype=torch.float64))

    on_sphere = torch.stack([slope(e) * e for e in basis]).sum(0)
    yield equal("gradient on the sphere", project(on_sphere, probe), predicted=project(gradient(neuron.loss, u), probe))


def _fisher(net: Layer) -> tuple[Tensor, Tensor]:
    """Fisher matrix in (W, b) of the softmax of the outputs, mean over the batch, and a cross-entropy gradient."""

    def logits(flat: Tensor) -> Tensor:
        return net.vary(flat).outputs()

    flat = flatten(net.weight, net.bias)
    p = logits(flat).softmax(1)
    rows = jacobian(logits, flat).reshape(*p.shape, -1)
    fisher = torch.einsum("nip,nij,njq->pq", rows, torch.diag_embed(p) - p[:, :, None] * p[:, None, :], rows) / len(p)
    labels = net.target.argmax(1)
    return fisher, gradient(lambda f: torch.nn.functional.cross_entropy(logits(f), labels), flat)


def _classifier(draw: Draw) -> Layer:
    """A batch-norm layer with three outputs and enough samples."""
    net = layer(draw)
    return net.using(x=draw.normal(30, net.x.shape[1]), head=draw.normal(3, len(net.bias)), target=draw.normal(30, 3))


def fisher_null_space(draw: Draw) -> Found:
    net = _classifier(draw)
    fisher, _ = _fisher(net)
    factor = draw.normal(len(net.bias))
    along = flatten(factor[:, None] * net.weight, factor * net.bias)
    yield equal("Fisher matrix along a scale", size(fisher @ along), predicted=0.0, scale=size(fisher) * size(along))
    zeros = int((torch.linalg.eigvalsh(fisher) < 1e-10 * size(fisher)).sum())
    yield equal("zero eigenvalues", zeros, predicted=2 * len(net.bias))


def natural_gradient(draw: Draw) -> Found:
    net = _classifier(draw)
    fisher, grad = _fisher(net)
    along = flatten(net.weight, net.bias)
    steps = {
        "pseudo-inverse": torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True) @ grad,
        "damped": torch.linalg.solve(fisher + 0.1 * torch.eye(len(grad), dtype=torch.float64), grad),
    }
    for name, step in steps.items():
        yield equal(f"{name}: part along the scale", step @ along, predicted=0.0, scale=size(step) * size(along))
    values = torch.linalg.eigvalsh(fisher)
    yield shown("the Fisher matrix itself has no inverse", float(values[0].abs() / values[-1]) < 1e-12)


def not_natural(draw: Draw) -> Found:
    n = draw.integer(4, 7)
    neuron, w = unit(draw, n=n)
    neuron = Unit(neuron.x * torch.logspace(-0.5, 0.5, n, dtype=torch.float64), neuron.target, neuron.gamma)
    slope, grad, probe = jacobian(neuron.outputs, w), gradient(neuron.loss, w), draw.normal(n, n)
    fisher = slope.T @ slope / len(neuron.x)
    natural = torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True) @ grad
    yield refutes("cosine of both gradients", float(natural @ grad) / size(natural) / size(grad), published=1.0)
    s, q = neuron.covariance, float(w @ neuron.covariance @ w)
    right = neuron.gamma**2 / q * (s - torch.outer(s @ w, s @ w) / q)
    yield equal("Fisher matrix", project(fisher, probe), predicted=project(right, probe))


def _wave(draw: Draw) -> tuple[Tensor, Tensor]:
    """Coefficients of a random loss of the angle, f(θ) = Σ a_k cos kθ + b_k sin kθ."""
    return draw.normal(3), draw.normal(3)


def _of_angle(wave: tuple[Tensor, Tensor], theta: Tensor) -> Tensor:
    k = torch.arange(1, 4, dtype=torch.float64)
    return (wave[0] * (k * theta).cos() + wave[1] * (k * theta).sin()).sum()


def _second(wave: tuple[Tensor, Tensor], theta: float) -> float:
    """f″(θ) in closed form."""
    return -sum(
        k * k * float(wave[0][k - 1] * math.cos(k * theta) + wave[1][k - 1] * math.sin(k * theta)) for k in (1, 2, 3)
    )


def polar_curvature(draw: Draw) -> Found:
    wave, r = _wave(draw), float(draw.uniform(1, low=0.5, high=3.0))
    grid = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    theta = grid[torch.stack([_of_angle(wave, t) for t in grid]).argmin()]
    for _ in range(20):
        theta = theta - gradient(lambda t: _of_angle(wave, t), theta) / _second(wave, float(theta))
    w = r * torch.stack([theta.cos(), theta.sin()])
    values = torch.linalg.eigvalsh(hessian(lambda w: _of_angle(wave, torch.atan2(w[1], w[0])), w))
    yield equal("curvature along the angle", values[1], predicted=_second(wave, float(theta)) / r**2)
    yield equal("curvature along the radius", values[0], predicted=0.0, scale=float(values[1]))


def geodesic_curvature(draw: Draw) -> Found:
    neuron, w = unit(draw)
    u, c = w / w.norm(), float(draw.uniform(1, low=2.0, high=20.0))
    e = draw.normal(len(w))
    e = (e - u * (u @ e)) / (e - u * (u @ e)).norm()

    def bend(r: float) -> float:
        turn = torch.zeros(1, dtype=torch.float64)
        return float(hessian(lambda t: neuron.loss(r * (t.cos() * u + t.sin() * e)), turn))

    yield equal("curvature per radian at length c", bend(c), predicted=bend(1.0))
    yield equal(
        "curvature per radian at length c", bend(c), predicted=float(e @ hessian(neuron.loss, c * u) @ e) * c**2
    )


def condition_number(draw: Draw) -> Found:
    n, c = draw.integer(3, 5), 10.0
    x = draw.normal(40, 2 * n) + 1
    start = draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardize(x[:, :n] @ flat[:n]) + standardize(x[:, n:] @ flat[n:])

    def kappa(flat: Tensor, units: int) -> float:
        target = outputs(flat)
        values = torch.linalg.eigvalsh(
            hessian(lambda p: (outputs(p) - target).square().mean(), flat)[: units * n, : units * n]
        )
        kept = values[units:]  # one zero a unit
        return float(kept[-1] / kept[0])

    scaled = flatten(c * start[:n], start[n:])
    yield moves("condition number, two units", kappa(start, 2), kappa(scaled, 2))
    yield equal("size of the outputs", size(outputs(scaled)), predicted=size(outputs(start)))
    yield equal("condition number, one unit", kappa(scaled, 1), predicted=kappa(start, 1), rel=1e-7)


def slow_turn(draw: Draw) -> Found:
    neuron, w = unit(draw)
    w = w / w.norm()
    c, probe = float(draw.uniform(1, low=0.3, high=4.0)), draw.normal(len(w))
    near, far = flow(neuron.loss, w, 0.6, 40), flow(neuron.loss, c * w, 0.6 * c**2, 40)
    yield equal("where flow from c·w is after c²·T", project(far, probe), predicted=c * project(near, probe))
    yield shown("the direction did turn", size(near - w) > 1e-3)

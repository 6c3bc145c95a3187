"""Claims of Akbar on gradient flow, descent and the length of the weights: section 5."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    Layer,
    Unit,
    angle,
    descend,
    flatten,
    flow,
    gradient,
    layer,
    project,
    size,
    standardize,
    unit,
)

claims = Family("A", "Akbar")


def _flat_loss(net: Layer, flat: Tensor) -> Tensor:
    return net.vary(flat).loss()


@claims.add(
    "L5.1",
    "lemma 5.1",
    Verdict.HOLDS,
    "Gradient flow leaves the length of the weights of each batch-norm unit as it was",
    "At ε = 0 and without weight decay, for each unit.",
)
def flow_keeps_length(draw: Draw) -> Found:
    """Length of each row after a long Runge-Kutta flow."""
    net = layer(draw)
    end = net.vary(flow(lambda flat: _flat_loss(net, flat), flatten(net.weight, net.bias), 0.5, 40))
    i = draw.integer(0, len(net.bias))
    yield equal("length of one unit's weights", size(end.weight[i]), predicted=size(net.weight[i]), rel=1e-6)
    yield shown("the weights did move", size(end.weight - net.weight) > 1e-6)


@claims.add(
    "L5.1.LN",
    "below lemma 5.1",
    Verdict.WRONG,
    "Under layer norm gradient flow conserves the Frobenius norm of the weight matrix",
    "It conserves ‖W‖² + ‖b‖²; without a bias that is the Frobenius norm.",
)
def flow_layer_norm(draw: Draw) -> Found:
    """‖W‖ and ‖W‖² + ‖b‖² before and after a flow."""
    net = layer(draw, dim=1)
    # a sample whose units are almost equal makes the flow stiff
    while float((net.x @ net.weight.T + 2 * net.bias).std(1, unbiased=False).min()) < 0.4:
        net = layer(draw, dim=1)
    net = net.using(bias=2 * net.bias)
    start = flatten(net.weight, net.bias)
    end = flow(lambda flat: _flat_loss(net, flat), start, 1.0, 60)
    yield refutes("‖W‖ after the flow", size(net.vary(end).weight), published=size(net.weight), by=1e-6)
    yield equal("‖W‖² + ‖b‖² after the flow", size(end) ** 2, predicted=size(start) ** 2, rel=1e-6)


@claims.add(
    "L5.1.WN",
    "below lemma 5.1",
    Verdict.WRONG,
    "Under weight norm flow conserves ‖v‖ because the gradient is orthogonal to (v, −g)",
    "‖v‖ is conserved because ∂L/∂v is orthogonal to v. The reason given would conserve ‖v‖² − g², which moves.",
)
def flow_weight_norm(draw: Draw) -> Found:
    """‖v‖ and ‖v‖² − g² along a flow in (v, g)."""
    neuron, v = unit(draw)
    start = flatten(v / v.norm() * float(draw.uniform(1, low=1.0, high=2.0)), torch.ones(1, dtype=torch.float64))

    def loss(flat: Tensor) -> Tensor:
        v, g = flat[:-1], flat[-1]
        return 0.5 * (neuron.x @ (g * v / v.norm()) - 3 * neuron.target).square().mean()

    end = flow(loss, start, 1.0, 60)
    before, after = (float(p[:-1].square().sum() - p[-1] ** 2) for p in (start, end))
    yield refutes("‖v‖² − g² after the flow", after, published=before, by=1e-6)
    yield equal("‖v‖ after the flow", size(end[:-1]), predicted=size(start[:-1]), rel=1e-5)


@claims.add(
    "5.component",
    "section 5.1",
    Verdict.WRONG,
    "The component of the weights along an invariant direction is conserved by gradient flow",
    "True for shifts, which are straight. For a scale the length is conserved, and the component along the start "
    "falls.",
)
def component(draw: Draw) -> Found:
    """Component along the start, and the length."""
    neuron, w = unit(draw)
    w = w / w.norm()
    end = flow(neuron.loss, w, 1.0, 50)
    yield refutes("component along the start", end @ w, published=1.0, by=1e-6)
    yield equal("length", size(end), predicted=1.0, rel=1e-6)
    yield equal("component along the start", end @ w, predicted=math.cos(angle(end, w)), rel=1e-6)


@claims.add(
    "5.bias",
    "section 5.1",
    Verdict.HOLDS,
    "A common offset of the biases stays what it was at the start",
    "Under batch norm every bias does; under layer norm their mean, and every column sum of W.",
)
def offsets(draw: Draw) -> Found:
    """Biases after a flow under both normalizers."""
    for dim, name in ((0, "batch norm"), (1, "layer norm")):
        net = layer(draw, dim=dim)
        start = flatten(net.weight, net.bias)
        end = net.vary(flow(lambda flat, net=net: _flat_loss(net, flat), start, 1.0, 40))  # type: ignore[misc]
        probe = draw.normal(len(net.bias)) if dim == 0 else torch.ones(len(net.bias), dtype=torch.float64)
        yield equal(f"{name}: biases", project(end.bias, probe), predicted=project(net.bias, probe), rel=1e-7)
        if dim:
            yield equal(
                "layer norm: a column sum", end.weight[:, 0].sum(), predicted=float(net.weight[:, 0].sum()), rel=1e-7
            )


@claims.add(
    "5.endpoint",
    "section 5.1",
    Verdict.HOLDS,
    "Gradient flow ends on the best ray at the length it started with: batch norm does not shrink weights",
    "Exact for one unit and squared loss: the ray is Σ⁻¹cov(x, t).",
)
def endpoint(draw: Draw) -> Found:
    """The end of a long flow against the closed form."""
    n = draw.integer(2, 5)
    x = draw.normal(40, n)
    neuron = Unit(x, standardize(x @ draw.normal(n)) + 0.3 * draw.normal(40))
    best = torch.linalg.solve(neuron.covariance, (x - x.mean(0)).T @ neuron.target)
    start = best + best.norm() * draw.orthogonal(n)[0]  # at most a right angle away
    start = start / start.norm() * float(draw.uniform(1, low=0.5, high=1.5))
    end = flow(neuron.loss, start, 16 * size(start) ** 2, 160)
    yield equal("component of the end on the best ray", end @ best / best.norm(), predicted=size(start), rel=1e-4)


@claims.add(
    "5.init",
    "section 5.1, summary",
    Verdict.WRONG,
    "With batch norm the initial scale of the weights does not matter for learning",
    "It sets the speed: c times longer weights turn c² times slower. The paths agree only if η grows by c² too.",
)
def initial_scale(draw: Draw) -> Found:
    """Descent from u and from c·u at the same rate, then at c² times the rate."""
    neuron, w = unit(draw)
    u, rate, steps = w / w.norm(), 0.05, 20
    c, probe = float(draw.uniform(1, low=3.0, high=6.0)), draw.normal(len(w))
    near, far = (angle(descend(neuron.loss, k * u, rate, 1)[-1], u) for k in (1.0, c))
    yield refutes("turn of the first step from c·w", far, published=near)
    yield equal("turn of the first step from c·w", math.tan(far), predicted=math.tan(near) / c**2, rel=1e-7)
    one, other = descend(neuron.loss, u, rate, steps)[-1], descend(neuron.loss, c * u, c**2 * rate, steps)[-1]
    yield equal("end from c·w at rate c²η", project(other, probe), predicted=c * project(one, probe))


@claims.add(
    "5.two",
    "section 5.1",
    Verdict.HOLDS,
    "All motion happens in directions: with batch norm a unit lives on a compact sphere",
    "Exact for descent as well: the direction depends on η/‖w‖² and the direction alone.",
)
def sphere_descent(draw: Draw) -> Found:
    """Descent in space against descent on directions with the rate η/‖w‖²."""
    neuron, w = unit(draw)
    rate, probe = float(draw.uniform(1, low=0.1, high=1.0)), draw.normal(len(w))
    path = descend(neuron.loss, w, rate, 15)
    u, length2 = w / w.norm(), float(w @ w)
    for _ in range(15):
        grad = gradient(neuron.loss, u)  # orthogonal to u, so that lengths add in squares
        u, length2 = u - rate / length2 * grad, length2 + rate**2 / length2 * size(grad) ** 2
        u = u / u.norm()
    yield equal("direction after 15 steps", project(path[-1] / path[-1].norm(), probe), predicted=project(u, probe))
    yield equal("length after 15 steps", size(path[-1]), predicted=math.sqrt(length2))

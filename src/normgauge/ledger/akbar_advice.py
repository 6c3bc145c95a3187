"""Claims of Akbar on initialization, learning rates, decay and batch size in practice: sections 9.1 and 9.4."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    Step,
    angle,
    flatten,
    gradient,
    layer,
    nullity,
    project,
    size,
    split,
    standardize,
    unit,
    wander,
)

claims = Family("A", "Akbar")


@claims.add(
    "9.1.init",
    "section 9.1",
    Verdict.UNSUPPORTED,
    "With batch or layer norm the scale of the initial weights hardly needs attention",
    "The head is not normalized, so that its scale passes to the outputs; and below √ε the layers in front go silent.",
)
def initialization(draw: Draw) -> Found:
    """Outputs with a scaled head, and with weights scaled far below √ε."""
    net, alpha, tiny = layer(draw, eps=1e-5), float(draw.uniform(1, low=10.0, high=100.0)), 1e-6
    yield equal(
        "outputs with the head times α",
        size(net.using(head=alpha * net.head).outputs()),
        predicted=alpha * size(net.outputs()),
    )
    z = net.x @ net.weight.T
    silent = standardize(tiny * z, 1e-5)
    yield equal(
        "normalized values at weights times 1e-6",
        size(silent),
        predicted=tiny * size(z - z.mean(0)) / math.sqrt(1e-5),
        rel=1e-4,
    )


@claims.add(
    "9.1.symmetry",
    "section 9.1",
    Verdict.HOLDS,
    "Batch norm does not break symmetry: units that start alike get the same gradients",
    "Exact for every batch, which is why its noise cannot leave that saddle either (A.saddle).",
)
def symmetric_units(draw: Draw) -> Found:
    """Gradients of two equal units."""
    net, probe = layer(draw), draw.normal(5)
    twin = torch.arange(len(net.bias))
    twin[1] = 0
    net = net.using(
        weight=net.weight[twin], gamma=net.gamma[twin], beta=net.beta[twin], bias=net.bias[twin], head=net.head[:, twin]
    )
    (weight,) = net.gradients("weight")
    probe = probe[: weight.shape[1]]
    yield equal("gradient of the second unit", project(weight[1], probe), predicted=project(weight[0], probe))


@claims.add(
    "9.1.capacity",
    "section 9.1",
    Verdict.WRONG,
    "Leaving out the biases in front of batch norm reduces the capacity of the model a little",
    "Not at all: the same functions, fewer idle parameters.",
)
def no_capacity(draw: Draw) -> Found:
    """Directions that move the outputs, with and without the biases."""
    net = layer(draw)
    net = net.using(x=draw.normal(30, net.x.shape[1]))

    def rank(*parts: Tensor) -> int:
        def outputs(flat: Tensor) -> Tensor:
            given = split(flat, parts)
            return net.using(weight=given[0], **({"bias": given[1]} if len(given) > 1 else {})).outputs()

        start = flatten(*parts)
        return len(start) - nullity(outputs, start)

    with_bias, without = rank(net.weight, net.bias), rank(net.weight)
    yield refutes("directions lost without the biases", with_bias - without, published=len(net.bias))
    yield equal("directions left without the biases", without, predicted=with_bias)


claims.read(
    "9.1.choice",
    "section 9.1",
    Verdict.UNSUPPORTED,
    "Use batch norm for feed-forward networks with large batches, layer norm for language, weight norm otherwise",
    "Advice from practice; it follows from nothing in the paper and names nothing that could be computed.",
)


claims.read(
    "9.1.transformers",
    "section 9.1",
    Verdict.UNSUPPORTED,
    "The analysis explains why layer norm works well in transformers",
    "The analysis has no attention and no residual stream; nothing is derived that could be checked.",
)


@claims.add(
    "9.1.bounded",
    "section 9.1",
    Verdict.WRONG,
    "Batch norm keeps gradients bounded, so that the learning rate may be raised",
    "They are unbounded: ∇L(cw) = ∇L(w)/c grows without limit as the weights get short.",
)
def unbounded(draw: Draw) -> Found:
    """Gradient at ever shorter weights."""
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=1e-6, high=1e-4))
    here, there = (size(gradient(neuron.loss, k * w)) for k in (1.0, c))
    yield refutes("gradient at c·w over that at w", there / here, published=1.0)
    yield equal("gradient at c·w over that at w", there / here, predicted=1 / c)


@claims.add(
    "9.1.adam",
    "section 9.1",
    Verdict.UNSUPPORTED,
    "Adam's scaling of gradients is redundant beside batch norm",
    "Another law: weights c times as long turn 1/c as far under Adam, 1/c² under plain descent; nor is it orthogonal.",
)
def adam_steps(draw: Draw) -> Found:
    """Turn after three small steps of either, from u and from c·u.

    Adam is written out: the first step of torch's own would load its compiler, which takes a second.
    """
    neuron, w = unit(draw)
    u, c, rate = w / w.norm(), float(draw.uniform(1, low=2.0, high=5.0)), 1e-4

    def walk(kind: str, length: float) -> Tensor:
        point, mean, square = length * u, torch.zeros_like(u), torch.zeros_like(u)
        for t in (1, 2, 3):
            grad = gradient(neuron.loss, point)
            mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad.square()
            step = mean / (1 - 0.9**t) / (square / (1 - 0.999**t)).sqrt()
            point = point - rate * (step if kind == "adam" else grad)
        return point

    def turn(kind: str, length: float) -> float:
        return angle(walk(kind, length), u)

    yield equal("Adam: turn at c over turn at 1", turn("adam", c) / turn("adam", 1.0), predicted=1 / c, rel=5e-3)
    yield equal("plain: turn at c over turn at 1", turn("sgd", c) / turn("sgd", 1.0), predicted=1 / c**2, rel=5e-3)
    yield shown("Adam's step has a part along the weights", abs(float((walk("adam", 1.0) - u) @ u)) > 1e-9 * rate)


@claims.add(
    "9.1.decay",
    "section 9.1",
    Verdict.WRONG,
    "With batch norm a trace of weight decay is enough, just to break the symmetry; its strength hardly matters",
    "It sets the pace of learning: at equilibrium directions turn by about √(2ηλ) a step, exactly arccos(1−ηλ).",
)
def decay_strength(draw: Draw) -> Found:
    """Turn a step at equilibrium for two strengths of decay."""
    rate, decay, k = 0.2, float(draw.uniform(1, low=0.1, high=0.2)), 4.0
    turns = []
    for strength in (decay, k * decay):
        path = wander(draw, draw.normal(5), Step(rate, strength), 1.0, 500)
        turns.append(angle(path[-1], path[-2]))
    yield refutes("turn with 4λ over turn with λ", turns[1] / turns[0], published=1.0)
    yield equal("turn with 4λ", turns[1], predicted=math.acos(1 - k * rate * decay), rel=1e-4)


@claims.add(
    "9.1.nodecay",
    "section 9.1",
    Verdict.LOOSE,
    "Without weight decay the weights of a batch-norm network grow",
    "Slowly: ‖w‖⁴ = ‖w₀‖⁴ + 2η²G²t, so that the effective rate η/‖w‖² falls like 1/√t by itself.",
)
def growth_without_decay(draw: Draw) -> Found:
    """Length of a weight driven by noise of constant strength at two times."""
    start, rate, strength = draw.normal(6), 0.05, float(draw.uniform(1, low=0.5, high=1.5))
    start = start / start.norm()
    path = wander(draw, start, Step(rate, 0.0), strength, 900).norm(dim=1)
    for t in (300, 900):
        yield equal(f"‖w‖⁴ after {t} steps", path[t] ** 4, predicted=1 + 2 * (rate * strength) ** 2 * t, rel=1e-2)
    yield shown("it never gets shorter", bool((path[1:] >= path[:-1]).all()))


@claims.add(
    "9.4.small",
    "section 9.4",
    Verdict.HOLDS,
    "Batch norm breaks down for very small batches",
    "With two samples only the sign of their difference is left: ±σ/√(σ²+ε). With one, nothing is.",
)
def tiny_batches(draw: Draw) -> Found:
    """Outputs for batches of two and of one."""
    z = draw.normal(2) * float(draw.uniform(1, low=0.1, high=100.0))
    out = standardize(z)
    yield equal("first of two outputs", out[0], predicted=1.0 if z[0] > z[1] else -1.0)
    yield equal("output of one sample alone, ε > 0", size(standardize(z[:1], 1e-5)), predicted=0.0, scale=1.0)


@claims.add(
    "9.4.one",
    "section 9.4",
    Verdict.HOLDS,
    "Layer norm still works with a batch of one",
    "A sample gives the same alone and in company.",
)
def layer_norm_alone(draw: Draw) -> Found:
    """One sample, alone and in a batch."""
    z = draw.normal(4, draw.integer(3, 7))
    probe = draw.normal(z.shape[1])
    together, alone = F.layer_norm(z, z.shape[1:])[0], F.layer_norm(z[:1], z.shape[1:])[0]
    yield equal("output alone", project(alone, probe), predicted=project(together, probe))


@claims.add(
    "9.4.adapt",
    "section 9.4",
    Verdict.HOLDS,
    "New statistics adapt batch norm to shifted test data",
    "Exactly for a scale and a shift of each feature in front of it (ε → 0); not for a rotation.",
)
def adapting(draw: Draw) -> Found:
    """Eval outputs with statistics of the shifted data, and of rotated data."""
    n = draw.integer(2, 5)
    x, scale, shift = (
        draw.normal(30, n) * torch.arange(1, n + 1).double(),
        draw.uniform(n, low=0.3, high=3.0),
        draw.normal(n),
    )
    probe, turn = draw.normal(30, n), draw.orthogonal(n)
    yield equal(
        "outputs on scaled and shifted data",
        project(standardize(scale * x + shift), probe),
        predicted=project(standardize(x), probe),
    )
    yield shown("rotated data: other outputs", size(standardize(x @ turn) - standardize(x) @ turn) > 1e-3)


claims.trained(
    "9.4.inputs",
    "sections 7.2 and 9.4",
    Verdict.UNSUPPORTED,
    "A trained batch-norm network stands a change of scale or offset of its inputs",
    "True with statistics of the new data, not with the stored ones (A.7.2.inputs): inputs × 0.1 then cost 15.7 points "
    "of accuracy, 8.7 without batch norm.",
    "akbar2025/shift",
)

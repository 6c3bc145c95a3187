"""Claims of Akbar on how descent and weight decay change the length of the weights: section 5.1, remark."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Verdict
from normgauge.ledger.claim import Family, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    Layer,
    Step,
    angle,
    descend,
    flow,
    gradient,
    layer,
    size,
    unit,
    wander,
)

claims = Family("A", "Akbar")


@claims.add(
    "R5.1.i",
    "remark (i) after lemma 5.1",
    Verdict.HOLDS,
    "With finite steps the length drifts, more so for large learning rates",
    "It only grows: ‖w′‖² = ‖w‖² + η²‖∇L‖² exactly, at ε = 0 and without momentum.",
    backs=["normgauge.dynamics.motion.norm_growth_residual"],
)
def discrete_growth(draw: Draw) -> Found:
    """Length after many steps against the sum of squared steps; growth over the learning rate."""
    neuron, w = unit(draw)
    w, rate, steps = w / w.norm(), float(draw.uniform(1, low=0.2, high=3.0)), 40
    path = descend(neuron.loss, w, rate, steps)
    moved = sum(size(gradient(neuron.loss, p)) ** 2 for p in path[:-1])
    yield equal("‖w‖² after many steps", size(path[-1]) ** 2, predicted=1.0 + rate**2 * moved)
    rates = tuple(10.0 ** (-2 + k / 3) for k in range(10))
    grown = tuple(size(descend(neuron.loss, w, r, steps)[-1]) for r in rates)
    yield shown("longer with every larger rate tried, from 0.01 to 10", grown[-1] > grown[0])
    yield Curve(
        "Length of batch-norm weights after 40 steps of descent",
        "learning rate",
        "length, 1 at the start",
        rates,
        (("measured", grown), ("gradient flow", (1.0,) * len(rates))),
        log_x=True,
        log_y=True,
    )


@claims.add(
    "R5.1.ii",
    "remark (ii) after lemma 5.1",
    Verdict.HOLDS,
    "Weight decay breaks the invariance and changes the length",
    "One step: ‖w′‖² = (1−ηλ)²‖w‖² + η²‖∇L‖².",
)
def decay_step(draw: Draw) -> Found:
    """One step of descent on the loss with its penalty."""
    neuron, w = unit(draw)
    rate, decay = float(draw.uniform(1, low=0.1, high=1.0)), float(draw.uniform(1, low=0.05, high=0.5))
    after = descend(lambda w: neuron.loss(w) + decay / 2 * w.square().sum(), w, rate, 1)[-1]
    step = size(gradient(neuron.loss, w))
    yield equal(
        "‖w‖² after a step", size(after) ** 2, predicted=(1 - rate * decay) ** 2 * size(w) ** 2 + rate**2 * step**2
    )


@claims.add(
    "R5.1.iii",
    "remark (iii) after lemma 5.1",
    Verdict.WRONG,
    "Mini-batches break the invariance: their gradients have a part along the weights",
    "The identity holds for every batch, however small: the part along the weights is 0 at ε = 0.",
)
def batches_keep_it(draw: Draw) -> Found:
    """Largest |cosine| of weights and gradient over random batches, with batch norm and without."""
    net, worst, plain = layer(draw), 0.0, 0.0
    for _ in range(6):
        rows = torch.randperm(len(net.x), generator=draw.generator)[: draw.integer(3, 8)]
        batch = net.using(x=net.x[rows], target=net.target[rows])
        (weight,) = batch.gradients("weight")
        worst = max(worst, abs(float((weight * net.weight).sum())) / size(weight) / size(net.weight))

        def unnormalized(w: Tensor, batch: Layer = batch) -> Tensor:
            return (torch.tanh(batch.x @ w.T + batch.bias) @ batch.head.T - batch.target).square().mean()

        bare = gradient(unnormalized, net.weight)
        plain = max(plain, abs(float((bare * net.weight).sum())) / size(bare) / size(net.weight))
    yield refutes("largest |cosine|, against that without batch norm", worst, published=plain)
    yield equal("largest |cosine|", worst, predicted=0.0, scale=1.0)


@claims.add(
    "5.grow",
    "remark after lemma 5.1",
    Verdict.WRONG,
    "Without weight decay the training algorithm does not change the length of batch-norm weights",
    "Flow does not; descent lengthens them at every step that moves them, like t^¼ under steady noise.",
)
def never_shrinks(draw: Draw) -> Found:
    """Length of a weight driven by noise of constant strength, against ‖w‖⁴ = ‖w₀‖⁴ + 2η²G²t."""
    rate, strength, steps = float(draw.uniform(1, low=0.02, high=0.06)), float(draw.uniform(1, low=0.5, high=2.0)), 800
    start = draw.normal(8)
    start = start / start.norm()
    end = size(wander(draw, start, Step(rate, 0.0), strength, steps)[-1])
    yield refutes("length after 800 steps", end, published=1.0)
    yield equal("length after 800 steps", end, predicted=(1 + 2 * (rate * strength) ** 2 * steps) ** 0.25, rel=5e-3)


@claims.add(
    "WD",
    "section 5.1",
    Verdict.WRONG,
    "With weight decay λ the length obeys d‖w‖²/dt = −λ‖w‖² and shrinks, perhaps to 0",
    "−2λ under flow. Descent has an equilibrium: ‖w‖⁴ = ηG²/(2λ−ηλ²), turning arccos(1−ηλ) a step; G = ‖w‖‖∇L‖.",
    backs=["normgauge.dynamics.equilibrium.sgd_equilibrium"],
)
def weight_decay(draw: Draw) -> Found:
    """Flow with a penalty; then descent with noise of constant strength to its equilibrium."""
    neuron, w = unit(draw)
    decay, time = float(draw.uniform(1, low=0.1, high=0.5)), 0.8
    ratio = size(flow(lambda w: neuron.loss(w) + decay / 2 * w.square().sum(), 3 * w, time, 20)) ** 2 / size(3 * w) ** 2
    yield refutes("‖w‖² after the flow, over the start", ratio, published=math.exp(-decay * time))
    yield equal("‖w‖² after the flow, over the start", ratio, predicted=math.exp(-2 * decay * time), rel=1e-6)
    rate, strength = float(draw.uniform(1, low=0.05, high=0.3)), float(draw.uniform(1, low=0.5, high=2.0))
    path = wander(draw, draw.normal(6), Step(rate, decay), strength, 800)
    norms = path.norm(dim=1)
    yield equal(
        "‖w‖⁴ at equilibrium", norms[-1] ** 4, predicted=rate * strength**2 / (2 * decay - rate * decay**2), rel=1e-5
    )
    yield equal(
        "turn a step at equilibrium", angle(path[-1], path[-2]), predicted=math.acos(1 - rate * decay), rel=1e-5
    )
    shown_steps = tuple(float(k) for k in range(0, 800, 20))
    yield Curve(
        "Length of batch-norm weights under weight decay",
        "step",
        "‖w‖",
        shown_steps,
        (
            ("measured", tuple(float(norms[int(k)]) for k in shown_steps)),
            ("published", tuple(float(norms[0]) * math.exp(-rate * decay * k / 2) for k in shown_steps)),
            ("equilibrium", ((rate * strength**2 / (2 * decay - rate * decay**2)) ** 0.25,) * len(shown_steps)),
        ),
        log_y=True,
    )


@claims.add(
    "5.eff",
    "section 5.1, summary",
    Verdict.HOLDS,
    "Batch norm tunes the learning rate by itself: long weights make small steps",
    "The direction turns by arctan(η‖w‖‖∇L‖/‖w‖²): the rate that counts is η/‖w‖².",
    backs=["normgauge.dynamics.motion.effective_lr"],
)
def effective_rate(draw: Draw) -> Found:
    """Angle of one step at two lengths."""
    neuron, w = unit(draw)
    u, rate = w / w.norm(), float(draw.uniform(1, low=0.1, high=2.0))
    slope = size(gradient(neuron.loss, u))
    for c in (1.0, float(draw.uniform(1, low=2.0, high=5.0))):
        turned = angle(descend(neuron.loss, c * u, rate, 1)[-1], u)
        yield equal(f"turn of one step at length {c:.2f}", turned, predicted=math.atan(rate * slope / c**2), rel=1e-7)

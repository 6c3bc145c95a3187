"""Claims of Akbar on implicit bias, weight decay and the last layer: sections 7.2 and 7.3."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, below, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    Step,
    Unit,
    angle,
    flatten,
    flow,
    gradient,
    layer,
    project,
    size,
    split,
    standardize,
    unit,
    wander,
)

claims = Family("A", "Akbar")


@claims.add(
    "7.2.minnorm",
    "section 7.2",
    Verdict.HOLDS,
    "Descent from 0 on a linear model with many solutions ends at the one of least norm",
    "Exact for squared loss: it never leaves the span of the samples.",
)
def least_norm(draw: Draw) -> Found:
    """Descent on an underdetermined problem against the pseudo-inverse."""
    m, n = draw.integer(2, 4), draw.integer(6, 9)
    x, y, probe = draw.orthogonal(n)[:m] * draw.uniform(m, 1, low=0.7, high=1.0), draw.normal(m), draw.normal(n)
    w = torch.zeros(n, dtype=torch.float64)
    for _ in range(150):
        w = w - 0.8 * x.T @ (x @ w - y)
    yield equal("end of descent", project(w, probe), predicted=project(torch.linalg.pinv(x) @ y, probe), rel=1e-7)


@claims.add(
    "7.2.maxmargin",
    "section 7.2",
    Verdict.WRONG,
    "Without batch norm, descent on a separable linear classifier keeps ‖w‖ small and so finds the largest margin",
    "‖w‖ grows without limit; its direction tends to the largest margin (Soudry et al. 2018), from any start.",
)
def separable(draw: Draw) -> Found:
    """Gradient flow on the exponential loss of two samples, in the time ∫L dt that makes it fast."""
    a, b = draw.uniform(2, low=0.6, high=1.4)
    points = torch.stack([torch.stack([a, b]), torch.stack([b, -a])]) + torch.tensor([[0.3, 0.0], [0.0, 0.2]]).double()
    widest = torch.linalg.solve(points, torch.ones(2, dtype=torch.float64))  # both samples at margin 1

    def loss(w: Tensor) -> Tensor:
        return torch.logsumexp(-(points @ w), 0)  # the log only changes the speed of the flow

    start = draw.normal(2)
    early = flow(loss, start, 20.0, 30)
    late = flow(loss, early, 280.0, 160)
    yield refutes("‖w‖ late over ‖w‖ early", size(late) / size(early), published=1.0)
    reached = float((points @ late).min()) / size(late)
    yield equal("margin of the direction reached", reached, predicted=1 / size(widest), rel=1e-2)
    yield below("angle to the widest direction, late", angle(late, widest), predicted=0.3 * angle(early, widest) + 1e-3)


@claims.add(
    "bias7.2",
    "section 7.2",
    Verdict.HOLDS,
    "Batch norm removes the pull to small norms: its loss is indifferent to the length of the weights",
    "The loss is the same at every length and flow keeps the length it began with.",
)
def indifferent(draw: Draw) -> Found:
    """Loss and flow from two lengths."""
    neuron, w = unit(draw)
    w, c = w / w.norm(), float(draw.uniform(1, low=2.0, high=5.0))
    yield equal("loss at c·w", neuron.loss(c * w), predicted=float(neuron.loss(w)))
    yield equal("length at the end of flow from c·w", size(flow(neuron.loss, c * w, 1.0, 20)), predicted=c, rel=1e-6)


@claims.add(
    "7.2.gain",
    "section 7.2",
    Verdict.UNSUPPORTED,
    "The implicit bias with batch norm may be towards a small gain |γ|",
    "Flow conserves γ² + β² less the squared length of the next layer's column: the gain is not made small.",
)
def gain_balance(draw: Draw) -> Found:
    """The conserved quantity of a ReLU behind batch norm, along a flow in (γ, β, head)."""
    h, m = draw.integer(2, 5), 20
    hat, target = standardize(draw.normal(m, h)), draw.normal(m, 2)
    start = [draw.uniform(h, low=0.5, high=1.5), 0.3 * draw.normal(h), draw.normal(2, h)]

    def loss(flat: Tensor) -> Tensor:
        gamma, beta, head = split(flat, start)
        return 0.5 * (torch.relu(gamma * hat + beta) @ head.T - target).square().sum(1).mean()

    gamma, beta, head = split(flow(loss, flatten(*start), 0.4, 80), start)
    i = draw.integer(0, h)
    before = float(start[0][i] ** 2 + start[1][i] ** 2 - start[2][:, i].square().sum())
    yield equal(
        "γ² + β² − ‖column‖² after the flow",
        gamma[i] ** 2 + beta[i] ** 2 - head[:, i].square().sum(),
        predicted=before,
        rel=1e-3,
        scale=1.0,
    )
    yield shown("the gain itself moved", abs(float(gamma[i] - start[0][i])) > 1e-6)


@claims.add(
    "7.2.last",
    "section 7.2",
    Verdict.HOLDS,
    "The last layer is not normalized: longer weights there lower the cross-entropy of right answers without end",
    "With all samples right, the loss falls along the ray to 0; its slope there is mean Σ z·(p − y) < 0.",
)
def last_layer(draw: Draw) -> Found:
    """Cross-entropy of a head that is right on all samples, along its ray."""
    m, k = draw.integer(5, 15), draw.integer(2, 5)
    z = draw.normal(m, k)
    labels, alpha = z.argmax(1), float(draw.uniform(1, low=2.0, high=5.0))
    slope = gradient(lambda a: F.cross_entropy(a * z, labels), torch.ones((), dtype=torch.float64))
    right = (z * (z.softmax(1) - F.one_hot(labels, k))).sum(1).mean()
    yield equal("slope of the loss along the ray", slope, predicted=float(right))
    yield below(
        "loss with a longer head", F.cross_entropy(alpha * z, labels), predicted=float(F.cross_entropy(z, labels))
    )
    yield equal("loss far out", F.cross_entropy(1e6 * z, labels), predicted=0.0, scale=1.0)


@claims.add(
    "7.2.nullified",
    "section 7.2",
    Verdict.WRONG,
    "Scaling the last layer is partly undone by the batch norm in front of it",
    "Nothing is undone: the outputs grow by exactly the same factor.",
)
def head_scale(draw: Draw) -> Found:
    """Outputs with a scaled head."""
    net, alpha = layer(draw), float(draw.uniform(1, low=3.0, high=30.0))
    ratio = size(net.using(head=alpha * net.head).outputs()) / size(net.outputs())
    yield refutes("outputs with the head times α over those before", ratio, published=1.0)
    yield equal("outputs with the head times α over those before", ratio, predicted=alpha)


@claims.add(
    "7.2.sensitive",
    "section 7.2",
    Verdict.WRONG,
    "A large last layer makes batch noise flip answers, which holds its growth in check",
    "Noise and margin grow together: the same samples flip at every length of the head.",
)
def noise_and_head(draw: Draw) -> Found:
    """Signs of one output over random batches, and the noise over the margin, for a head and a longer one."""
    net, alpha = layer(draw), float(draw.uniform(1, low=5.0, high=50.0))
    rows = [torch.randperm(len(net.x), generator=draw.generator)[:6] for _ in range(20)]

    def outputs(head: Tensor) -> Tensor:
        return torch.cat([net.using(x=net.x[r], head=head).outputs()[:, 0] for r in rows])

    one, other = outputs(net.head), outputs(alpha * net.head)
    flips = [int((o > 0).sum()) for o in (one, other)]
    ratio = float(other.std() / other.abs().mean()) / float(one.std() / one.abs().mean())
    yield refutes("noise over margin with the longer head, over that before", ratio, published=alpha)
    yield equal("noise over margin with the longer head, over that before", ratio, predicted=1.0)
    yield equal("answers of one sign", flips[1], predicted=flips[0], scale=1.0)


@claims.add(
    "7.2.uniform",
    "section 7.2",
    Verdict.UNSUPPORTED,
    "Batch norm spreads the work evenly over the layers, so that none has far larger weights",
    "Nothing evens them out: flow keeps the length of each unit, so that their ratio stays what it was at the start.",
)
def lengths_stay(draw: Draw) -> Found:
    """Ratio of the lengths of two units along a flow."""
    net, c = layer(draw), float(draw.uniform(1, low=10.0, high=40.0))
    factor = torch.ones(len(net.bias), dtype=torch.float64)
    factor[0] = c
    net = net.using(weight=factor[:, None] * net.weight)
    end = net.vary(flow(lambda flat: net.vary(flat).loss(), flatten(net.weight, net.bias), 0.5, 30))
    before = size(net.weight[0]) / size(net.weight[1])
    yield equal(
        "ratio of two lengths after the flow", size(end.weight[0]) / size(end.weight[1]), predicted=before, rel=1e-5
    )


@claims.add(
    "7.3.select",
    "sections 7.3 and 9.1",
    Verdict.WRONG,
    "Weight decay picks the solution of least norm among the equivalent ones",
    "There is none: the norm falls to 0 along the ray. What it sets is the speed: turning arccos(1−ηλ) a step at "
    "equilibrium.",
)
def decay_selects_speed(draw: Draw) -> Found:
    """Penalized loss along the ray of a solution; length and turn of a noisy descent for two decays."""
    neuron, w = unit(draw)
    neuron = neuron.solved(w)
    short = float(draw.uniform(1, low=0.01, high=0.5))
    yield shown("a shorter solution always exists", float(neuron.loss(short * w)) < 1e-20 and size(short * w) < size(w))
    rate, decay, strength = float(draw.uniform(1, low=0.1, high=0.3)), float(draw.uniform(1, low=0.1, high=0.3)), 1.0
    path = wander(draw, draw.normal(5), Step(rate, decay), strength, 600)
    yield refutes("length at equilibrium", size(path[-1]), published=0.0)
    yield equal(
        "turn a step at equilibrium", angle(path[-1], path[-2]), predicted=math.acos(1 - rate * decay), rel=1e-4
    )


@claims.add(
    "7.3.bias",
    "section 7.3",
    Verdict.HOLDS,
    "In linear cases descent with batch norm ends elsewhere than plain descent, not at the least norm",
    "What the start has orthogonal to the centred samples stays for ever; batch norm cannot start at 0.",
)
def other_solution(draw: Draw) -> Found:
    """The part of w outside the span of the centred samples, along descent on one unit with few samples."""
    m, n = draw.integer(4, 6), draw.integer(8, 11)
    x, w, probe = draw.normal(m, n), draw.normal(n), draw.normal(n)
    neuron = Unit(x, draw.normal(m))
    centred = x - x.mean(0)
    outside = torch.eye(n, dtype=torch.float64) - torch.linalg.pinv(centred) @ centred
    end = w
    for _ in range(100):
        end = end - 0.3 * gradient(neuron.loss, end)
    yield equal(
        "part outside the samples", project(outside @ end, probe), predicted=project(outside @ w, probe), rel=1e-8
    )
    least = outside @ torch.linalg.pinv(centred) @ neuron.target
    yield equal("that part of the least-norm solution", size(least), predicted=0.0, scale=1.0)


@claims.add(
    "7.3.together",
    "section 7.3",
    Verdict.UNSUPPORTED,
    "Decay and batch norm play different parts: one shapes geometry, the other brings norm regularization back",
    "Behind batch norm decay is no norm regularizer: of the product ηλ alone depends how fast directions turn.",
)
def product_counts(draw: Draw) -> Found:
    """Turn a step for (η, λ) and for (kη, λ/k)."""
    rate, decay, k = float(draw.uniform(1, low=0.1, high=0.2)), float(draw.uniform(1, low=0.2, high=0.4)), 3.0
    turns = [
        wander(draw, draw.normal(5), step, 1.0, 500)[-2:] for step in (Step(rate, decay), Step(k * rate, decay / k))
    ]
    one, other = (angle(t[0], t[1]) for t in turns)
    yield equal("turn a step with (kη, λ/k)", other, predicted=one, rel=1e-4)
    yield equal("turn a step", one, predicted=math.acos(1 - rate * decay), rel=1e-4)

"""Checks: margins."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve
from normgauge.ledger.claim import Found, below, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import (
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


def least_norm(draw: Draw) -> Found:
    m, n = draw.integer(2, 4), draw.integer(6, 9)
    x, y, probe = draw.orthogonal(n)[:m] * draw.uniform(m, 1, low=0.7, high=1.0), draw.normal(m), draw.normal(n)
    w = torch.zeros(n, dtype=torch.float64)
    for _ in range(150):
        w = w - 0.8 * x.T @ (x @ w - y)
    yield equal("end of descent", project(w, probe), predicted=project(torch.linalg.pinv(x) @ y, probe), rel=1e-7)


def separable(draw: Draw) -> Found:
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


def indifferent(draw: Draw) -> Found:
    neuron, w = unit(draw)
    w, c = w / w.norm(), float(draw.uniform(1, low=2.0, high=5.0))
    yield equal("loss at c·w", neuron.loss(c * w), predicted=float(neuron.loss(w)))
    yield equal("length at the end of flow from c·w", size(flow(neuron.loss, c * w, 1.0, 20)), predicted=c, rel=1e-6)


def gain_balance(draw: Draw) -> Found:
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


def last_layer(draw: Draw) -> Found:
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


def head_scale(draw: Draw) -> Found:
    net, alpha = layer(draw), float(draw.uniform(1, low=3.0, high=30.0))
    ratio = size(net.using(head=alpha * net.head).outputs()) / size(net.outputs())
    yield refutes("outputs with the head times α over those before", ratio, published=1.0)
    yield equal("outputs with the head times α over those before", ratio, predicted=alpha)


def noise_and_head(draw: Draw) -> Found:
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


def lengths_stay(draw: Draw) -> Found:
    net, c = layer(draw), float(draw.uniform(1, low=10.0, high=40.0))
    factor = torch.ones(len(net.bias), dtype=torch.float64)
    factor[0] = c
    net = net.using(weight=factor[:, None] * net.weight)
    end = net.vary(flow(lambda flat: net.vary(flat).loss(), flatten(net.weight, net.bias), 0.5, 30))
    before = size(net.weight[0]) / size(net.weight[1])
    yield equal(
        "ratio of two lengths after the flow", size(end.weight[0]) / size(end.weight[1]), predicted=before, rel=1e-5
    )


def decay_selects_speed(draw: Draw) -> Found:
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


def other_solution(draw: Draw) -> Found:
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


def product_counts(draw: Draw) -> Found:
    rate, decay, k = float(draw.uniform(1, low=0.1, high=0.2)), float(draw.uniform(1, low=0.2, high=0.4)), 3.0
    turns = [
        wander(draw, draw.normal(5), step, 1.0, 500)[-2:] for step in (Step(rate, decay), Step(k * rate, decay / k))
    ]
    one, other = (angle(t[0], t[1]) for t in turns)
    yield equal("turn a step with (kη, λ/k)", other, predicted=one, rel=1e-4)
    yield equal("turn a step", one, predicted=math.acos(1 - rate * decay), rel=1e-4)


def sketched_bound(draw: Draw) -> Found:
    net, c = layer(draw), float(draw.uniform(1, low=3.0, high=10.0))

    def printed(first: Tensor, second: Tensor) -> float:
        one = [float(w.norm(dim=1).sum()) ** 2 for w in (first, second)]
        most = [float(w.norm(dim=1).max()) ** 2 for w in (first, second)]
        return (one[0] * most[1] + one[1] * most[0]) / len(net.x)

    scaled = net.using(weight=c * net.weight, bias=c * net.bias)
    yield moves("the printed expression", printed(net.weight, net.head), printed(scaled.weight, net.head))
    yield equal("outputs", size(scaled.outputs()), predicted=size(net.outputs()))


def norm_product(draw: Draw) -> Found:
    net, c = layer(draw), float(draw.uniform(1, low=3.0, high=10.0))

    def products(weight: Tensor) -> tuple[float, float]:
        sigma = (net.x @ weight.T).std(0, unbiased=False)
        head = float(torch.linalg.matrix_norm(net.head, 2))
        folded = torch.linalg.matrix_norm((net.gamma / sigma)[:, None] * weight, 2)
        return head * float(torch.linalg.matrix_norm(weight, 2)), head * float(folded)

    before, after = products(net.weight), products(c * net.weight)
    yield moves("product of the norms", before[0], after[0])
    yield equal("product after folding", after[1], predicted=before[1])


def symmetric_flatness(draw: Draw) -> Found:
    net = layer(draw)
    factor, probe = draw.uniform(len(net.bias), low=0.1, high=10.0), draw.normal(*net.target.shape)
    moved = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
    yield equal("outputs", project(moved.outputs(), probe), predicted=project(net.outputs(), probe))


def weight_noise(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, c, level = neuron.solved(w), float(draw.uniform(1, low=4.0, high=10.0)), 0.2
    noise = draw.normal(60, len(w))

    def shaken(w: Tensor, level: float) -> float:
        return sum(float(neuron.loss(w + level * e)) for e in noise) / len(noise)

    yield moves("loss under noise of a fixed size", shaken(w, level), shaken(c * w, level))
    proportional = shaken(c * w, level * size(c * w))
    yield equal("loss under noise in proportion to ‖w‖", proportional, predicted=shaken(w, level * size(w)))


def margin_bound(draw: Draw) -> Found:
    net = layer(draw)
    labels = net.target[:, :1].sign()

    def margin(head: Tensor) -> float:
        return float((labels * net.using(head=head).outputs()[:, :1]).mean())

    one, other = margin(net.head), margin(2 * net.head)
    yield equal("margin with the longer head over that before", other / one, predicted=2.0)
    answers = [int((net.using(head=k * net.head).outputs()[:, 0] > 0).sum()) for k in (1.0, 2.0)]
    yield equal("answers of one sign", answers[1], predicted=answers[0], scale=1.0)


def raw_margin(draw: Draw) -> Found:
    net, alpha = layer(draw), 5.0
    sigma, mean = (net.x @ net.weight.T + net.bias).std(0, unbiased=False), (net.x @ net.weight.T + net.bias).mean(0)

    def one_sample(x: Tensor, head: Tensor) -> Tensor:
        hidden = torch.tanh(net.gamma * ((net.weight @ x + net.bias) - mean) / sigma + net.beta)
        return (head @ hidden)[:1]

    x = net.x[0]
    margins = [float(one_sample(x, k * net.head).abs()) for k in (1.0, alpha)]
    slopes = [size(jacobian(lambda x, k=k: one_sample(x, k * net.head), x)) for k in (1.0, alpha)]  # type: ignore[misc]
    yield moves("raw margin", margins[0], margins[1])
    yield equal("margin over slope", margins[1] / slopes[1], predicted=margins[0] / slopes[0])


def coupling(draw: Draw) -> Found:
    m = draw.integer(4, 12)
    z = draw.normal(m)
    slope, hat, sigma = jacobian(standardize, z), standardize(z), float(z.std(unbiased=False))
    n, k = 0, draw.integer(1, m)
    yield equal("how sample k moves sample n", slope[n, k], predicted=-(1 + float(hat[n] * hat[k])) / (m * sigma))
    own = (1 - 1 / m - float(hat[n]) ** 2 / m) / sigma
    yield equal("how a sample moves itself", slope[n, n], predicted=own)


def scale_cue(draw: Draw) -> Found:
    m = draw.integer(10, 30)
    label = torch.cat([torch.ones(m, dtype=torch.float64), -torch.ones(m, dtype=torch.float64)])
    feature = 500 + 400 * label + 50 * draw.normal(2 * m)

    def correlation(f: Tensor) -> float:
        return float(torch.corrcoef(torch.stack([label, f]))[0, 1])

    behind = nn.BatchNorm1d(1, dtype=torch.float64)(feature[:, None]).detach()[:, 0]
    yield refutes("correlation of label and feature behind batch norm", correlation(behind), published=0.0)
    yield equal(
        "correlation of label and feature behind batch norm", correlation(behind), predicted=correlation(feature)
    )


def shifted_inputs(draw: Draw) -> Found:
    n, m = draw.integer(2, 5), 30
    x, scale, offset = draw.normal(m, n), float(draw.uniform(1, low=1.5, high=3.0)), draw.normal(n)
    probe = draw.normal(m, n)
    module = nn.BatchNorm1d(n, eps=1e-12, momentum=1.0, dtype=torch.float64)
    module.load_state_dict({"weight": draw.uniform(n, low=0.5, high=2.0)}, strict=False)
    moved = scale * x + offset

    def deployed(seen: Tensor, x: Tensor) -> Tensor:
        module.train()(seen)
        return module.eval()(x).detach()

    before, after = deployed(x, x), deployed(x, moved)
    yield refutes("relative change of the outputs", size(after - before) / size(before), published=0.0)
    gain = module.weight.detach() / x.var(0, unbiased=True).sqrt()
    yield equal("change of the outputs", project(after - before, probe), predicted=project(gain * (moved - x), probe))
    yield equal(
        "outputs with fresh statistics", project(deployed(moved, moved), probe), predicted=project(before, probe)
    )


def batch_noise(draw: Draw) -> Found:
    total = draw.integer(8, 11)
    z = draw.normal(total)

    def spread(m: int) -> float:
        means = torch.stack([z[list(rows)].mean() for rows in itertools.combinations(range(total), m)])
        return float(means.var(unbiased=False))

    sigma2, m = float(z.var(unbiased=False)), draw.integer(2, 5)
    yield equal("variance of the batch mean", spread(m), predicted=sigma2 / m * (total - m) / (total - 1))
    sizes = tuple(range(1, total))
    yield Curve(
        "Noise of the batch mean, over all batches",
        "batch size",
        "standard deviation over σ",
        tuple(float(m) for m in sizes),
        (("measured", tuple(math.sqrt(spread(m) / sigma2) for m in sizes)), ("1/√m", tuple(m**-0.5 for m in sizes))),
    )


def modes(draw: Draw) -> Found:
    m, eps = draw.integer(2, 9), float(draw.uniform(1, low=1e-6, high=0.2))
    z = draw.normal(m, 1)
    module = nn.BatchNorm1d(1, eps=eps, momentum=1.0, dtype=torch.float64)
    train = module(z).detach()
    ratio = size(module.eval()(z)) / size(train)
    sigma2 = float(z.var(unbiased=False))
    yield equal(
        "eval output over train output", ratio, predicted=math.sqrt((sigma2 + eps) / (sigma2 * m / (m - 1) + eps))
    )


def companions(draw: Draw) -> Found:
    own = draw.normal(1, 3)
    others = draw.uniform(5, 3, low=1.0, high=3.0)
    low, high = (torch.cat([own, own + side * others]) for side in (-1, 1))
    yield shown("above its batch: positive", bool((standardize(low)[0] > 0).all()))
    yield shown("below its batch: negative", bool((standardize(high)[0] < 0).all()))
    alone = standardize(own, dim=1)
    yield equal("layer norm", project(standardize(high, dim=1)[:1], alone), predicted=project(alone, alone))

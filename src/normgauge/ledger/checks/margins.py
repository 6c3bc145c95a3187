"""Checks: margins."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.ledger import losses
from normgauge.ledger.claim import Found, below, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import angle, flatten, flow, gradient, layer, project, size, split, standardize, unit


def linear_ends(draw: Draw) -> Found:
    m, n = draw.integer(4, 6), draw.integer(8, 11)
    x, y = draw.orthogonal(n)[:m] * draw.uniform(m, 1, low=0.7), draw.normal(m)
    w, probe = draw.normal(n), draw.normal(n)
    plain, normed, centred = torch.zeros(n, dtype=torch.float64), w, x - x.mean(0)
    for _ in range(150):
        plain = plain - 0.8 * x.T @ (x @ plain - y)
        normed = normed - 0.3 * gradient(losses.Unit(x, y).loss, normed)
    least, outside = torch.linalg.pinv(x) @ y, probe - torch.linalg.pinv(centred) @ centred @ probe
    yield equal("end of descent from 0", project(plain, probe), predicted=project(least, probe), rel=1e-7)
    yield equal("part outside the samples, batch norm", normed @ outside, predicted=w @ outside, rel=1e-8)


def separable(draw: Draw) -> Found:
    a, b = draw.uniform(2, low=0.6, high=1.4)
    points = torch.stack([torch.stack([a, b]), torch.stack([b, -a])]) + torch.tensor([[0.3, 0.0], [0.0, 0.2]]).double()
    widest = torch.linalg.solve(points, torch.ones(2, dtype=torch.float64))  # both samples at margin 1

    def loss(w: Tensor) -> Tensor:
        return torch.logsumexp(-(points @ w), 0)  # the log only changes the speed of the flow

    early = flow(loss, draw.normal(2), 20.0, 30)
    late = flow(loss, early, 280.0, 160)
    reached = float((points @ late).min()) / size(late)
    yield equal("margin of the direction reached", reached, predicted=1 / size(widest), rel=1e-2)
    yield below("angle to the widest direction, late", angle(late, widest), predicted=0.3 * angle(early, widest) + 1e-3)
    yield shown("its length doubles meanwhile", size(late) > 2 * size(early))


def indifferent(draw: Draw) -> Found:
    net = layer(draw)
    factor, probe = draw.uniform(len(net.bias), low=1.0, high=20.0), draw.normal(*net.target.shape)
    moved = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
    yield equal("outputs with other lengths", project(moved.outputs(), probe), predicted=project(net.outputs(), probe))
    end = moved.vary(flow(lambda flat: moved.vary(flat).loss(), flatten(moved.weight, moved.bias), 0.5, 30))
    for i, name in enumerate(("first", "second")):
        after, before = size(end.weight[i]), size(moved.weight[i])
        yield equal(f"length of the {name} unit after flow", after, predicted=before, rel=1e-5)


def gain_balance(draw: Draw) -> Found:
    h, m = draw.integer(2, 5), 20
    hat, target, i = standardize(draw.normal(m, h)), draw.normal(m, 2), 0
    start = [draw.uniform(h, low=0.5, high=1.5), 0.3 * draw.normal(h), draw.normal(2, h)]

    def loss(flat: Tensor) -> Tensor:
        gamma, beta, head = split(flat, start)
        return 0.5 * (torch.relu(gamma * hat + beta) @ head.T - target).square().sum(1).mean()

    def balance(parts: list[Tensor]) -> Tensor:
        return parts[0][i] ** 2 + parts[1][i] ** 2 - parts[2][:, i].square().sum()

    end = split(flow(loss, flatten(*start), 0.4, 80), start)
    yield equal("γ² + β² − ‖column‖² after the flow", balance(end), predicted=balance(start), rel=1e-3, scale=1.0)
    yield shown("the gain itself moved", abs(float(end[0][i] - start[0][i])) > 1e-6)


def last_layer(draw: Draw) -> Found:
    net, alpha, z = layer(draw), float(draw.uniform(1, low=3.0, high=30.0)), draw.normal(draw.integer(5, 15), 3)
    labels = z.argmax(1)
    slope = gradient(lambda a: F.cross_entropy(a * z, labels), torch.ones((), dtype=torch.float64))
    right = (z * (z.softmax(1) - F.one_hot(labels, 3))).sum(1).mean()
    yield equal("slope of the loss along the ray", slope, predicted=right)
    yield below("loss with a longer head", F.cross_entropy(alpha * z, labels), predicted=F.cross_entropy(z, labels))
    yield equal("loss far out", F.cross_entropy(1e6 * z, labels), predicted=0.0, scale=1.0)
    rows = [torch.randperm(len(net.x), generator=draw.generator)[:6] for _ in range(20)]
    batches = [net.using(x=net.x[r]) for r in rows]
    one, other = (torch.cat([b.using(head=k * b.head).outputs()[:, 0] for b in batches]) for k in (1.0, alpha))
    yield equal("outputs with the head times α over those before", size(other) / size(one), predicted=alpha)
    yield equal("samples that change sign over batches", int(((other > 0) ^ (one > 0)).sum()), predicted=0, scale=1.0)
    noise, before = (float(o.std() / o.abs().mean()) for o in (other, one))
    yield equal("noise over margin with the longer head", noise, predicted=before)


def decay_speed(draw: Draw) -> Found:
    neuron, w = unit(draw)
    short = float(draw.uniform(1, low=0.01, high=0.5))
    yield equal("loss of a shorter solution", neuron.solved(w).loss(short * w), predicted=0.0, scale=1.0)
    rate, decay = float(draw.uniform(1, low=0.1, high=0.2)), float(draw.uniform(1, low=0.1, high=0.2))

    def end(rate: float, decay: float) -> tuple[float, float]:
        path = losses.wander(draw, draw.normal(5), losses.Step(rate, decay), 1.0, 600)
        return angle(path[-1], path[-2]), size(path[-1])

    turn, length = end(rate, decay)
    yield refutes("length at equilibrium, against the shortest", length, published=0.0)
    yield equal("turn a step at equilibrium", turn, predicted=math.acos(1 - rate * decay), rel=1e-4)
    yield equal("turn a step with (3η, λ/3)", end(3 * rate, decay / 3)[0], predicted=turn, rel=1e-4)
    yield equal("turn a step with 4λ", end(rate, 4 * decay)[0], predicted=math.acos(1 - 4 * rate * decay), rel=1e-4)


def raw_norms(draw: Draw) -> Found:
    net, c = layer(draw), float(draw.uniform(1, low=3.0, high=10.0))
    scaled = net.using(weight=c * net.weight, bias=c * net.bias)

    def printed(weights: tuple[Tensor, Tensor]) -> float:
        (a, b), (most_a, most_b) = ([float(f(w.norm(dim=1))) ** 2 for w in weights] for f in (torch.sum, torch.max))
        return (a * most_b + b * most_a) / len(net.x)

    def folded(weight: Tensor) -> Tensor:
        return (net.gamma / (net.x @ weight.T).std(0, unbiased=False))[:, None] * weight

    def product(weight: Tensor) -> float:
        return float(torch.linalg.matrix_norm(net.head, 2) * torch.linalg.matrix_norm(weight, 2))

    yield moves("the printed expression", printed((net.weight, net.head)), printed((scaled.weight, net.head)))
    yield equal("outputs", size(scaled.outputs()), predicted=size(net.outputs()))
    yield moves("product of the norms", product(net.weight), product(scaled.weight))
    yield equal("product after folding", product(folded(scaled.weight)), predicted=product(folded(net.weight)))


def weight_noise(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, c, noise = neuron.solved(w), float(draw.uniform(1, low=4.0, high=10.0)), 0.2 * draw.normal(60, len(w))

    def shaken(w: Tensor, level: float = 1.0) -> float:
        return sum(float(neuron.loss(w + level * e)) for e in noise) / len(noise)

    yield moves("loss under noise of a fixed size", shaken(w), shaken(c * w))
    yield equal("loss under noise in proportion to ‖w‖", shaken(c * w, size(c * w)), predicted=shaken(w, size(w)))


def raw_margin(draw: Draw) -> Found:
    net, alpha = layer(draw), float(draw.uniform(1, low=2.0, high=5.0))
    z = net.x @ net.weight.T + net.bias
    sigma, mean = z.std(0, unbiased=False), z.mean(0)

    def logit(x: Tensor, k: float) -> Tensor:
        hidden = torch.tanh(net.gamma * ((net.weight @ x + net.bias) - mean) / sigma + net.beta)
        return (k * net.head @ hidden)[:1]

    margins = [float(logit(net.x[0], k).abs()) for k in (1.0, alpha)]
    slopes = [size(jacobian(lambda x, k=k: logit(x, k), net.x[0])) for k in (1.0, alpha)]  # type: ignore[misc]
    yield moves("raw margin", margins[0], margins[1])
    yield equal("raw margin with the head times α over that before", margins[1] / margins[0], predicted=alpha)
    yield equal("margin over slope", margins[1] / slopes[1], predicted=margins[0] / slopes[0])
    flips = sum(int((logit(x, 1.0) > 0) ^ (logit(x, alpha) > 0)) for x in net.x)
    yield equal("decisions that change", flips, predicted=0, scale=1.0)


def in_company(draw: Draw) -> Found:
    m = draw.integer(4, 12)
    z, k, own, others = draw.normal(m), draw.integer(1, m), draw.normal(1, 3), draw.uniform(5, 3, low=1.0, high=3.0)
    slope, hat, sigma = jacobian(standardize, z), standardize(z), float(z.std(unbiased=False))
    yield equal("how sample k moves the first", slope[0, k], predicted=-(1 + hat[0] * hat[k]) / (m * sigma))
    yield equal("how a sample moves itself", slope[0, 0], predicted=(1 - 1 / m - hat[0] ** 2 / m) / sigma)
    for side in (-1, 1):  # all others below, or all above
        batch = torch.cat([own, own + side * others])
        yield shown("sign of a sample turned by its companions", bool((standardize(batch)[0] * side < 0).all()))
        first, alone = F.layer_norm(batch, (3,))[:1], F.layer_norm(own, (3,))
        yield equal("layer norm in company", project(first, others[:1]), predicted=project(alone, others[:1]))


def scale_cue(draw: Draw) -> Found:
    m, said = draw.integer(10, 30), "correlation of label and feature behind batch norm"
    label = torch.cat([torch.ones(m), -torch.ones(m)]).double()
    feature = 500 + 400 * label + 50 * draw.normal(2 * m)
    behind = nn.BatchNorm1d(1, dtype=torch.float64)(feature[:, None]).detach()[:, 0]
    after, before = (torch.corrcoef(torch.stack([label, f]))[0, 1] for f in (behind, feature))
    yield refutes(said, after, published=0.0)
    yield equal(said, after, predicted=before)


def shifted_inputs(draw: Draw) -> Found:
    n, m = draw.integer(2, 5), 30
    x, scale, offset = draw.normal(m, n), draw.uniform(n, low=1.5, high=3.0), draw.normal(n)
    moved, probe, turn = scale * x + offset, draw.normal(m, n), draw.orthogonal(n)
    module = nn.BatchNorm1d(n, eps=1e-12, momentum=1.0, dtype=torch.float64)
    module.load_state_dict({"weight": draw.uniform(n, low=0.5, high=2.0)}, strict=False)

    def deployed(seen: Tensor, x: Tensor) -> Tensor:
        module.train()(seen)
        return module.eval()(x).detach()

    before, change = deployed(x, x), deployed(x, moved) - deployed(x, x)
    gain = module.weight.detach() / x.var(0, unbiased=True).sqrt()
    yield equal("outputs with new statistics", project(deployed(moved, moved), probe), predicted=project(before, probe))
    yield equal("change with stored ones", project(change, probe), predicted=project(gain * (moved - x), probe))
    yield shown("rotated data: other outputs", size(standardize(scale * x @ turn) - standardize(x) @ turn) > 1e-3)


def statistics(draw: Draw) -> Found:
    total, m, eps = draw.integer(8, 11), draw.integer(2, 5), float(draw.uniform(1, low=1e-6, high=0.2))
    z, module = draw.normal(total), nn.BatchNorm1d(1, eps=eps, momentum=1.0, dtype=torch.float64)
    means = torch.stack([z[list(rows)].mean() for rows in itertools.combinations(range(total), m)])
    sigma2, train = float(z.var(unbiased=False)), module(z[:, None]).detach()
    noise = sigma2 / m * (total - m) / (total - 1)
    yield equal("variance of the batch mean", means.var(unbiased=False), predicted=noise)
    yield equal("first of two outputs", standardize(z[:2])[0], predicted=1.0 if z[0] > z[1] else -1.0)
    yield equal("output of one sample alone, ε > 0", size(standardize(z[:1], 1e-5)), predicted=0.0, scale=1.0)
    shrink = math.sqrt((sigma2 + eps) / (sigma2 * total / (total - 1) + eps))
    yield equal("eval output over train output", size(module.eval()(z[:, None])) / size(train), predicted=shrink)

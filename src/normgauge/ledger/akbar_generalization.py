"""Claims of Akbar on bounds, margins and the dependence on the batch: section 7.2."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from normgauge.core.claim import Curve, Verdict
from normgauge.ledger.claim import Family, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import Found, layer, project, size, standardize, unit

claims = Family("A", "Akbar")


@claims.add(
    "pacbayes",
    "section 7.2, sketched bound",
    Verdict.UNSUPPORTED,
    "With batch norm the gap is at most of order (1/N) Σ_l ‖W_l‖²_{2,1} Π_{j≠l} ‖W_j‖²_{2,∞}",
    "No such theorem is known to us. It has no margin, and it moves with a choice of scale; see Bartlett et al. 2017.",
)
def sketched_bound(draw: Draw) -> Found:
    """The printed expression for two layers, before and after scaling the one behind batch norm."""
    net, c = layer(draw), float(draw.uniform(1, low=3.0, high=10.0))

    def printed(first: Tensor, second: Tensor) -> float:
        one = [float(w.norm(dim=1).sum()) ** 2 for w in (first, second)]
        most = [float(w.norm(dim=1).max()) ** 2 for w in (first, second)]
        return (one[0] * most[1] + one[1] * most[0]) / len(net.x)

    scaled = net.using(weight=c * net.weight, bias=c * net.bias)
    yield moves("the printed expression", printed(net.weight, net.head), printed(scaled.weight, net.head))
    yield equal("outputs", size(scaled.outputs()), predicted=size(net.outputs()))


@claims.add(
    "7.2.product",
    "section 7.2, Rademacher complexity",
    Verdict.GAUGE,
    "Batch norm reduces capacity as measured by the product of the layers' spectral norms",
    "That product is a choice of scale in front of batch norm; only what is left after folding counts.",
)
def norm_product(draw: Draw) -> Found:
    """The product of norms before and after scaling, and the folded product."""
    net, c = layer(draw), float(draw.uniform(1, low=3.0, high=10.0))

    def products(weight: Tensor) -> tuple[float, float]:
        sigma = (net.x @ weight.T).std(0, unbiased=False)
        head = float(torch.linalg.matrix_norm(net.head, 2))
        folded = torch.linalg.matrix_norm((net.gamma / sigma)[:, None] * weight, 2)
        return head * float(torch.linalg.matrix_norm(weight, 2)), head * float(folded)

    before, after = products(net.weight), products(c * net.weight)
    yield moves("product of the norms", before[0], after[0])
    yield equal("product after folding", after[1], predicted=before[1])


@claims.add(
    "7.2.symflat",
    "section 7.2, flat minima",
    Verdict.HOLDS,
    "Flatness along an invariance says nothing about generalization: the function does not change there",
    "Exact at ε = 0.",
)
def symmetric_flatness(draw: Draw) -> Found:
    """Outputs far along the flat direction."""
    net = layer(draw)
    factor, probe = draw.uniform(len(net.bias), low=0.1, high=10.0), draw.normal(*net.target.shape)
    moved = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
    yield equal("outputs", project(moved.outputs(), probe), predicted=project(net.outputs(), probe))


@claims.add(
    "7.2.noise",
    "section 7.2, flat minima",
    Verdict.GAUGE,
    "A solution that bears more Gaussian noise on its weights is flatter and generalizes better",
    "How much noise it bears depends on the length of the weights. Noise in proportion to ‖w‖ does not have that "
    "defect.",
)
def weight_noise(draw: Draw) -> Found:
    """Mean loss under the same noise at w and at c·w, fixed and proportional."""
    neuron, w = unit(draw)
    neuron, c, level = neuron.solved(w), float(draw.uniform(1, low=4.0, high=10.0)), 0.2
    noise = draw.normal(60, len(w))

    def shaken(w: Tensor, level: float) -> float:
        return sum(float(neuron.loss(w + level * e)) for e in noise) / len(noise)

    yield moves("loss under noise of a fixed size", shaken(w, level), shaken(c * w, level))
    proportional = shaken(c * w, level * size(c * w))
    yield equal("loss under noise in proportion to ‖w‖", proportional, predicted=shaken(w, level * size(w)))


@claims.add(
    "margin",
    "sections 6.1 and 7.2",
    Verdict.UNSUPPORTED,
    "Batch noise makes batch norm double the margin m, and the bound √(complexity/N)/m then halves",
    "No theorem says that it does. And m is free: a head twice as long doubles it for the same answers.",
)
def margin_bound(draw: Draw) -> Found:
    """Mean margin, its bound, and the answers, with a head and one twice as long."""
    net = layer(draw)
    labels = net.target[:, :1].sign()

    def margin(head: Tensor) -> float:
        return float((labels * net.using(head=head).outputs()[:, :1]).mean())

    one, other = margin(net.head), margin(2 * net.head)
    yield equal("margin with the longer head over that before", other / one, predicted=2.0)
    answers = [int((net.using(head=k * net.head).outputs()[:, 0] > 0).sum()) for k in (1.0, 2.0)]
    yield equal("answers of one sign", answers[1], predicted=answers[0], scale=1.0)


@claims.add(
    "margin.raw",
    "section 7.2 and experiment 3",
    Verdict.GAUGE,
    "The raw margin y·f(x) tells how robust a network is",
    "It scales with the head while the decisions stay. Divided by a Lipschitz constant it does not.",
)
def raw_margin(draw: Draw) -> Found:
    """Raw margin and margin over the slope of the network, for a head and one five times as long."""
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


@claims.add(
    "7.2.stability",
    "section 7.2, algorithmic stability",
    Verdict.UNSUPPORTED,
    "Batch noise may make training less stable to the change of one sample, or more, on balance",
    "Nothing is bounded. What can be said: one sample moves another's value by −(1 + ẑ_nẑ_k)/(mσ) to first order.",
)
def coupling(draw: Draw) -> Found:
    """Derivative of one sample's normalized value in another's input."""
    m = draw.integer(4, 12)
    z = draw.normal(m)
    slope, hat, sigma = jacobian(standardize, z), standardize(z), float(z.std(unbiased=False))
    n, k = 0, draw.integer(1, m)
    yield equal("how sample k moves sample n", slope[n, k], predicted=-(1 + float(hat[n] * hat[k])) / (m * sigma))
    own = (1 - 1 / m - float(hat[n]) ** 2 / m) / sigma
    yield equal("how a sample moves itself", slope[n, n], predicted=own)


claims.read(
    "7.2.optimizer",
    "section 7.2, empirical generalization",
    Verdict.UNSUPPORTED,
    "Batch norm generalizes better because it optimizes better, not because it regularizes (after Bjorck et al.)",
    "An explanation of other people's trainings; it names no quantity that a small instance could decide.",
)


@claims.add(
    "7.2.cue",
    "section 7.2, memorization",
    Verdict.WRONG,
    "Batch norm hides a cue that lies in the size of a feature: large for one class, small for the other",
    "It is an affine map of each feature over the batch: correlation with the label and separation stay exactly "
    "as they were.",
)
def scale_cue(draw: Draw) -> Found:
    """Correlation of label and feature before and behind batch norm."""
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


@claims.add(
    "7.2.inputs",
    "section 7.2, distribution shift",
    Verdict.WRONG,
    "Batch norm makes a network robust to test inputs of another scale or offset: it normalizes them out",
    "Not in eval mode: stored statistics pass the shift on, times γ/σ. With statistics of the new data the "
    "outputs return.",
)
def shifted_inputs(draw: Draw) -> Found:
    """Eval outputs of torch's layer on shifted data, with the old and with fresh statistics."""
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


@claims.add(
    "7.2.batch",
    "sections 7.2 and 9.4",
    Verdict.HOLDS,
    "Small batches make the statistics of batch norm noisy",
    "The mean of a batch of m out of N samples has variance (σ²/m)(N−m)/(N−1).",
)
def batch_noise(draw: Draw) -> Found:
    """Variance of the batch mean over all batches there are."""
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


@claims.add(
    "7.2.modes",
    "section 7.2",
    Verdict.HOLDS,
    "Batch norm computes something slightly different in training and at test",
    "Even on the very same batch: torch stores the unbiased variance, so that eval outputs are smaller, by "
    "√((m−1)/m) at ε = 0.",
)
def modes(draw: Draw) -> Found:
    """Eval over train output on the batch the statistics come from."""
    m, eps = draw.integer(2, 9), float(draw.uniform(1, low=1e-6, high=0.2))
    z = draw.normal(m, 1)
    module = nn.BatchNorm1d(1, eps=eps, momentum=1.0, dtype=torch.float64)
    train = module(z).detach()
    ratio = size(module.eval()(z)) / size(train)
    sigma2 = float(z.var(unbiased=False))
    yield equal(
        "eval output over train output", ratio, predicted=math.sqrt((sigma2 + eps) / (sigma2 * m / (m - 1) + eps))
    )


@claims.add(
    "7.2.leak",
    "sections 7.2 and 9.4",
    Verdict.HOLDS,
    "In train mode the answer for a sample depends on the others in its batch",
    "Its sign can be turned by its companions alone; not so in eval mode or under layer norm.",
)
def companions(draw: Draw) -> Found:
    """One sample among others that are all smaller, or all larger."""
    own = draw.normal(1, 3)
    others = draw.uniform(5, 3, low=1.0, high=3.0)
    low, high = (torch.cat([own, own + side * others]) for side in (-1, 1))
    yield shown("above its batch: positive", bool((standardize(low)[0] > 0).all()))
    yield shown("below its batch: negative", bool((standardize(high)[0] < 0).all()))
    alone = standardize(own, dim=1)
    yield equal("layer norm", project(standardize(high, dim=1)[:1], alone), predicted=project(alone, alone))

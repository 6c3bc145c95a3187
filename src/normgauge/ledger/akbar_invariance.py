"""Claims of Akbar on what each normalizer leaves invariant: section 4, propositions 4.1 to 4.3 and table 1."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve, Verdict
from normgauge.ledger.claim import Family, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    flatten,
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

claims = Family("A", "Akbar")


@claims.add(
    "P4.1.first",
    "proposition 4.1, first form (and section 2.1)",
    Verdict.WRONG,
    "Scaling weights and bias in front of batch norm by c and its gain by 1/c leaves the network as it was",
    "The gain must stay: with γ/c the normalized part of the output is divided by c. The paper corrects itself midway.",
)
def first_form(draw: Draw) -> Found:
    """Output of the batch-norm layer under the printed change, and under the right one."""
    net, c = layer(draw), float(draw.uniform(1, low=1.5, high=4.0))
    z = net.x @ net.weight.T + net.bias
    before, printed = net.gamma * standardize(z), net.gamma / c * standardize(c * z)
    yield refutes("size of the output with γ/c", size(printed), published=size(before))
    yield equal("size of the output with γ/c", size(printed), predicted=size(before) / c)
    scaled = net.using(weight=c * net.weight, bias=c * net.bias)
    yield equal("loss with γ kept", scaled.loss(), predicted=float(net.loss()))


@claims.add(
    "P4.1",
    "proposition 4.1, corrected",
    Verdict.HOLDS,
    "Scaling weights and bias in front of batch norm by c > 0 changes no output",
    "In train mode at ε = 0, for each unit by itself; A.P4.1.eps and A.P4.1.eval say what happens otherwise.",
    backs=["normgauge.symmetry.find.symmetries"],
)
def batch_scale(draw: Draw) -> Found:
    """Outputs with a factor of its own for each unit."""
    net = layer(draw)
    factor = draw.uniform(len(net.bias), low=-7.0, high=7.0).exp()
    scaled = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
    probe = draw.normal(*net.target.shape)
    yield equal("outputs", project(scaled.outputs(), probe), predicted=project(net.outputs(), probe))


@claims.add(
    "P4.1.eps",
    "section 3.1 and proposition 4.1",
    Verdict.WRONG,
    "The constant ε only guards against a division by zero and does not disturb the scale invariance",
    "Scaling by c acts like ε/c²: the output is multiplied by √((σ²+ε)/(σ²+ε/c²)), which goes to 0 with c.",
)
def eps_law(draw: Draw) -> Found:
    """Spread of F.batch_norm's output at c·z over that at z."""
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


@claims.add(
    "P4.1.eval",
    "proposition 4.1",
    Verdict.WRONG,
    "Scaling weights in front of batch norm changes no output for any input, whatever the mode",
    "In eval mode the stored statistics must be scaled too: mean by c, variance to c²(v+ε)−ε.",
)
def eval_mode(draw: Draw) -> Found:
    """torch's layer in eval mode at z, at c·z, and at c·z with scaled buffers."""
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


@claims.add(
    "C4.1.1",
    "corollary 4.1.1",
    Verdict.HOLDS,
    "The gradient is orthogonal to the weights and bias in front of batch norm, since scaling them changes nothing",
    "0 per unit at ε = 0; with ε it is ε/(σ²+ε)·γ·∂L/∂γ. The bias adds nothing: its gradient is 0.",
    backs=["normgauge.dynamics.identity.radial_part"],
)
def radial_gradient(draw: Draw) -> Found:
    """w·∂L/∂w of each unit, at ε = 0 and with a large ε."""
    net = layer(draw)
    (weight,) = net.gradients("weight")
    yield equal("w·∂L/∂w, ε = 0", (net.weight * weight).sum(), predicted=0.0, scale=size(weight) * size(net.weight))
    eps, i = float(draw.uniform(1, low=0.05, high=1.0)), draw.integer(0, len(net.bias))
    net = net.using(eps=eps)
    weight, gamma = net.gradients("weight", "gamma")
    sigma2 = float((net.x @ net.weight[i]).var(unbiased=False))
    radial = float(net.weight[i] @ weight[i])
    yield equal("w·∂L/∂w of one unit, with ε", radial, predicted=eps / (sigma2 + eps) * float(net.gamma[i] * gamma[i]))


@claims.add(
    "group",
    "section 4.1",
    Verdict.WRONG,
    "A network with k batch-norm layers has the symmetry group (R⁺)^k: one scale for each layer",
    "One scale and one bias shift for each unit: 2·(number of units). Table 1 of the paper has it per unit.",
)
def group_size(draw: Draw) -> Found:
    """Directions of the parameters of a two-layer batch-norm tanh net that leave all outputs alone."""
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


@claims.add(
    "4.sphere",
    "section 4.1",
    Verdict.HOLDS,
    "Weights in front of batch norm are points of a sphere: all on a ray are alike, opposite rays are not",
    "At ε = 0. The opposite ray gives the opposite output.",
)
def sphere(draw: Draw) -> Found:
    """Loss on the ray, output on the opposite one."""
    neuron, w = unit(draw)
    c, probe = float(draw.uniform(1, low=0.01, high=100.0)), draw.normal(len(neuron.x))
    yield equal("loss on the ray", neuron.loss(c * w), predicted=float(neuron.loss(w)))
    yield equal("output at −w", project(neuron.outputs(-w), probe), predicted=-project(neuron.outputs(w), probe))


@claims.add(
    "4.bias",
    "section 4.1",
    Verdict.WRONG,
    "Weights and bias of a batch-norm unit, n + 1 numbers, together make a sphere of n dimensions",
    "The bias does not count at all: n − 1 dimensions are left, the sphere of the n weights alone.",
)
def bias_sphere(draw: Draw) -> Found:
    """Rank of the outputs' Jacobian in (w, b)."""
    neuron, w = unit(draw)
    start = flatten(w, draw.normal(1))
    idle = nullity(lambda p: standardize(neuron.x @ p[:-1] + p[-1]), start)
    yield refutes("dimensions that matter", len(start) - idle, published=len(w))
    yield equal("dimensions that matter", len(start) - idle, predicted=len(w) - 1)


@claims.add(
    "4.scalar",
    "section 4.1, example",
    Verdict.HOLDS,
    "With one input, a batch-norm unit does not depend on its weight at all",
    "But for its sign.",
)
def scalar_weight(draw: Draw) -> Found:
    """Loss of a one-input unit at two weights."""
    neuron, _ = unit(draw, n=1)
    one, other = draw.uniform(1, low=0.1, high=5.0), draw.uniform(1, low=0.1, high=5.0)
    yield equal("loss at another weight", neuron.loss(other), predicted=float(neuron.loss(one)))
    yield shown("loss at the opposite weight: another one", abs(float(neuron.loss(-one) - neuron.loss(one))) > 1e-9)


@claims.add(
    "4.example",
    "section 4.1, example",
    Verdict.HOLDS,
    "Without normalization, one sample and squared loss have the Hessian xxᵀ: one eigenvalue ‖x‖², the rest 0",
    "Exact.",
)
def linear_example(draw: Draw) -> Found:
    """Eigenvalues of the dense Hessian."""
    n = draw.integer(2, 6)
    x, target = draw.normal(n), float(draw.normal(1))
    values = torch.linalg.eigvalsh(hessian(lambda w: 0.5 * (w @ x - target) ** 2, draw.normal(n)))
    yield equal("largest eigenvalue", values[-1], predicted=float(x @ x))
    yield equal("all the others", size(values[:-1]), predicted=0.0, scale=float(values[-1]))


@claims.add(
    "P4.2",
    "proposition 4.2",
    Verdict.HOLDS,
    "Scaling all weights and biases of a layer in front of layer norm by c > 0 changes no output",
    "At ε = 0, in either mode.",
)
def layer_scale(draw: Draw) -> Found:
    """Outputs and the gradient along (W, b)."""
    net, c = layer(draw, dim=1), float(draw.uniform(1, low=0.01, high=100.0))
    scaled, probe = net.using(weight=c * net.weight, bias=c * net.bias), draw.normal(*net.target.shape)
    yield equal("outputs", project(scaled.outputs(), probe), predicted=project(net.outputs(), probe))
    weight, bias = net.gradients("weight", "bias")
    along = float((net.weight * weight).sum() + net.bias @ bias)
    yield equal("gradient along (W, b)", along, predicted=0.0, scale=size(weight) * size(net.weight))


@claims.add(
    "P4.2.part",
    "section 4.2",
    Verdict.HOLDS,
    "Layer norm is not invariant to scaling some of its units or to different shifts of its biases",
    "Only a common factor and a common shift are free.",
)
def layer_parts(draw: Draw) -> Found:
    """Loss after scaling one row, after a common and after an uneven bias shift."""
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


@claims.add(
    "P4.2.shift",
    "section 4.2",
    Verdict.WRONG,
    "Apart from scale, layer norm has one more free direction: a common shift of the biases",
    "W → W + 1uᵀ is free for every u as well: n_in + 1 shifts. Each column of ∂L/∂W sums to 0.",
    backs=["normgauge.symmetry.find.symmetries"],
)
def layer_shifts(draw: Draw) -> Found:
    """Idle directions of (W, b), a shifted W, and the column sums of the gradient."""
    net = layer(draw, dim=1)
    shifted = net.using(weight=net.weight + 3 * draw.normal(net.x.shape[1]))
    (weight,) = net.gradients("weight")
    free = idle(net)
    yield refutes("idle directions", free, published=2.0)
    yield equal("idle directions", free, predicted=1.0 + (net.x.shape[1] + 1))
    yield equal("loss at W + 1uᵀ", shifted.loss(), predicted=float(net.loss()))
    yield equal("column sums of the gradient", size(weight.sum(0)), predicted=0.0, scale=size(weight))

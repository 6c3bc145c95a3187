"""Claims of Akbar on weight norm, and on all symmetries together: sections 3 and 4.3, table 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    Layer,
    flatten,
    gradient,
    idle,
    layer,
    nullity,
    project,
    size,
    unit,
)

claims = Family("A", "Akbar")


def _weight_norm(draw: Draw) -> tuple[Layer, Tensor, Tensor]:
    """A unit whose first row is g·v/‖v‖ as a plain loss: the layer, v and g; its loss takes (v, g)."""
    net = layer(draw)
    return net, draw.normal(net.x.shape[1]), draw.uniform(1, low=0.5, high=2.0)


def _loss(net: Layer, flat: Tensor) -> Tensor:
    """Half the mean squared error of x·(g v/‖v‖); the last entry of ``flat`` is g."""
    v, g = flat[:-1], flat[-1]
    return 0.5 * (net.x @ (g * v / v.norm()) - net.target[:, 0]).square().mean()


@claims.add(
    "P4.3",
    "proposition 4.3",
    Verdict.WRONG,
    "Weight norm is invariant under v → αv together with g → g/α",
    "v → αv with g fixed. The printed change divides the weight by α; its algebra drops ‖αv‖ = α‖v‖.",
    backs=["normgauge.symmetry.normed.length_scales"],
)
def weight_norm_symmetry(draw: Draw) -> Found:
    """Loss under both changes; directions of (v, g) that leave the weight alone."""
    net, v, g = _weight_norm(draw)
    alpha = float(draw.uniform(1, low=1.5, high=4.0))
    before = float(_loss(net, flatten(v, g)))
    yield refutes("loss at (αv, g/α)", _loss(net, flatten(alpha * v, g / alpha)), published=before, by=1e-6)
    yield equal("loss at (αv, g)", _loss(net, flatten(alpha * v, g)), predicted=before)


@claims.add(
    "P4.3.identity",
    "section 4.3",
    Verdict.WRONG,
    "The gradients of weight norm satisfy v·∂L/∂v = g·∂L/∂g",
    "v·∂L/∂v = 0, while g·∂L/∂g = w·∂L/∂w is anything.",
)
def weight_norm_identity(draw: Draw) -> Found:
    """Both sides by autograd."""
    net, v, g = _weight_norm(draw)
    grad = gradient(lambda flat: _loss(net, flat), flatten(v, g))
    radial = float(v @ grad[:-1])
    yield refutes("v·∂L/∂v", radial, published=float(g * grad[-1]))
    yield equal("v·∂L/∂v", radial, predicted=0.0, scale=size(v) * size(grad))


@claims.add(
    "P4.3.dg",
    "section 4.3",
    Verdict.WRONG,
    "The gradient of weight norm in g is (1/‖v‖)(∂L/∂w·v/‖v‖)",
    "∂L/∂w·v/‖v‖, without the extra 1/‖v‖.",
)
def weight_norm_length(draw: Draw) -> Found:
    """Autograd against both forms."""
    net, v, g = _weight_norm(draw)
    v = v / size(v) * float(draw.uniform(1, low=1.5, high=3.0))
    truth = float(gradient(lambda flat: _loss(net, flat), flatten(v, g))[-1])
    back = gradient(lambda w: 0.5 * (net.x @ w - net.target[:, 0]).square().mean(), g * v / v.norm())
    yield refutes("∂L/∂g", truth, published=float(back @ v) / size(v) / size(v))
    yield equal("∂L/∂g", truth, predicted=float(back @ v) / size(v))


@claims.add(
    "P4.3.dv",
    "section 4.3",
    Verdict.HOLDS,
    "The gradient of weight norm in v is g/‖v‖ times the part of ∂L/∂w orthogonal to v",
    "Exact.",
)
def weight_norm_direction(draw: Draw) -> Found:
    """Autograd against the projected gradient."""
    net, v, g = _weight_norm(draw)
    truth, probe = gradient(lambda flat: _loss(net, flat), flatten(v, g))[:-1], draw.normal(len(v))
    back = gradient(lambda w: 0.5 * (net.x @ w - net.target[:, 0]).square().mean(), g * v / v.norm())
    right = float(g) / size(v) * (back - v * (v @ back) / size(v) ** 2)
    yield equal("∂L/∂v along a random direction", project(truth, probe), predicted=project(right, probe))


@claims.add(
    "4.3.quotient",
    "section 4.3",
    Verdict.HOLDS,
    "Modulo its redundancy, weight norm is a direction and a length: n + 1 numbers, n of which matter",
    "One idle direction, v's length; (−v, −g) is the same weight too.",
)
def weight_norm_quotient(draw: Draw) -> Found:
    """Rank of the weight in (v, g), and the weight at (−v, −g)."""
    n = draw.integer(2, 7)
    v, g, probe = draw.normal(n), draw.normal(1), draw.normal(n)

    def weight(flat: Tensor) -> Tensor:
        return flat[-1] * flat[:-1] / flat[:-1].norm()

    start = flatten(v, g)
    yield equal("numbers that matter", n + 1 - nullity(weight, start), predicted=n)
    yield equal("weight at (−v, −g)", project(weight(-start), probe), predicted=project(weight(start), probe))


@claims.add(
    "4.3.kind",
    "section 4.3",
    Verdict.HOLDS,
    "The redundancy of weight norm and the invariance of batch norm are both flat directions of the loss",
    "The same to an optimizer: scaling w under batch norm, scaling v under weight norm; the outputs do not move.",
)
def same_kind(draw: Draw) -> Found:
    """First-order change of the outputs of both along their direction."""
    neuron, w = unit(draw)
    n, g = len(w), float(draw.uniform(1, low=0.5, high=2.0))
    yield equal("idle directions of w under batch norm", nullity(neuron.outputs, w), predicted=1)
    yield equal(
        "idle directions of v under weight norm", nullity(lambda v: neuron.x @ (g * v / v.norm()), w), predicted=1
    )
    yield equal("idle directions of a plain w", nullity(lambda w: neuron.x @ w, draw.normal(n)), predicted=0, scale=1.0)


@claims.add(
    "Table1",
    "table 1",
    Verdict.WRONG,
    "Free directions: 2 for a batch-norm unit, 2 for a layer-norm layer, 1 for a weight-norm vector as (αv, g/α)",
    "2 for a batch-norm unit; n_in + 2 for layer norm; 1 for weight norm, v alone.",
)
def table(draw: Draw) -> Found:
    """Idle directions of each, counted by rank."""
    batch, per_sample = layer(draw), layer(draw, dim=1)
    yield equal("batch norm, each unit", idle(batch) / len(batch.bias), predicted=2.0, published=2.0)
    yield refutes("layer norm, the layer", idle(per_sample), published=2.0)
    yield equal("layer norm, the layer", idle(per_sample), predicted=per_sample.x.shape[1] + 2)
    net, v, g = _weight_norm(draw)
    free = nullity(lambda flat: net.x @ (flat[-1] * flat[:-1] / flat[:-1].norm()), flatten(v, g))
    yield equal("weight norm, each vector", free, predicted=1.0, published=1.0)


@claims.add(
    "4.wn",
    "section 4, curvature",
    Verdict.WRONG,
    "Under weight norm the updates of the direction v are not affected by the size of g",
    "∂L/∂v = (g/‖v‖)(I − v̂v̂ᵀ)∂L/∂w is proportional to g for the same ∂L/∂w.",
)
def gain_matters(draw: Draw) -> Found:
    """The gradient in v of a loss linear in w, at g and at c·g."""
    n, c, g = draw.integer(3, 7), float(draw.uniform(1, low=1.5, high=5.0)), float(draw.uniform(1, low=0.5, high=2.0))
    v, back = draw.normal(n), draw.normal(n)

    def speed(g: float) -> float:
        return size(gradient(lambda v: back @ (g * v / v.norm()), v))

    yield refutes("size of ∂L/∂v at c·g over that at g", speed(c * g) / speed(g), published=1.0)
    orthogonal = back - v * (v @ back) / (v @ v)
    yield equal("size of ∂L/∂v at c·g", speed(c * g), predicted=c * g / size(v) * size(orthogonal))


@claims.add(
    "D3.1.WN",
    "section 3.1",
    Verdict.HOLDS,
    "Weight norm writes a weight vector as g·v/‖v‖: g alone sets its length, v alone its direction",
    "As defined; the length is |g|.",
)
def weight_norm_definition(draw: Draw) -> Found:
    """torch's parametrization is the formula."""
    n = draw.integer(2, 7)
    v, g, probe = draw.normal(1, n), draw.normal(1, 1), draw.normal(1, n)
    module = weight_norm(nn.Linear(n, 1, bias=False, dtype=torch.float64))
    module.load_state_dict({"parametrizations.weight.original0": g, "parametrizations.weight.original1": v})
    weight = module.weight.detach()
    yield equal("weight", project(weight, probe), predicted=float(g) * project(v, probe) / size(v))
    yield equal("length of the weight", size(weight), predicted=abs(float(g)))


@claims.add(
    "D3.1.WNinv",
    "sections 2.2 and 3.1",
    Verdict.WRONG,
    "Scaling v by α and g by 1/α leaves the weight of weight norm as it was",
    "It divides the weight by α. Scaling v alone leaves it as it was.",
)
def weight_norm_scale(draw: Draw) -> Found:
    """‖v‖ cancels by itself, so that g/α is not compensated by anything."""
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


@claims.add(
    "WNpartials",
    "section 3.2",
    Verdict.WRONG,
    "The gradient of weight norm in v_k is ∂L/∂w_k times ∂w_k/∂v_k",
    "Every w_j depends on v_k: ∂L/∂v = (g/‖v‖)(I − v̂v̂ᵀ) ∂L/∂w. The printed chain rule keeps the diagonal only.",
)
def weight_norm_partials(draw: Draw) -> Found:
    """Autograd against the diagonal and the full chain rule."""
    v, back, truth, g = _weight_norm_gradient(draw)
    length, probe = size(v), draw.normal(len(v))
    diagonal = back * (g / length - g * v.square() / length**3)
    full = g / length * (back - v * (v @ back) / length**2)
    yield refutes("gradient in v: relative error of the diagonal", size(truth - diagonal) / size(truth), published=0.0)
    yield equal("gradient in v along a random direction", project(truth, probe), predicted=project(full, probe))


@claims.add(
    "WNparallel",
    "section 3.2",
    Verdict.WRONG,
    "The gradient of weight norm in v is parallel to v",
    "It is orthogonal to v.",
)
def weight_norm_parallel(draw: Draw) -> Found:
    """Cosine of v and its gradient."""
    v, _, truth, _ = _weight_norm_gradient(draw)
    cosine = float(v @ truth) / size(v) / size(truth)
    yield refutes("|cosine| of v and its gradient", abs(cosine), published=1.0)
    yield equal("cosine of v and its gradient", cosine, predicted=0.0, scale=1.0)

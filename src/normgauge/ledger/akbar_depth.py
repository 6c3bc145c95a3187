"""Claims of Akbar on very deep networks at initialization: sections 2.3, 5.1 and 9.5."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import Found, standardize

claims = Family("A", "Akbar")

EDGE = 4  # layers at either end that are not counted: there the batch is not yet, or the gradient no longer, typical


def slopes(draw: Draw, shape: tuple[int, int, int], *, relu: bool, norm: bool, skip: bool = False) -> list[float]:
    """Squared sizes of the gradient in front of each layer of a random network; shape is (width, batch, depth)."""
    width, batch, depth = shape
    scale = math.sqrt((2.0 if relu else 1.0) / width)
    h, found = draw.normal(batch, width), list[Tensor]()
    for _ in range(depth):
        z = h @ (scale * draw.normal(width, width)).T
        z = z if z.requires_grad else z.requires_grad_()
        z.retain_grad()
        found.append(z)
        y = standardize(z) if norm else z
        y = torch.relu(y) if relu else y
        h = h + y if skip else y
    (h * draw.normal(batch, width)).sum().backward()
    return [float(z.grad.square().sum()) for z in found if z.grad is not None]


def factor(squares: list[float]) -> float:
    """By how much the squared gradient grows a layer, going back, away from both ends."""
    first, last = EDGE, len(squares) - 1 - EDGE
    return float((squares[first] / squares[last]) ** (1 / (last - first)))


@claims.add(
    "2.3.yang",
    "section 2.3, on Yang et al. 2019",
    Verdict.WRONG,
    "Batch norm makes gradients explode in deep linear networks, unless skips or nonlinearities prevent it",
    "Nonlinearity makes it worse: squared gradients grow by (B−2)/(B−3) a layer when linear, by π/(π−1) = 1.467 "
    "with ReLU.",
)
def explosion(draw: Draw) -> Found:
    """Growth a layer at initialization, linear with small batches and ReLU with large ones.

    Derived for wide layers. Directions of a unit's batch of B values are uniform on the sphere orthogonal to 1.
    Linear: E[1/σ²] brings (B−1)/(B−3), the two directions lost (B−2)/(B−1): (B−2)/(B−3) together. ReLU, B → ∞: half of
    the squared gradient passes, over the variance ½ − 1/(2π) that a rectified normal value leaves: π/(π−1).
    """
    batch = draw.integer(7, 10)
    logs = [math.log(factor(slopes(draw, (192, batch, 24), relu=False, norm=True))) for _ in range(6)]
    linear = math.exp(sum(logs) / len(logs))
    relu = factor(slopes(draw, (192, 192, 20), relu=True, norm=True))
    yield exceeds("growth with ReLU, against linear", relu, published=linear)
    yield equal("growth of the squared gradient a layer, linear", linear, predicted=(batch - 2) / (batch - 3), rel=5e-2)
    yield equal("growth of the squared gradient a layer, ReLU", relu, predicted=math.pi / (math.pi - 1), rel=3e-2)


@claims.add(
    "2.3.yang.skip",
    "section 2.3, on Yang et al. 2019",
    Verdict.HOLDS,
    "Skip connections tame the exploding gradients of batch norm",
    "At initialization the growth a layer falls towards 1 as the stream widens; without skips it stays at 1.467.",
)
def with_skips(draw: Draw) -> Found:
    """Growth a layer with and without skips."""
    shape = (128, 96, 20)
    plain = factor(slopes(draw, shape, relu=True, norm=True))
    skips = slopes(draw, shape, relu=True, norm=True, skip=True)
    yield below("growth a layer with skips", factor(skips), predicted=plain - 0.2)
    late, early = (skips[k] / skips[k + 4] for k in (12, 2))
    yield below("growth in deep layers, against shallow ones", late, predicted=early)


@claims.add(
    "5.explode",
    "section 5.1, stability",
    Verdict.UNSUPPORTED,
    "By normalizing each layer, batch norm cuts the worst growth of gradients with depth exponentially",
    "It removes the dependence on the weights' scale. At a good initialization it adds growth: plain ReLU layers "
    "have factor 1.",
)
def exponentially_less(draw: Draw) -> Found:
    """Growth a layer with batch norm against a plain network at He initialization."""
    with_norm = factor(slopes(draw, (160, 128, 20), relu=True, norm=True))
    without = factor(slopes(draw, (160, 128, 20), relu=True, norm=False))
    yield exceeds("growth with batch norm, against without", with_norm, published=without, by=0.1)
    yield equal("growth without", without, predicted=1.0, rel=0.1)


@claims.add(
    "9.5.depth",
    "section 9.5, very deep networks",
    Verdict.WRONG,
    "Batch norm prevents the exponential growth of gradients with depth",
    "It causes one: gradients of ReLU networks grow by √(π/(π−1)) = 1.211 a layer at initialization, 6.8 decades "
    "in 82 layers.",
)
def depth_limit(draw: Draw) -> Found:
    """Gradient in each layer of a deep network with batch norm, and without it at He initialization."""
    shape = (128, 128, 32)
    with_norm = slopes(draw, shape, relu=True, norm=True)
    without = slopes(draw, shape, relu=True, norm=False)
    grown = math.sqrt(factor(with_norm))
    yield refutes("growth of the gradient a layer", grown, published=1.0)
    yield equal("growth of the gradient a layer", grown, predicted=math.sqrt(math.pi / (math.pi - 1)), rel=2e-2)
    layers = tuple(float(k) for k in range(len(with_norm)))
    yield Curve(
        "Gradients of random ReLU networks",
        "layers below the output",
        "gradient, 1 at the last layer",
        layers,
        (
            ("batch norm", tuple(math.sqrt(v / with_norm[-1]) for v in reversed(with_norm))),
            ("none, He initialization", tuple(math.sqrt(v / without[-1]) for v in reversed(without))),
            ("1.211 a layer", tuple((math.pi / (math.pi - 1)) ** (k / 2) for k in layers)),
        ),
        log_y=True,
    )


@claims.add(
    "9.5.free",
    "section 9.5, normalization-free networks",
    Verdict.HOLDS,
    "A careful initialization keeps activations and gradients in range without normalizers",
    "At the start of training: with He weights squared gradients of wide ReLU layers keep their size.",
)
def without_normalizers(draw: Draw) -> Found:
    """Growth a layer at He initialization."""
    logs = [math.log(factor(slopes(draw, (160, 64, 20), relu=True, norm=False))) for _ in range(4)]
    without = math.exp(sum(logs) / len(logs))
    yield equal("growth of the squared gradient a layer, mean of four", without, predicted=1.0, rel=5e-2)

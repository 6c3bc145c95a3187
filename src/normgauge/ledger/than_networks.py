"""Claims of Than 2025 on plain networks: activations, Lemma 5, Theorem 6, Remark 7."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, moves
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import decade, frozen_stack, matrices, product, rescaled
from normgauge.zoo import extremal

claims = Family("T", "Than 2025")

HOLDS, WRONG, GAUGE, UNSUPPORTED = Verdict.HOLDS, Verdict.WRONG, Verdict.GAUGE, Verdict.UNSUPPORTED

Activation = Callable[[Tensor], Tensor]


def steepest(function: Activation, low: float = -8.0, high: float = 8.0) -> float:
    """The largest |f'| on an interval: a grid, then finer ones around the best point."""
    best, x = 0.0, 0.0
    for _ in range(4):
        grid = torch.linspace(low, high, 801, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(function(grid).sum(), grid)
        x, best = float(grid.detach()[slope.abs().argmax()]), max(best, float(slope.abs().max()))
        low, high = x - (high - low) / 400, x + (high - low) / 400
    return best


@claims.add(
    "D4",
    "text below Definition 4",
    HOLDS,
    "ReLU, leaky ReLU, tanh, sigmoid and softmax have Lipschitz constants of at most 1.",
    "Exactly 1, 1, 1, 1/4 and 1/2; softmax reaches 1/2 for two equal logits and approaches it for more.",
    backs=("activation.activation", "activation.modulus"),
)
def named_activations(draw: Draw) -> Iterator[Finding | Curve]:
    """Largest slopes found on a fine grid; softmax at random logits and at two that lead."""
    a = float(draw.uniform(1, low=0.01, high=0.9))
    yield equal("ReLU", steepest(F.relu), predicted=1.0)
    yield equal("leaky ReLU, slope below zero", steepest(lambda x: F.leaky_relu(x, a), -8, -1), predicted=a)
    yield equal("leaky ReLU", steepest(lambda x: F.leaky_relu(x, a)), predicted=1.0)
    yield equal("tanh", steepest(torch.tanh), predicted=1.0)
    yield equal("sigmoid", steepest(torch.sigmoid), predicted=1 / 4)
    n = draw.integer(2, 8)
    found = max(norm(jacobian(lambda v: F.softmax(v, 0), 3 * draw.normal(n))) for _ in range(5))
    yield below("softmax at five random points", found, predicted=1 / 2)
    logits = draw.normal(n) - 50
    logits[:2] = draw.normal(1)
    yield equal("softmax with two leading logits", norm(jacobian(lambda v: F.softmax(v, 0), logits)), predicted=1 / 2)


@claims.add(
    "D4.others",
    'text below Definition 4, "most popular"',
    WRONG,
    "Most popular activation functions have Lipschitz constants of at most 1.",
    "GELU 1.1289, SiLU 1.0998 (the activation of EfficientNet, in Figure 3), Mish 1.0885, Hardswish 1.5, SELU 1.7581: "
    "these constants have to be multiplied in.",
)
def other_activations(draw: Draw) -> Iterator[Finding | Curve]:
    """The largest slope found of each, against its maximum in closed form or at the known maximiser."""
    phi = math.exp(-1) / math.sqrt(2 * math.pi)
    gelu = (1 + math.erf(1)) / 2 + math.sqrt(2) * phi
    gate = 1 / (1 + math.exp(-2.399357280520))
    silu = gate * (1 + 2.399357280520 * (1 - gate))
    soft = math.log1p(math.exp(1.490571))
    mish = math.tanh(soft) + 1.490571 * (1 - math.tanh(soft) ** 2) / (1 + math.exp(-1.490571))
    shift = float(draw.uniform(1))  # another grid each time
    for name, function, constant in (
        ("GELU", F.gelu, gelu),
        ("SiLU", F.silu, silu),
        ("Mish", F.mish, mish),
        ("Hardswish", F.hardswish, 3 / 2),
        ("SELU", F.selu, 1.0507009873554805 * 1.6732632423543772),
    ):
        found = steepest(function, -8 - shift, 8 - shift)
        yield equal(name, found, predicted=constant, published=1.0, rel=1e-6)
        yield exceeds(f"{name} against 1", found, published=1.0)


@claims.add(
    "L5",
    "Lemma 5, Eqs. 29-33",
    HOLDS,
    "A feedforward network with 1-Lipschitz activations has a constant of at most P_w = Π‖W_k‖.",
    "Holds and is attained, for plain chains; anything else between the matrices must be multiplied or added in.",
    backs=("affine.linear",),
)
def lemma_5(draw: Draw) -> Iterator[Finding | Curve]:
    """Random networks with random activations, and aligned ones that meet the bound."""
    weights = matrices(draw, draw.integer(2, 5))
    acts = [(F.relu, torch.tanh, torch.sigmoid, torch.sin)[draw.integer(0, 4)] for _ in weights]

    def net(x: Tensor) -> Tensor:
        for weight, act in zip(weights, acts, strict=True):
            x = act(weight @ x)
        return x

    found = max(norm(jacobian(net, draw.normal(weights[0].shape[1]))) for _ in range(5))
    yield below("largest slope of five points", found, predicted=product(weights))
    ways = [draw.uniform(len(weight), low=0.1) for weight in weights]
    ways = [way / way.norm() for way in [draw.uniform(weights[0].shape[1], low=0.1), *ways]]
    gains = [decade(draw, -1, 1) for _ in weights]
    aligned = [g * torch.outer(ways[k + 1], ways[k]) for k, g in enumerate(gains)]

    def chain(x: Tensor) -> Tensor:
        for weight in aligned:
            x = F.relu(weight @ x)
        return x

    yield equal(
        "each matrix feeds the next one's top direction", norm(jacobian(chain, ways[0])), predicted=product(aligned)
    )


@claims.add(
    "L5.scope",
    "Lemma 5 as used in Figure 1",
    WRONG,
    "The product of the weight norms bounds ResNet-18 and EfficientNet too.",
    "A skip connection has 1 + ‖f‖, a 3×3 max-pool of stride 2 has 2 (√ of the windows over a pixel); P_w has neither.",
)
def beyond_plain_chains(draw: Draw) -> Iterator[Finding | Curve]:
    """A residual block, and the max-pool of ResNet-18's stem."""
    n, gain = draw.integer(2, 8), decade(draw, -2, 1)
    weight = draw.normal(n, n)
    block = norm(jacobian(lambda x: x + weight @ x, draw.normal(n)))
    yield below("residual block x + Wx", block, predicted=1 + norm(weight))
    block = norm(jacobian(lambda x: x + F.relu(gain * x), draw.uniform(n, low=0.1)))
    yield equal("residual block x + ReLU(a x)", block, predicted=1 + gain, published=gain)
    yield exceeds("residual block against P_w", block, published=gain)
    peak = 0.01 * draw.normal(7, 7)
    peak[2, 2] = 1.0  # four windows meet here

    def pool(x: Tensor) -> Tensor:
        return F.max_pool2d(x[None, None], 3, stride=2)

    yield equal("max-pool around a peak", norm(jacobian(pool, peak)), predicted=math.sqrt(math.ceil(3 / 2) ** 2))
    yield exceeds("max-pool against 1", norm(jacobian(pool, peak)), published=1.0)


@claims.add(
    "T6",
    "Theorem 6, Eqs. 35-48",
    HOLDS,
    "For any a_k up to the norm bounds there is a ReLU network with constant exactly Πa_k.",
    "Scaled truncated identities: h(x) = Πa_k·ReLU(x cut to the narrowest width); attained at every positive x.",
    backs=("normgauge.zoo.extremal.extremal", "normgauge.zoo.extremal.input_constant"),
)
def theorem_6(draw: Draw) -> Iterator[Finding | Curve]:
    """Random gains and widths: the map itself, and its slope at positive and at other points."""
    depth = draw.integer(2, 6)
    gains = [decade(draw, -1, 1) for _ in range(depth)]
    widths = [draw.integer(1, 8) for _ in range(depth + 1)]
    net, x, weight = extremal(gains, widths), draw.normal(widths[0]), draw.normal(widths[-1])

    def single(v: Tensor) -> Tensor:
        return net(v[None])[0]

    yield equal("slope at a positive point", norm(jacobian(single, x.abs() + 0.1)), predicted=math.prod(gains))
    yield below("slope anywhere", norm(jacobian(single, x)), predicted=math.prod(gains))
    kept = min(widths)
    formula = math.prod(gains) * x[:kept].clamp_min(0)
    yield equal("output, along a random direction", (weight @ single(x)).detach(), predicted=weight[:kept] @ formula)


@claims.add(
    "R7",
    "Remark 7, existence and tightness",
    HOLDS,
    "There are uncountably many networks with exponentially large and small constants, and Lemma 5 is tight for them.",
    "Holds: every value from 0 to Πs_k is reached by a continuum of gains. It is existence, not what training finds.",
)
def remark_7(draw: Draw) -> Iterator[Finding | Curve]:
    """Growth with depth, any value hit on purpose in two ways, P_w met."""
    depth, width, a = draw.integer(3, 9), draw.integer(1, 5), float(draw.uniform(1, low=1.2, high=3.0))

    def slope(gains: Sequence[float]) -> float:
        net = extremal(list(gains), [width] * (len(gains) + 1))
        return norm(jacobian(lambda v: net(v[None])[0], draw.uniform(width, low=0.1)))

    yield equal(f"{depth} layers of gain {a:.2f}", slope([a] * depth), predicted=a**depth)
    yield equal(f"{depth} layers of gain 1/{a:.2f}", slope([1 / a] * depth), predicted=a**-depth)
    target = float(draw.uniform(1, high=a**depth))
    split = float(draw.uniform(1, low=0.1, high=0.9))
    even = [target ** (1 / depth)] * depth
    uneven = [target**split, target ** (1 - split), *[1.0] * (depth - 2)]
    yield equal("a constant chosen at random", slope(even), predicted=target)
    yield equal("the same constant with other gains", slope(uneven), predicted=target)
    bound = product(list(extremal(uneven, [width] * (depth + 1)).parameters()))
    yield equal("Lemma 5 met", slope(uneven), predicted=bound)
    depths = [float(k) for k in range(1, 21)]
    lines = tuple((f"gain {g}", tuple(g**k for k in depths)) for g in (0.5, 1.0, 2.0))
    yield Curve("Constant of the extremal network", "depth", "constant", tuple(depths), lines, log_y=True)


@claims.add(
    "R7.fig1",
    "Remark 7, use of Figure 1",
    GAUGE,
    "The product of ResNet-18's weight norms, about 10^50, shows how large constants get without normalization.",
    "ResNet-18 is normalized: under BatchNorm the scale of the weights is free, so the product moves by any number of "
    "decades while the function and the folded norms ‖diag(1/σ_k)W_k‖ stay.",
)
def figure_1_as_evidence(draw: Draw) -> Iterator[Finding | Curve]:
    """A BatchNorm network and rescaled copies of it."""
    stack = frozen_stack(draw, depth=draw.integer(2, 5))
    factors = [decade(draw, 1, 3) for _ in stack.weights]
    other = rescaled(stack, factors)
    x, weight = draw.normal(stack.weights[0].shape[1]), draw.normal(len(stack.weights[-1]))
    yield moves("P_w", product(stack.weights), product(other.weights))
    yield equal("output, along a random direction", weight @ other(x), predicted=weight @ stack(x))
    before, after = (math.prod(norm(w) for w in s.folded) for s in (stack, other))
    yield equal("folded product", after, predicted=before)
    yield equal(
        "P_w moved by the factors chosen", product(other.weights), predicted=math.prod(factors) * product(stack.weights)
    )
    decades = [float(k) for k in range(-3, 4)]
    copies = [rescaled(stack, [10**k] * len(factors)) for k in decades]
    lines = (
        ("P_w", tuple(product(c.weights) for c in copies)),
        ("folded product", tuple(math.prod(norm(w) for w in c.folded) for c in copies)),
    )
    yield Curve(
        "One function, written in seven ways",
        "log10 of the weights' scale",
        "product",
        tuple(decades),
        lines,
        log_y=True,
    )


@claims.add(
    "R7.overfit",
    "Remark 7, overfitting and underfitting",
    UNSUPPORTED,
    "A huge Lipschitz constant means overfitting, a tiny one underfitting.",
    "No theorem: a classifier's constant scales with its logits at the same errors, and a steep target is learnt "
    "exactly by a steep network.",
)
def constants_and_fit(draw: Draw) -> Iterator[Finding | Curve]:
    """The same decisions at any constant; a steep and a flat linear target, fitted and tested on fresh data."""
    n, m, scale = draw.integer(2, 6), draw.integer(20, 40), decade(draw, 2, 6)
    teacher, guess, test = draw.normal(n), draw.normal(n), draw.normal(200, n)

    def errors(w: Tensor) -> float:
        return float(((test @ w).sign() != (test @ teacher).sign()).double().mean())

    yield moves("constant of a classifier", norm(guess[None]), norm(scale * guess[None]))
    yield equal("its test error", errors(scale * guess), predicted=errors(guess))
    for name, size in (("steep", scale), ("flat", 1 / scale)):
        x = draw.normal(m, n)
        fitted = torch.linalg.lstsq(x, (x @ (size * teacher))[:, None]).solution[:, 0]
        wrong = (test @ (fitted - size * teacher)).square().mean().sqrt()
        yield equal(f"constant of a network fitted to a {name} target", fitted.norm(), predicted=size * teacher.norm())
        yield equal("its test error", wrong, predicted=0.0, scale=size)

"""Our own claims on activations: the table, clamping, functions of a bounded range, jumps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("X", "normgauge")


def steepest(function: Callable[[Tensor], Tensor], low: float, high: float, points: int = 40_001) -> float:
    """The largest |f′| on a fine grid, by autograd; the grid is drawn closer around the best point once."""
    for _ in range(2):
        x = torch.linspace(low, high, points, dtype=torch.float64).requires_grad_()
        (slope,) = torch.autograd.grad(function(x).sum(), x)
        at, width = float(x.detach()[slope.abs().argmax()]), (high - low) / points
        low, high = max(low, at - width), min(high, at + width)
    return float(slope.abs().max())


ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "ReLU": (torch.relu, 1.0),
    "LeakyReLU(0.1)": (lambda x: F.leaky_relu(x, 0.1), 1.0),
    "LeakyReLU(3)": (lambda x: F.leaky_relu(x, 3.0), 3.0),
    "ELU(2)": (lambda x: F.elu(x, 2.0), 2.0),
    "tanh": (torch.tanh, 1.0),
    "softplus": (F.softplus, 1.0),
    "GELU": (F.gelu, 1.128904),
    "GELU, tanh": (lambda x: F.gelu(x, approximate="tanh"), 1.128993),
    "SiLU": (F.silu, 1.099839),
    "Mish": (F.mish, 1.088498),
    "Hardswish": (F.hardswish, 1.5),
    "SELU": (F.selu, 1.758099),
    "sigmoid": (torch.sigmoid, 0.25),
    "Hardsigmoid": (F.hardsigmoid, 1 / 6),
}


@claims.add(
    "activations",
    "activations",
    Verdict.HOLDS,
    "Constants: GELU 1.128904 (tanh form 1.128993), SiLU 1.099839, Mish 1.088498, Hardswish 1.5, SELU "
    "1.758099, sigmoid ¼.",
    "The largest derivative; GELU's is Φ(√2) + √2φ(√2), at √2. ReLU, tanh, softplus 1; slopes above 1 count "
    "as they are.",
    backs=("recognise.written_out_gate",),
)
def activations(draw: Draw) -> Iterator[Finding | Curve]:
    """Derivatives by autograd on a fine grid."""
    for name, (function, constant) in ACTIVATIONS.items():
        edge = 40.0 if name == "softplus" else 10 + float(draw.uniform(1))
        found = steepest(function, -edge, edge, 4001)
        yield equal(name, found, predicted=constant, rel=1e-3 if name in ("Hardswish", "ELU(2)", "SELU") else 2e-6)
    root = math.sqrt(2)
    exact = (1 + math.erf(1)) / 2 + root * math.exp(-1) / math.sqrt(2 * math.pi)
    yield equal("GELU, by its formula", steepest(F.gelu, 1.0, 2.0, 4001), predicted=exact, rel=1e-7)


@claims.add(
    "clamp",
    "activations",
    Verdict.HOLDS,
    "Clamping to [a, b] has constant 1, and its values lie in [a, b].",
    "Attained inside; 0 where everything is clamped.",
    backs=("activation.clamp",),
)
def clamp(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians with some entries inside, and none."""
    n, x = draw.integer(2, 9), draw.normal(9)
    low, high = float(x[:n].min()) - 0.1, float(x[:n].median())
    yield equal("constant", norm(jacobian(lambda t: t.clamp(low, high + 0.05), x[:n])), predicted=1.0)
    yield equal(
        "constant where all is clamped", norm(jacobian(lambda t: t.clamp(50.0, 60.0), x[:n])), predicted=0.0, scale=1.0
    )
    yield below("largest value", float((100 * x).clamp(low, high).max()), predicted=high)


@claims.add(
    "range",
    "activations",
    Verdict.HOLDS,
    "On [a, b]: exp e^b, log 1/a, √x 1/(2√a), 1/√x ½a^(−3/2), 1/x a^(−2), log(1+x) 1/(1+a), |x|^p p·max|x|^(p−1).",
    "The derivative at the end of the range; none of them is Lipschitz on the whole line.",
    backs=("activation.exponential", "activation.steep_at_zero", "activation.log_of_one_more", "activation.power"),
)
def on_a_range(draw: Draw) -> Iterator[Finding | Curve]:
    """The steepest slope on a random range."""
    a = float(draw.uniform(1, low=0.05, high=1.0))
    b, p = a + float(draw.uniform(1, low=0.5, high=2.0)), draw.integer(2, 5)
    table: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
        "exp": (torch.exp, math.exp(b)),
        "log": (torch.log, 1 / a),
        "√x": (torch.sqrt, 1 / (2 * math.sqrt(a))),
        "1/√x": (torch.rsqrt, a**-1.5 / 2),
        "1/x": (torch.reciprocal, a**-2),
        "log(1+x)": (torch.log1p, 1 / (1 + a)),
        f"x^{p}": (lambda x: x**p, p * b ** (p - 1)),
    }
    for name, (function, constant) in table.items():
        yield equal(name, steepest(function, a, b, 1001), predicted=constant)
    yield exceeds("√x at 10⁻¹², against that at 1", steepest(torch.sqrt, 1e-12, 1.0, 11), published=1.0)


@claims.add(
    "jump",
    "activations",
    Verdict.HOLDS,
    "Discontinuous maps (Hardshrink, rounding, sign, argmax, a table looked up by a computed index) have no constant.",
    "A step of height h over a distance d has slope h/d, for every d.",
    backs=("activation.jump", "embedding.embedding"),
)
def jump(draw: Draw) -> Iterator[Finding | Curve]:
    """Secants across a jump, shorter and shorter; two rows of a table."""
    gap = 10 ** -float(draw.uniform(1, low=6.0, high=9.0))
    for name, function, at, height in (
        ("round", torch.round, 0.5, 1.0),
        ("sign", torch.sign, 0.0, 2.0),
        ("Hardshrink(0.5)", F.hardshrink, 0.5, 0.5),
    ):
        ends = torch.tensor([at - gap / 2, at + gap / 2], dtype=torch.float64)
        slope = float(function(ends).diff().abs() / ends.diff())
        yield equal(f"secant of {name}, times its length", slope * gap, predicted=height, rel=1e-5)
    table, n = draw.normal(4, 3), draw.integer(0, 3)
    rows = [table[math.floor(n + 1 + side * gap)] for side in (-1.0, 1.0)]
    step = float((rows[1] - rows[0]).norm())
    yield equal("jump of a looked-up row", step, predicted=float((table[n + 1] - table[n]).norm()))

"""Our own claims on softmax and on losses: constants in the logits, ℓ2 to ℓ2, for one sample and a sum over outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("X", "normgauge")


def logits(draw: Draw) -> Tensor:
    """Random logits of random size and sharpness."""
    return draw.normal(draw.integer(2, 9)) * 10 ** draw.uniform(1, low=-1.0, high=1.0)


def pair(n: int, gap: float = 40.0) -> Tensor:
    """Two equal logits far above the others."""
    x = torch.full((n,), -gap, dtype=torch.float64)
    x[:2] = 0.0
    return x


@claims.add(
    "softmax",
    "softmax",
    Verdict.HOLDS,
    "Softmax has constant ½; at p it is at most max p_i and max 2p_i(1−p_i).",
    "½ is attained at p = (½, ½, 0, …), not 1.",
    backs=("softmax.softmax",),
)
def softmax(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians at random logits and at two equal ones."""
    x = logits(draw)
    p = torch.softmax(x, 0)
    found = norm(jacobian(lambda t: torch.softmax(t, 0), x))
    yield below("constant, against ½", found, predicted=0.5)
    yield below("constant, against max p", found, predicted=float(p.max()))
    yield below("constant, against max 2p(1−p)", found, predicted=float((2 * p * (1 - p)).max()))
    n = draw.integer(2, 9)
    yield equal("at two equal logits", norm(jacobian(lambda t: torch.softmax(t, 0), pair(n))), predicted=0.5)


@claims.add(
    "logsoftmax",
    "softmax",
    Verdict.HOLDS,
    "log softmax over n has constant √n·‖p‖ at p, √n as a supremum; logsumexp ‖p‖, at most 1.",
    "Exactly: J = I − 1pᵀ. √n is approached as one p goes to 1.",
    backs=("softmax.log_softmax", "softmax.logsumexp"),
)
def log_softmax(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians at random logits and at a sharp one."""
    x = logits(draw)
    n, p = len(x), torch.softmax(x, 0)
    found = norm(jacobian(lambda t: torch.log_softmax(t, 0), x))
    yield equal("log softmax", found, predicted=math.sqrt(n) * float(p.norm()))
    sharp = 60 * torch.eye(n, dtype=torch.float64)[0]
    yield equal(
        "the same, one p near 1", norm(jacobian(lambda t: torch.log_softmax(t, 0), sharp)), predicted=math.sqrt(n)
    )
    yield equal("logsumexp", norm(jacobian(lambda t: torch.logsumexp(t, 0), x)), predicted=float(p.norm()))


@claims.add(
    "glu",
    "gates",
    Verdict.HOLDS,
    "a·σ(b) with |a| ≤ A has constant max over s of s√(1 + A²(1−s)²): 1, or that at s = (3 − √(1−8/A²))/4 if larger.",
    "Exactly, entry by entry; not Lipschitz on unbounded inputs.",
    backs=("softmax.glu",),
)
def glu(draw: Draw) -> Iterator[Finding | Curve]:
    """The steepest slope on a grid of gates: A below √8, above it with 1 still the largest, and large."""
    for low, high in ((0.1, 2.8), (2.9, 3.3), (4.0, 12.0)):
        size = float(draw.uniform(1, low=low, high=high))
        gates = torch.linspace(-20, 40, 6001, dtype=torch.float64)
        x = torch.cat([torch.full_like(gates, size), gates]).requires_grad_()
        (slope,) = torch.autograd.grad(F.glu(x, 0).sum(), x)
        found = float(torch.hypot(*slope.chunk(2)).max())
        s = (3 - math.sqrt(max(0.0, 1 - 8 / size**2))) / 4 if size**2 >= 8 else 1.0
        yield equal(
            f"constant, A = {size:.3g}", found, predicted=max(1.0, s * math.sqrt(1 + size**2 * (1 - s) ** 2)), rel=1e-5
        )


def slope(loss: Tensor, x: Tensor) -> Tensor:
    """Norms of the gradients of many samples' losses, rows of x."""
    return torch.autograd.grad(loss.sum(), x)[0].norm(dim=1)


@claims.add(
    "loss.crossentropy",
    "losses",
    Verdict.HOLDS,
    "Cross-entropy has constant √2 in the logits; ‖onehot − softmax‖₁ = 2(1−p_y) has √2/2; ramp(margin/θ) √2/θ.",
    "Suprema: all mass on one wrong class; p_y = ½ against one other class; wherever the ramp is not flat.",
    backs=("normgauge.records.loss_constants",),
)
def crossentropy(draw: Draw) -> Iterator[Finding | Curve]:
    """Gradients at many random logits, and at the worst ones."""
    n, theta = draw.integer(2, 9), float(draw.uniform(1, low=0.3, high=3.0))
    x = draw.normal(200, n) * 10 ** draw.uniform(200, 1, low=-1.0, high=1.0)
    wrong, even = 60 * torch.eye(n, dtype=torch.float64)[1:2], pair(n)[None]
    near = torch.zeros(1, n, dtype=torch.float64) - 5
    near[0, :2] = torch.tensor([theta / 2, 0.0])
    for name, loss, worst, constant in (
        (
            "cross-entropy",
            lambda t: F.cross_entropy(t, t.new_zeros(len(t)).long(), reduction="none"),
            wrong,
            math.sqrt(2),
        ),
        ("softmax ℓ1", lambda t: 2 * (1 - torch.softmax(t, 1)[:, 0]), even, math.sqrt(2) / 2),
        ("ramp", lambda t: ramp(t, theta), near, math.sqrt(2) / theta),
    ):
        drawn, corner = x.clone().requires_grad_(), worst.clone().requires_grad_()
        yield below(f"{name}, 200 gradients", float(slope(loss(drawn), drawn).max()), predicted=constant)
        yield equal(f"{name}, at its worst", float(slope(loss(corner), corner)[0]), predicted=constant)
    one_hot = F.one_hot(torch.zeros(200).long(), n)
    apart = (one_hot - torch.softmax(x, 1)).abs().sum(1) - 2 * (1 - torch.softmax(x, 1)[:, 0])
    yield equal("‖onehot − softmax‖₁ − 2(1−p_y)", float(apart.abs().max()), predicted=0.0, scale=1.0)


def ramp(x: Tensor, theta: float) -> Tensor:
    """1 − margin/θ, cut to [0, 1], of class 0."""
    return (1 - (x[:, 0] - x[:, 1:].max(1).values) / theta).clamp(0, 1)


@claims.add(
    "loss.sums",
    "losses",
    Verdict.HOLDS,
    "Summed over n outputs ℓ1 has √n, binary cross-entropy √n, Huber δ√n; the square 2‖h−y‖, which is local only.",
    "Attained where all terms are steep; a mean divides by n.",
    backs=("normgauge.records.loss_constants",),
)
def sums(draw: Draw) -> Iterator[Finding | Curve]:
    """Gradients at random outputs and far from the target."""
    n, delta = draw.integer(2, 9), float(draw.uniform(1, low=0.3, high=3.0))
    y, h = draw.uniform(n).round(), draw.normal(n)
    far = 100 * (1 - 2 * y)  # on the wrong side of every target
    for name, loss, constant in (
        ("ℓ1", lambda t: (t - y).abs().sum(), math.sqrt(n)),
        ("binary cross-entropy", lambda t: F.binary_cross_entropy_with_logits(t, y, reduction="sum"), math.sqrt(n)),
        ("Huber", lambda t: F.huber_loss(t, y, reduction="sum", delta=delta), delta * math.sqrt(n)),
    ):
        yield below(f"{name}, random output", norm(jacobian(loss, h)), predicted=constant)
        yield equal(f"{name}, far from the target", norm(jacobian(loss, far)), predicted=constant)
    yield equal("square", norm(jacobian(lambda t: (t - y).square().sum(), h)), predicted=2 * float((h - y).norm()))
    mean = norm(jacobian(lambda t: F.l1_loss(t, y), far))
    yield equal("ℓ1, mean", mean, predicted=1 / math.sqrt(n))

"""Claims of Than 2025 on the generalization of normalized networks: Corollary 22 and what it is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.examples import BatchNormNet
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.than_generalization import spread

claims = Family("T", "Than 2025")
DELTA = 0.1


def _affine_loss(gains: Tensor, slope: float, x: Tensor) -> Tensor:
    for a in gains:
        x = torch.relu(a * x)
    return slope * x


@claims.add(
    "C22.14",
    "Corollary 22, (14)",
    Verdict.HOLDS,
    "Without normalizers the local term is ω(h) = L_f·P_w·Σ(m_i/m)λ_i.",
    "A global constant in every cell; attained by W_k = a_k on the half line, far above the truth otherwise.",
)
def c22_plain(draw: Draw) -> Iterator[Finding | Curve]:
    """Scalar layers: the mean change of the loss is ω. Random layers: the gradient stays below L_f·P_w."""
    k, cells, slope = draw.integer(2, 6), draw.integer(2, 5), float(draw.uniform(1, low=0.5, high=3.0))
    gains = draw.uniform(k, low=0.5, high=2.0)
    x = draw.uniform(cells, 12, 1) + torch.arange(cells)[:, None, None]
    change = sum(spread(_affine_loss(gains, slope, c)) for c in x) / cells
    distance = sum(spread(c) for c in x) / cells
    yield equal("mean change of the loss over the cells", change, predicted=slope * float(gains.prod()) * distance)
    n = draw.integer(3, 7)
    weights, direction = [draw.normal(n, n) for _ in range(k)], draw.normal(n)

    steep = norm(jacobian(lambda v: directed(v, weights, direction), draw.normal(n)))
    yield below("gradient of a random net's loss", steep, predicted=plain_bound(weights, direction))
    diagonal = [float(a) * torch.eye(n, dtype=torch.float64) for a in gains]
    exact = norm(jacobian(lambda v: directed(v, diagonal, direction), draw.uniform(n, low=0.5)))
    yield equal("the same, W_k = a_k·I", exact, predicted=plain_bound(diagonal, direction))


def directed(v: Tensor, weights: list[Tensor], direction: Tensor) -> Tensor:
    """A ReLU net and a loss that is linear in its output."""
    for w in weights:
        v = torch.relu(w @ v)
    return direction @ v


def plain_bound(weights: list[Tensor], direction: Tensor) -> float:
    """L_f·P_w."""
    return float(direction.norm()) * math.prod(norm(w) for w in weights)


@claims.add(
    "C22.BN",
    "Corollary 22, (BN)",
    Verdict.LOOSE,
    "With BatchNorm the local term is ω·σ^(−K), σ = min_k 1/‖1/σ_k‖₂.",
    "ω·Π max_c 1/σ_{k,c}, or the norm of the folded weights; with n equal channels the printed factor is "
    "n^(K/2) too large.",
)
def c22_batch(draw: Draw) -> Iterator[Finding | Curve]:
    """W_k = a_k·I with one σ a channel: the true constant, its bound, the printed one."""
    k, n = draw.integer(2, 6), draw.integer(3, 8)
    gains, x = draw.uniform(k, low=0.5, high=2.0), draw.uniform(n, low=0.5, high=2.0)
    sigmas = draw.uniform(k, n, low=0.5, high=2.0)

    def net(v: Tensor, sigma: Tensor) -> Tensor:
        for a, s in zip(gains, sigma, strict=True):
            v = torch.relu(a * v / s)
        return v

    found = norm(jacobian(lambda v: net(v, sigmas), x))
    largest, printed = channel_bounds(gains, sigmas)
    yield below("constant with BatchNorm", found, predicted=largest)
    yield below("the same, against the printed bound", found, predicted=printed, published=printed)
    even = sigmas[:1, :1].expand(k, n)
    tight = norm(jacobian(lambda v: net(v, even), x))
    steps = draw.uniform(k, 1, low=0.5, high=2.0).expand(k, n)  # another σ in every layer, one for its channels
    uneven = norm(jacobian(lambda v: net(v, steps), x))
    yield equal("constant, equal channels in each layer", uneven, predicted=channel_bounds(gains, steps)[0])
    yield equal("printed over true, all channels equal", channel_bounds(gains, even)[1] / tight, predicted=n ** (k / 2))


def channel_bounds(gains: Tensor, sigmas: Tensor) -> tuple[float, float]:
    """Πa_k·Πmax_c 1/σ_{k,c}, and the printed Πa_k·(max_k‖1/σ_k‖₂)^K."""
    largest = float(gains.prod() / sigmas.min(1).values.prod())
    return largest, float(gains.prod()) * float((1 / sigmas).norm(dim=1).max()) ** len(sigmas)


@claims.add(
    "C22.LN",
    "Corollary 22, (LN)",
    Verdict.HOLDS,
    "With LayerNorm the local term is ω·Π1/σ_k, σ_k the smallest over all inputs.",
    "That smallest is √ε: the factor is ε^(−K/2), an increase, and it is attained. σ_k seen on data bound nothing.",
)
def c22_layer(draw: Draw) -> Iterator[Finding | Curve]:
    """tanh layers W_k = a_k·I with LayerNorm at a constant input, and at a random one."""
    k, n, eps = draw.integer(2, 5), draw.integer(3, 8), 10 ** float(draw.uniform(1, low=-5.0, high=-2.0))
    gains = draw.uniform(k, low=0.5, high=2.0)

    def net(v: Tensor) -> Tensor:
        for a in gains:
            v = torch.tanh(F.layer_norm(a * v, (n,), eps=eps))
        return v

    constant = draw.normal(1).expand(n)
    yield equal(
        "constant at a constant input", norm(jacobian(net, constant)), predicted=float(gains.prod()) * eps ** (-k / 2)
    )
    v, seen = 3 * draw.normal(n), float(gains.prod())
    for a in gains:
        seen /= math.sqrt(float((a * v).var(correction=0)) + eps)
        v = torch.tanh(F.layer_norm(a * v, (n,), eps=eps))
    yield exceeds("the same, against Π1/σ_k seen at a sample", norm(jacobian(net, constant)), published=seen)


@claims.add(
    "C22.reduction",
    "text after Corollary 22, Figure 2",
    Verdict.GAUGE,
    "Π1/σ_k is exponentially small in practice, so normalization improves generalization.",
    "Π1/σ_k is a choice of scale: W → tW with the statistics is the same function and moves it by t^(−K).",
)
def c22_reduction(draw: Draw) -> Iterator[Finding | Curve]:
    """A BatchNorm net with all weights and statistics times t."""
    depth, width = draw.integer(3, 6), draw.integer(6, 12)
    net, t = BatchNormNet.drawn(draw, depth, width), 10 ** float(draw.uniform(1, low=1.0, high=3.0))
    other, x = net.rescaled([torch.full((width,), t, dtype=torch.float64)] * depth), draw.normal(20, width)
    change = float((other(x) - net(x)).abs().max())
    yield equal("largest change of an output", change, predicted=0.0, scale=float(net(x).abs().max()))
    yield moves("Π1/σ", 10**net.log_reduction, 10**other.log_reduction)
    yield equal("log10 of Π1/σ, moved by", other.log_reduction - net.log_reduction, predicted=-depth * math.log10(t))


@claims.add(
    "LLA",
    "section 5.2.2 (quoting Lyu, Li & Arora 2022)",
    Verdict.UNSUPPORTED,
    "E_u F(P, W+u) ≤ F(D) + τμ²/2 + O(ln m)/(μ√m) + const bounds a normalized net by its sharpness τ.",
    "It is about the net with noise and has unnamed constants: a score. The noise costs (μ²/2n)·tr H ≤ "
    "τμ²/2, and at the "
    "best μ the two last terms are (3/2)τ^(1/3)(c/√m)^(2/3).",
)
def lla(draw: Draw) -> Iterator[Finding | Curve]:
    """A quadratic loss under noise, exactly by its eigenvectors; then the best μ by search."""
    n, mu = draw.integer(3, 10), float(draw.uniform(1, low=0.1, high=0.5))
    root = draw.normal(n, n)
    hessian = root @ root.T
    noise = torch.cat([torch.eye(n, dtype=torch.float64), -torch.eye(n, dtype=torch.float64)]) * mu
    # ±μe_i, one at a time, have the mean 0 and the covariance μ²/n of the noise: exact for a quadratic
    cost = float((noise @ hessian * noise).sum(1).mean() / 2)
    yield equal("mean loss under the noise, minus the loss", cost, predicted=mu**2 / (2 * n) * float(hessian.trace()))
    tau = float(torch.linalg.eigvalsh(hessian)[-1])
    yield below("the same, against τμ²/2", cost, predicted=tau * mu**2 / 2)
    even = float((tau * noise * noise).sum(1).mean() / 2)
    yield equal("the same, all eigenvalues τ", even, predicted=tau * mu**2 / 2)
    c, m = float(draw.uniform(1, low=0.5, high=3.0)), draw.integer(1000, 100_000)
    grid = torch.logspace(-4, 2, 60_001, dtype=torch.float64)
    best = float((tau * grid**2 / 2 + c / (grid * math.sqrt(m))).min())
    yield equal(
        "both terms at the best μ", best, predicted=1.5 * tau ** (1 / 3) * (c / math.sqrt(m)) ** (2 / 3), rel=1e-5
    )


@claims.add(
    "WN",
    "section 5.2.2 (quoting Cisneros-Velarde et al. 2025)",
    Verdict.UNSUPPORTED,
    "With weight normalization the error is O(ρ₁²/√m), ρ₁ the radius of the last layer.",
    "Unnamed constants and layers of Frobenius norm 1 only: a score. What can be computed: such a net has "
    "constant ≤ ρ₁.",
)
def wn(draw: Draw) -> Iterator[Finding | Curve]:
    """Layers of Frobenius norm 1 and a head of norm ρ: depth does not count; rank-one layers attain it."""
    k, n, rho = draw.integer(2, 6), draw.integer(3, 8), float(draw.uniform(1, low=0.5, high=5.0))
    x, head = draw.uniform(n, low=0.1), draw.normal(n)
    head = rho * head / head.norm()

    def net(v: Tensor, weights: list[Tensor], last: Tensor) -> Tensor:
        for w in weights:
            v = torch.relu(w @ v)
        return last @ v

    drawn = [draw.normal(n, n) for _ in range(k)]
    drawn = [w / w.norm() for w in drawn]
    yield below("constant of a random one", norm(jacobian(lambda v: net(v, drawn, head), x)), predicted=rho)
    unit = torch.zeros(n, n, dtype=torch.float64)
    unit[0, 0] = 1.0
    last = rho * unit[0]
    yield equal("constant of rank-one layers", norm(jacobian(lambda v: net(v, [unit] * k, last), x)), predicted=rho)
    spread = torch.eye(n, dtype=torch.float64) / math.sqrt(n)
    flat = norm(jacobian(lambda v: net(v, [spread] * k, last), x))
    yield refutes("constant of equal-singular-value layers, against ρ", flat, published=rho)
    yield equal("the same", flat, predicted=rho * n ** (-k / 2))

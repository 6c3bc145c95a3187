"""Our own claims on softmax attention: one head Y = P X W_Vᵀ, P = softmax(X A Xᵀ), tokens are rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("X", "normgauge")


@dataclass(frozen=True, slots=True)
class Head:
    """One attention head.

    Attributes:
        query, key, value: W_Q, W_K, W_V.
        query_bias, key_bias: added to queries and keys.
        causal: tokens see only those before them.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    query_bias: Tensor
    key_bias: Tensor
    causal: bool = False

    @classmethod
    def drawn(cls, draw: Draw, d: int, bias: float = 0.0, causal: bool = False) -> Head:
        """Random weights."""
        query, key, value = (draw.normal(d, d) / math.sqrt(d) for _ in range(3))
        return cls(query, key, value, bias * draw.normal(d), bias * draw.normal(d), causal)

    @property
    def form(self) -> Tensor:
        """A = W_QᵀW_K/√d: the logits are x_i·A x_j without biases."""
        return self.query.T @ self.key / math.sqrt(len(self.query))

    def weights(self, x: Tensor) -> Tensor:
        """P, one row a token."""
        logits = (x @ self.query.T + self.query_bias) @ (x @ self.key.T + self.key_bias).T / math.sqrt(len(self.query))
        if self.causal:
            logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -math.inf)
        return torch.softmax(logits, -1)

    def __call__(self, x: Tensor) -> Tensor:
        """The output, one row a token."""
        return self.weights(x) @ x @ self.value.T


def covariances(p: Tensor, v: Tensor, k: Tensor) -> Tensor:
    """Cov of the rows of v and k under every row of p, (tokens, d, d)."""
    vs, ks = v - (p @ v)[:, None], k - (p @ k)[:, None]
    return torch.einsum("ij,ija,ijb->iab", p, vs, ks)


def slope(head: Head, x: Tensor) -> float:
    """‖J‖ at x, by autograd."""
    return norm(jacobian(lambda t: head(t.reshape(x.shape)), x))


def pointwise(head: Head, x: Tensor) -> float:
    """‖W_V‖(√(max column sum of P) + max‖C_iAᵀ‖ + √(max_j Σ_i P_ij λmax(C_i)‖Aᵀx_i‖²))."""
    p = head.weights(x)
    c = covariances(p, x, x)
    reach = (x @ head.form + head.key.T @ head.query_bias / math.sqrt(len(head.query))).norm(dim=1)
    first = math.sqrt(float(p.sum(0).max()))
    second = float(torch.linalg.matrix_norm(c @ head.form.T, 2).max())
    third = math.sqrt(float((p * (torch.linalg.matrix_norm(c, 2) * reach**2)[:, None]).sum(0).max()))
    return norm(head.value) * (first + second + third)


def ball(head: Head, tokens: int, radius: float) -> float:
    """‖W_V‖(√N(1 + R(Ra + b)) + R²a) for tokens no longer than R."""
    a, b = norm(head.form), float((head.key.T @ head.query_bias).norm()) / math.sqrt(len(head.query))
    return norm(head.value) * (math.sqrt(tokens) * (1 + radius * (radius * a + b)) + radius**2 * a)


def tokens(draw: Draw) -> tuple[Tensor, int]:
    """Layer-normalized tokens and their width."""
    n, d = draw.integer(3, 7), draw.integer(3, 5)
    return F.layer_norm(draw.normal(n, d), (d,)), d


@claims.add(
    "attention.qkv",
    "attention",
    Verdict.HOLDS,
    "In v the constant is ‖P‖ ≤ √(max column sum), in q s·max‖Cov_i(v,k)‖, in k s√(max_j‖Σ_i P_ij λmax(Cov_i "
    "v) q_iq_iᵀ‖).",
    "Exact in q, since rows do not touch; in v when all attend alike to one token; in k with one query.",
    backs=("attention.attention",),
)
def qkv(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians in each of the three, with a scale."""
    n, m, d, s = draw.integer(2, 6), draw.integer(2, 6), draw.integer(2, 4), float(draw.uniform(1, low=0.3, high=2.0))
    q, k, v = draw.normal(n, d), draw.normal(m, d), draw.normal(m, d)

    def attend(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.softmax(s * a @ b.T, -1) @ c

    p = torch.softmax(s * q @ k.T, -1)
    in_v = norm(jacobian(lambda c: attend(q, k, c), v))
    yield below("constant in v", in_v, predicted=_in_values(p))
    alike = norm(jacobian(lambda c: attend(0 * q, k, c), v))
    yield equal("the same, all attention even", alike, predicted=_in_values(torch.full((n, m), 1 / m)), rel=1e-6)
    in_q = norm(jacobian(lambda a: attend(a, k, v), q))
    yield equal("constant in q", in_q, predicted=s * float(torch.linalg.matrix_norm(covariances(p, v, k), 2).max()))
    yield below("constant in k", norm(jacobian(lambda b: attend(q, b, v), k)), predicted=_in_keys(p, q, v, s))
    pair, apart = draw.normal(1, d), draw.normal(2, d)
    keys = pair.expand(2, d)  # two equal keys: the weights are even
    half = torch.full((1, 2), 0.5, dtype=torch.float64)
    found = norm(jacobian(lambda b: attend(q[:1], b, apart), keys))
    yield equal("constant in k, one query and two even weights", found, predicted=_in_keys(half, q[:1], apart, s))


def _in_values(p: Tensor) -> float:
    return math.sqrt(float(p.sum(0).max()))


def _in_keys(p: Tensor, q: Tensor, v: Tensor, s: float) -> float:
    spread = torch.linalg.matrix_norm(covariances(p, v, v), 2)
    return s * math.sqrt(float(torch.linalg.matrix_norm(torch.einsum("ij,i,ia,ib->jab", p, spread, q, q), 2).max()))


@claims.add(
    "attention.pointwise",
    "attention",
    Verdict.HOLDS,
    "At given tokens ‖J‖ is at most ‖W_V‖ times three terms made of P and the covariances C_i of the tokens under it.",
    "Factors of 3 to 10 above the truth on normalized tokens; tight when all attention goes to one token.",
)
def at_a_point(draw: Draw) -> Iterator[Finding | Curve]:
    """Random heads on normalized tokens, also causal; then all attention on one token."""
    x, d = tokens(draw)
    for causal in (False, True):
        head = Head.drawn(draw, d, causal=causal)
        yield below(f"‖J‖{', causal' if causal else ''}", slope(head, x), predicted=pointwise(head, x))
    n = draw.integer(3, 8)
    head, x = _one_sink(n)
    yield equal(
        "‖J‖ over the bound, all attention on one token", slope(head, x) / pointwise(head, x), predicted=1.0, rel=1e-3
    )


def _one_sink(n: int) -> tuple[Head, Tensor]:
    """All of n tokens attend to the first."""
    x = torch.ones(n, 1, dtype=torch.float64)
    x[0] = 2.0
    one = torch.ones(1, 1, dtype=torch.float64)
    return Head(80 * one, one, one, 0 * one[0], 0 * one[0]), x


@claims.add(
    "attention.ball",
    "attention",
    Verdict.HOLDS,
    "For tokens no longer than R one head has constant at most ‖W_V‖(√N(1 + R(Ra+b)) + R²a), a = ‖A‖, b = "
    "‖W_Kᵀb_Q‖/√d.",
    "From the pointwise form with C_i ≤ R² and column sums ≤ N; after LayerNorm R = √D·max|γ| + ‖β‖.",
)
def in_a_ball(draw: Draw) -> Iterator[Finding | Curve]:
    """Slope ≤ pointwise ≤ ball; each replaced quantity at its extreme."""
    x, d = tokens(draw)
    head, radius = Head.drawn(draw, d), float(x.norm(dim=1).max())
    yield below("‖J‖", slope(head, x), predicted=ball(head, len(x), radius))
    yield below("pointwise bound", pointwise(head, x), predicted=ball(head, len(x), radius))
    yield equal(
        "R of normalized tokens, over √D",
        float(F.layer_norm(1e3 * x, (d,)).norm(dim=1).max()),
        predicted=math.sqrt(d),
        rel=1e-6,
    )
    a, b = norm(head.form), 0.0
    worst = math.sqrt(len(x) * 1.0) + radius**2 * a + math.sqrt(len(x) * radius**2 * (radius * a + b) ** 2)
    yield equal(
        "the ball's formula: each term of the pointwise one at its largest",
        ball(head, len(x), radius),
        predicted=norm(head.value) * worst,
    )


@claims.add(
    "attention.unbounded",
    "attention",
    Verdict.HOLDS,
    "On unbounded tokens attention has no Lipschitz constant.",
    "Tokens (0, R, −R) have ‖J‖ ≈ (2/3)R² (Kim et al.): the first token's weights are even and their "
    "variance is 2R²/3.",
)
def unbounded(draw: Draw) -> Iterator[Finding | Curve]:
    """R growing."""
    one = torch.ones(1, 1, dtype=torch.float64)
    head = Head(one, one, one, 0 * one[0], 0 * one[0])
    radii = (1.0, 3.0, 10.0, 30.0, 100.0, float(draw.uniform(1, low=100.0, high=1000.0)))
    found = [slope(head, torch.tensor([[0.0], [r], [-r]], dtype=torch.float64)) for r in radii]
    yield equal("‖J‖ over R², R large", found[-1] / radii[-1] ** 2, predicted=2 / 3, rel=1e-3)
    yield exceeds("‖J‖ at the largest R, against that at R = 100", found[-1], published=found[-2], by=0.0)
    lines = (("‖J‖", tuple(found)), ("2R²/3", tuple(2 / 3 * r**2 for r in radii)))
    yield Curve("Attention on tokens (0, R, −R)", "R", "‖J‖", radii, lines, log_x=True, log_y=True)


@claims.add(
    "attention.tokens",
    "attention",
    Verdict.HOLDS,
    "The growth with √N, the number of tokens, is real.",
    "When all attend to one token, moving it moves every output: ‖J‖ = √N.",
)
def root_n(draw: Draw) -> Iterator[Finding | Curve]:
    """One token that takes all attention."""
    n = draw.integer(3, 20)
    head, x = _one_sink(n)
    yield equal("‖J‖", slope(head, x), predicted=math.sqrt(n), rel=1e-6)
    head, x = _one_sink(4 * n)
    yield equal("‖J‖ with four times the tokens", slope(head, x), predicted=2 * math.sqrt(n), rel=1e-6)

"""Our own claims on attention as transformers have it: biases, rotary embeddings, near given tokens, heads, blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw
from normgauge.ledger.extensions_attention import Head, ball, covariances, pointwise, slope, tokens
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("X", "normgauge")


@claims.add(
    "attention.biases",
    "attention",
    Verdict.HOLDS,
    "Of the biases only that of the queries counts; it adds R·b.",
    "A key bias adds the same to a row of logits, a value bias a constant to the output: both leave J alone.",
)
def biases(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians with and without each bias; the bounds with b."""
    x, d = tokens(draw)
    head = Head.drawn(draw, d, bias=1.0)
    found = slope(head, x)
    without = Head(head.query, head.key, head.value, head.query_bias, 0 * head.key_bias)
    yield equal("‖J‖ with a key bias, against without", found, predicted=slope(without, x))
    yield below("‖J‖, against the pointwise bound", found, predicted=pointwise(head, x))
    yield below(
        "pointwise bound, against the ball's",
        pointwise(head, x),
        predicted=ball(head, len(x), float(x.norm(dim=1).max())),
    )
    without_query = Head(head.query, head.key, head.value, 0 * head.query_bias, head.key_bias)
    r = float(x.norm(dim=1).max())
    b = float((head.key.T @ head.query_bias).norm()) / math.sqrt(d)
    added = norm(head.value) * math.sqrt(len(x)) * r * b
    yield equal("what the query bias adds", ball(head, len(x), r) - ball(without_query, len(x), r), predicted=added)
    shifted = jacobian(lambda t: head(t.reshape(x.shape)) + draw.normal(d), x)
    yield equal("‖J‖ with a value bias", norm(shifted), predicted=found)


def rotations(n: int, d: int) -> Tensor:
    """Rotary embeddings of n positions, (n, d, d)."""
    pairs = [10_000.0 ** (-2 * i / d) for i in range(d // 2)]
    blocks = []
    for t in range(n):
        turns = [torch.tensor([[math.cos(t * w), -math.sin(t * w)], [math.sin(t * w), math.cos(t * w)]]) for w in pairs]
        blocks.append(torch.block_diag(*turns).double())
    return torch.stack(blocks)


@claims.add(
    "attention.rotary",
    "attention",
    Verdict.HOLDS,
    "With rotary embeddings replace R(Ra+b) by R‖W_K‖(‖W_Q‖R+‖b_Q‖)/√d and R²a by R‖W_Q‖(‖W_K‖R+‖b_K‖)/√d.",
    "Rotations keep lengths; A then differs from pair to pair of tokens, but not its norm's bound.",
)
def rotary(draw: Draw) -> Iterator[Finding | Curve]:
    """A rotated head's Jacobian under the bound; without rotation the form is looser than the plain one."""
    n, d = draw.integer(3, 6), 2 * draw.integer(1, 3)
    x, head, turns = F.layer_norm(draw.normal(n, d), (d,)), Head.drawn(draw, d, bias=1.0), rotations(n, d)

    def attend(t: Tensor) -> Tensor:
        t = t.reshape(n, d)
        q, k = (
            torch.einsum("nij,nj->ni", turns, t @ w.T + c)
            for w, c in ((head.query, head.query_bias), (head.key, head.key_bias))
        )
        return torch.softmax(q @ k.T / math.sqrt(d), -1) @ t @ head.value.T

    r = float(x.norm(dim=1).max())
    wq, wk, bq, bk = norm(head.query), norm(head.key), float(head.query_bias.norm()), float(head.key_bias.norm())
    to_key, to_query = (r * w * (u * r + c) / math.sqrt(d) for w, u, c in ((wk, wq, bq), (wq, wk, bk)))
    bound = norm(head.value) * (math.sqrt(n) * (1 + to_key) + to_query)
    yield below("‖J‖", norm(jacobian(attend, x)), predicted=bound)
    yield below("the plain ball bound, against this form", ball(head, n, r), predicted=bound)
    turned = torch.einsum("nij,nj->ni", turns, x @ head.query.T)
    yield equal(
        "length of a rotated query", float(turned[-1].norm()), predicted=float((x[-1] @ head.query.T).norm()), rel=1e-6
    )


@claims.add(
    "attention.local",
    "attention",
    Verdict.HOLDS,
    "Within a ball of radius r of given tokens the pointwise form holds with P, C_i and Aᵀx_i enlarged: Δ = "
    "a(2Rr + r²).",
    "P_ij ≤ e^{2Δ}P⁰_ij, λ(C_i) ≤ min(e^{2Δ}(√λ⁰+r)², (R+r)²), ‖Aᵀx_i‖ ≤ ‖Aᵀx⁰_i‖ + ar; never worse than the "
    "ball bound.",
)
def local(draw: Draw) -> Iterator[Finding | Curve]:
    """Slopes sampled in the ball; at r = 0 it is the pointwise bound; P itself stays within its range."""
    x, d = tokens(draw)
    head, radii = Head.drawn(draw, d), (0.0, 0.01, 0.1, 1.0)
    bounds = [nearby(head, x, r) for r in radii]
    found = []
    for r in radii:
        moves = [draw.normal(*x.shape) for _ in range(3)]
        found.append(max(slope(head, x + r * move / move.norm()) for move in moves))
    for r, s, b in zip(radii, found, bounds, strict=True):
        yield below(f"‖J‖ within r = {r}", s, predicted=b)
    yield equal("bound at r = 0, against the pointwise one, C·A loosened", bounds[0], predicted=_loosened(head, x))
    r, longest = float(draw.uniform(1, low=0.1, high=1.0)), x[int(x.norm(dim=1).argmax())]
    form = float(draw.uniform(1, low=0.5, high=2.0)) * torch.eye(d, dtype=torch.float64)
    further = longest * (1 + r / longest.norm())
    change = norm(form) * (2 * float(longest.norm()) * r + r**2)
    yield equal(
        "change of a logit, the longest token moved out",
        further @ form @ further - longest @ form @ longest,
        predicted=change,
    )
    yield Curve(
        "Attention near given tokens",
        "r",
        "constant",
        radii[1:],
        (("bound", tuple(bounds[1:])), ("found", tuple(found[1:]))),
        log_x=True,
        log_y=True,
    )


def _loosened(head: Head, x: Tensor) -> float:
    p, a = head.weights(x), norm(head.form)
    spread = torch.linalg.matrix_norm(covariances(p, x, x), 2)
    third = float((p * (spread * (x @ head.form).norm(dim=1) ** 2)[:, None]).sum(0).max())
    terms = math.sqrt(float(p.sum(0).max())) + float(spread.max()) * a + math.sqrt(third)
    return min(norm(head.value) * terms, ball(head, len(x), float(x.norm(dim=1).max())))


def nearby(head: Head, x: Tensor, r: float) -> float:
    """The local bound over the Frobenius ball of radius r around x."""
    a, big, p = norm(head.form), float(x.norm(dim=1).max()), head.weights(x)
    grown = math.exp(2 * a * (2 * big * r + r**2))
    root = torch.linalg.matrix_norm(covariances(p, x, x), 2).sqrt()
    spread = torch.minimum(grown * (root + r) ** 2, torch.tensor((big + r) ** 2, dtype=torch.float64))
    p = (grown * p).clamp_max(1.0)
    reach = (x @ head.form).norm(dim=1) + a * r
    terms = math.sqrt(float(p.sum(0).max())) + float(spread.max()) * a
    third = math.sqrt(float((p * (spread * reach**2)[:, None]).sum(0).max()))
    return min(norm(head.value) * (terms + third), ball(head, len(x), big + r))


@claims.add(
    "attention.heads",
    "attention",
    Verdict.HOLDS,
    "Several heads have constant at most ‖W_O‖·√(ΣL_h²).",
    "Attained by equal heads and an orthogonal W_O.",
)
def heads(draw: Draw) -> Iterator[Finding | Curve]:
    """Random heads with their true slopes; then one head, repeated."""
    x, d = tokens(draw)
    count = draw.integer(2, 4)
    several, out = [Head.drawn(draw, d) for _ in range(count)], draw.normal(d, count * d)

    def attend(t: Tensor, parts: list[Head], w: Tensor) -> Tensor:
        return torch.cat([head(t.reshape(x.shape)) for head in parts], -1) @ w.T

    found = norm(jacobian(lambda t: attend(t, several, out), x))
    yield below("‖J‖", found, predicted=heads_bound(out, [slope(head, x) for head in several]))
    alike = norm(jacobian(lambda t: attend(t, several[:1] * count, draw.orthogonal(count * d)), x))
    flat = torch.eye(count * d, dtype=torch.float64)
    yield equal("‖J‖ of equal heads", alike, predicted=heads_bound(flat, [slope(several[0], x)] * count))


def heads_bound(out: Tensor, slopes: list[float]) -> float:
    """‖W_O‖·√(ΣL_h²)."""
    return norm(out) * math.sqrt(sum(s**2 for s in slopes))


@claims.add(
    "attention.block",
    "attention",
    Verdict.HOLDS,
    "A pre-norm block has constant at most (1 + L_attn·max|γ₁|/σ₁)(1 + ‖W₂‖L_act‖W₁‖·max|γ₂|/σ₂).",
    "σ the smallest over tokens, at a point; both factors are attained when the branches align.",
)
def block(draw: Draw) -> Iterator[Finding | Curve]:
    """A random block's Jacobian; then one token, multiples of the identity and no ReLU, where all directions align."""
    n, d = draw.integer(2, 5), draw.integer(3, 5)
    x, eye = 2 * draw.normal(n, d), torch.eye(d, dtype=torch.float64)
    some = Block(
        Head.drawn(draw, d), draw.uniform(d, low=0.5, high=1.5), draw.uniform(d, low=0.5, high=1.5),
        draw.normal(2 * d, d), draw.normal(d, 2 * d), torch.relu,
    )  # fmt: skip
    yield below("‖J‖", norm(jacobian(lambda t: some(t.reshape(n, d)), x)), predicted=some.bound(x))
    a, b, c, e, f = (float(t) for t in draw.uniform(5, low=0.5, high=2.0))
    lone = Head(eye, eye, a * eye, 0 * eye[0], 0 * eye[0])
    aligned = Block(lone, b * torch.ones_like(eye[0]), c * torch.ones_like(eye[0]), e * eye, f * eye, torch.clone)
    exact = norm(jacobian(lambda t: aligned(t.reshape(1, d)), x[:1]))
    yield equal("‖J‖, all directions aligned", exact, predicted=aligned.bound(x[:1]))


@dataclass(frozen=True, slots=True)
class Block:
    """A pre-norm transformer block: attention, then a layer up and one down, each behind a LayerNorm and a skip."""

    head: Head
    first_gain: Tensor
    second_gain: Tensor
    up: Tensor
    down: Tensor
    activation: Callable[[Tensor], Tensor]

    def middle(self, x: Tensor) -> Tensor:
        """Behind the attention."""
        return x + self.head(F.layer_norm(x, x.shape[1:], self.first_gain))

    def __call__(self, x: Tensor) -> Tensor:
        """The output."""
        x = self.middle(x)
        return x + self.activation(F.layer_norm(x, x.shape[1:], self.second_gain) @ self.up.T) @ self.down.T

    def bound(self, x: Tensor) -> float:
        """(1 + L_attn·max|γ₁|/σ₁)(1 + ‖W₂‖‖W₁‖·max|γ₂|/σ₂) at tokens x."""
        attention = slope(self.head, F.layer_norm(x, x.shape[1:], self.first_gain))
        first = 1 + attention * steepest(x, self.first_gain)
        return first * (1 + norm(self.down) * norm(self.up) * steepest(self.middle(x), self.second_gain))


def steepest(x: Tensor, gain: Tensor) -> float:
    """max|γ|/σ_ε, σ the smallest over tokens."""
    return float(gain.max()) / math.sqrt(float(x.var(1, correction=0).min()) + 1e-5)

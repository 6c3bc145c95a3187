"""Checks: attention."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.generalization.bounds.cells import mean_walk, tau_chernoff, tau_published, tau_rademacher, tau_variation
from normgauge.ledger.claim import Found, below, equal, exceeds
from normgauge.ledger.draw import Draw, draw_counts, variation
from normgauge.ledger.jacobians import jacobian, norm


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


def qkv(draw: Draw) -> Found:
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


def at_a_point(draw: Draw) -> Found:
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


def in_a_ball(draw: Draw) -> Found:
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


def unbounded(draw: Draw) -> Found:
    one = torch.ones(1, 1, dtype=torch.float64)
    head = Head(one, one, one, 0 * one[0], 0 * one[0])
    radii = (1.0, 3.0, 10.0, 30.0, 100.0, float(draw.uniform(1, low=100.0, high=1000.0)))
    found = [slope(head, torch.tensor([[0.0], [r], [-r]], dtype=torch.float64)) for r in radii]
    yield equal("‖J‖ over R², R large", found[-1] / radii[-1] ** 2, predicted=2 / 3, rel=1e-3)
    yield exceeds("‖J‖ at the largest R, against that at R = 100", found[-1], published=found[-2], by=0.0)
    lines = (("‖J‖", tuple(found)), ("2R²/3", tuple(2 / 3 * r**2 for r in radii)))
    yield Curve("Attention on tokens (0, R, −R)", "R", "‖J‖", radii, lines, log_x=True, log_y=True)


def root_n(draw: Draw) -> Found:
    n = draw.integer(3, 20)
    head, x = _one_sink(n)
    yield equal("‖J‖", slope(head, x), predicted=math.sqrt(n), rel=1e-6)
    head, x = _one_sink(4 * n)
    yield equal("‖J‖ with four times the tokens", slope(head, x), predicted=2 * math.sqrt(n), rel=1e-6)


def biases(draw: Draw) -> Found:
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


def rotary(draw: Draw) -> Found:
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


def local(draw: Draw) -> Found:
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


def heads(draw: Draw) -> Found:
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


def block(draw: Draw) -> Found:
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


def steepest_activations(function: Callable[[Tensor], Tensor], low: float, high: float, points: int = 40_001) -> float:
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


def activations(draw: Draw) -> Found:
    for name, (function, constant) in ACTIVATIONS.items():
        edge = 40.0 if name == "softplus" else 10 + float(draw.uniform(1))
        found = steepest_activations(function, -edge, edge, 4001)
        yield equal(name, found, predicted=constant, rel=1e-3 if name in ("Hardswish", "ELU(2)", "SELU") else 2e-6)
    root = math.sqrt(2)
    exact = (1 + math.erf(1)) / 2 + root * math.exp(-1) / math.sqrt(2 * math.pi)
    yield equal("GELU, by its formula", steepest_activations(F.gelu, 1.0, 2.0, 4001), predicted=exact, rel=1e-7)


def clamp(draw: Draw) -> Found:
    n, x = draw.integer(2, 9), draw.normal(9)
    low, high = float(x[:n].min()) - 0.1, float(x[:n].median())
    yield equal("constant", norm(jacobian(lambda t: t.clamp(low, high + 0.05), x[:n])), predicted=1.0)
    yield equal(
        "constant where all is clamped", norm(jacobian(lambda t: t.clamp(50.0, 60.0), x[:n])), predicted=0.0, scale=1.0
    )
    yield below("largest value", float((100 * x).clamp(low, high).max()), predicted=high)


def on_a_range(draw: Draw) -> Found:
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
        yield equal(name, steepest_activations(function, a, b, 1001), predicted=constant)
    yield exceeds("√x at 10⁻¹², against that at 1", steepest_activations(torch.sqrt, 1e-12, 1.0, 11), published=1.0)


def jump(draw: Draw) -> Found:
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


def logits(draw: Draw) -> Tensor:
    """Random logits of random size and sharpness."""
    return draw.normal(draw.integer(2, 9)) * 10 ** draw.uniform(1, low=-1.0, high=1.0)


def pair(n: int, gap: float = 40.0) -> Tensor:
    """Two equal logits far above the others."""
    x = torch.full((n,), -gap, dtype=torch.float64)
    x[:2] = 0.0
    return x


def softmax(draw: Draw) -> Found:
    x = logits(draw)
    p = torch.softmax(x, 0)
    found = norm(jacobian(lambda t: torch.softmax(t, 0), x))
    yield below("constant, against ½", found, predicted=0.5)
    yield below("constant, against max p", found, predicted=float(p.max()))
    yield below("constant, against max 2p(1−p)", found, predicted=float((2 * p * (1 - p)).max()))
    n = draw.integer(2, 9)
    yield equal("at two equal logits", norm(jacobian(lambda t: torch.softmax(t, 0), pair(n))), predicted=0.5)


def log_softmax(draw: Draw) -> Found:
    x = logits(draw)
    n, p = len(x), torch.softmax(x, 0)
    found = norm(jacobian(lambda t: torch.log_softmax(t, 0), x))
    yield equal("log softmax", found, predicted=math.sqrt(n) * float(p.norm()))
    sharp = 60 * torch.eye(n, dtype=torch.float64)[0]
    yield equal(
        "the same, one p near 1", norm(jacobian(lambda t: torch.log_softmax(t, 0), sharp)), predicted=math.sqrt(n)
    )
    yield equal("logsumexp", norm(jacobian(lambda t: torch.logsumexp(t, 0), x)), predicted=float(p.norm()))


def glu(draw: Draw) -> Found:
    for low, high in ((0.1, 2.8), (2.9, 3.3), (4.0, 12.0)):
        size = float(draw.uniform(1, low=low, high=high))
        gates = torch.linspace(-20, 40, 6001, dtype=torch.float64)
        x = torch.cat([torch.full_like(gates, size), gates]).requires_grad_()
        (slopes,) = torch.autograd.grad(F.glu(x, 0).sum(), x)
        found = float(torch.hypot(*slopes.chunk(2)).max())
        s = (3 - math.sqrt(max(0.0, 1 - 8 / size**2))) / 4 if size**2 >= 8 else 1.0
        yield equal(
            f"constant, A = {size:.3g}", found, predicted=max(1.0, s * math.sqrt(1 + size**2 * (1 - s) ** 2)), rel=1e-5
        )


def slope_losses(loss: Tensor, x: Tensor) -> Tensor:
    """Norms of the gradients of many samples' losses, rows of x."""
    return torch.autograd.grad(loss.sum(), x)[0].norm(dim=1)


def crossentropy(draw: Draw) -> Found:
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
        yield below(f"{name}, 200 gradients", float(slope_losses(loss(drawn), drawn).max()), predicted=constant)
        yield equal(f"{name}, at its worst", float(slope_losses(loss(corner), corner)[0]), predicted=constant)
    one_hot = F.one_hot(torch.zeros(200).long(), n)
    apart = (one_hot - torch.softmax(x, 1)).abs().sum(1) - 2 * (1 - torch.softmax(x, 1)[:, 0])
    yield equal("‖onehot − softmax‖₁ − 2(1−p_y)", float(apart.abs().max()), predicted=0.0, scale=1.0)


def ramp(x: Tensor, theta: float) -> Tensor:
    """1 − margin/θ, cut to [0, 1], of class 0."""
    return (1 - (x[:, 0] - x[:, 1:].max(1).values) / theta).clamp(0, 1)


def sums(draw: Draw) -> Found:
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


DELTA = 0.1


def partition(draw: Draw) -> tuple[Tensor, int]:
    """Probabilities of a few cells, and a number of samples."""
    p = draw.uniform(draw.integer(3, 20), low=0.05) ** 2
    return p / p.sum(), draw.integer(50, 300)


def cells_rademacher(draw: Draw) -> Found:
    cells, m = draw.integer(2, 5), draw.integer(5, 11)
    where = torch.tensor([draw.integer(0, cells) for _ in range(m)])
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=m)), dtype=torch.float64)
    sums = torch.zeros(len(signs), cells, dtype=torch.float64).index_add_(1, where, signs)
    average = float(sums.clamp_min(0.0).sum(1).mean()) / m  # the best function is 1 where the sum is positive
    counts = torch.bincount(where, minlength=cells).tolist()
    first = tau_rademacher(counts, DELTA) - 3 * math.sqrt(math.log(2 / DELTA) / (2 * m))
    yield equal("twice the Rademacher average", 2 * average, predicted=first)
    k = draw.integer(1, 12)
    walks = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=k)), dtype=torch.float64).sum(1).abs()
    yield equal("E|S_k| over all signs", float(walks.mean()), predicted=mean_walk(k))
    yield below("E|S_k|, against √k", mean_walk(k), predicted=math.sqrt(k))
    yield equal(
        "E|S_k|/√k, k large", mean_walk(100_000) / math.sqrt(100_000), predicted=math.sqrt(2 / math.pi), rel=1e-4
    )
    p, size = partition(draw)
    drawn = draw_counts(draw, p, size, 300)
    limits = torch.tensor([tau_rademacher([int(c) for c in row], DELTA) for row in drawn.tolist()])
    yield below("share of draws that break it", float((variation(p, drawn) > limits).double().mean()), predicted=DELTA)


def cells_variation(draw: Draw) -> Found:
    p, m = partition(draw)
    drawn = draw_counts(draw, p, m, 300)
    gaps = variation(p, drawn)
    best = ((p - drawn / m).clamp_min(0.0)).sum(1)  # a = 1 where P has more than D
    yield equal("largest gap of a function of the cell", float(best[0]), predicted=float(gaps[0]))
    yield below("mean variation", float(gaps.mean()), predicted=math.sqrt((len(p) - 1) / m) / 2)
    large = 400
    even = torch.full((2,), 0.5, dtype=torch.float64)
    two = float(variation(even, draw_counts(draw, even, large, 6000)).mean())
    yield equal(
        "the same for two even cells, over the bound",
        two / (math.sqrt(1 / large) / 2),
        predicted=math.sqrt(2 / math.pi),
        rel=0.12,
    )
    limit = tau_variation(len(p), m, DELTA)
    yield below("share of draws that break it", float((gaps > limit).double().mean()), predicted=DELTA)
    yield equal(
        "slack at N = 1: Hoeffding's", tau_variation(1, m, DELTA), predicted=math.sqrt(math.log(1 / DELTA) / (2 * m))
    )


def cells_chernoff(draw: Draw) -> Found:
    p, m = partition(draw)
    drawn = draw_counts(draw, p, m, 300)
    rows = [[int(c) for c in row] for row in drawn.tolist()]
    limits = torch.tensor([tau_chernoff(row, len(p), DELTA) for row in rows])
    yield below("share of draws that break it", float((variation(p, drawn) > limits).double().mean()), predicted=DELTA)
    worst = max(
        float(t) - tau_published(sum(k > 0 for k in r), len(p), m, DELTA) for t, r in zip(limits, rows, strict=True)
    )
    yield below("slack minus g, largest", worst, predicted=0.0)
    cells, each = draw.integer(2, 30), draw.integer(2, 30)
    even = tau_chernoff([each] * cells, cells, DELTA)
    yield equal("slack for equal cells", even, predicted=math.sqrt(2 * math.log(cells / DELTA) / each))
    size = 10**12
    ratio = tau_published(cells, cells, cells * size, DELTA) / tau_chernoff([size] * cells, cells, DELTA)
    known = (1 + math.sqrt(1 / 2)) * math.sqrt(math.log(2 * cells / DELTA) / math.log(cells / DELTA))
    yield equal("g over it, m large", ratio, predicted=known, rel=1e-4)


def cells_distance(draw: Draw) -> Found:
    cells, m, trials = draw.integer(2, 8), draw.integer(60, 150), 60
    width = 1 / cells
    misses, gaps = 0, []
    for _ in range(trials):
        x = draw.uniform(m)
        cell = (x * cells).floor()
        inside = (x - cell * width) / width
        true = float((width * (inside**2 - inside + 0.5)).mean())  # E|U − s| for U uniform on the cell
        near = (cell[:, None] == cell[None]).double()
        others = near.sum(1) - 1
        sums = (near * (x[:, None] - x[None]).abs()).sum(1)
        pairs = torch.where(others > 0, sums / others.clamp_min(1), torch.full_like(sums, width))
        gaps.append(true - float(pairs.mean()))
        misses += gaps[-1] > 3 * width * math.sqrt(math.log(1 / DELTA) / (2 * m))
    yield below("share of draws that break it", misses / trials, predicted=DELTA)
    yield equal("mean difference, over R", sum(gaps) / trials / width, predicted=0.0, scale=1.0, rel=0.02)
    u, s = draw.uniform(200_000), float(draw.uniform(1))
    yield equal("E|U − s|, simulated", float((u - s).abs().mean()), predicted=s**2 - s + 0.5, rel=0.02)


def holdout(draw: Draw) -> Found:
    n, p = draw.integer(30, 300), float(draw.uniform(1, low=0.1, high=0.9))
    seen = (draw.uniform(500, n) < p).double().mean(1)
    slack = math.sqrt(math.log(1 / DELTA) / (2 * n))
    yield below("share of draws that break it", float((p > seen + slack).double().mean()), predicted=DELTA)
    yield equal(
        "slack for n = 10,000, δ = .01", math.sqrt(math.log(1 / 0.01) / (2 * 10_000)), predicted=0.0152, rel=3e-3
    )
    large = 1e14
    ratio = tau_published(1, 1, large, DELTA) / math.sqrt(math.log(1 / DELTA) / (2 * large))
    known = (2 + math.sqrt(2)) * math.sqrt(math.log(2 / DELTA) / math.log(1 / DELTA))
    yield equal("g with one cell over it, n large", ratio, predicted=known, rel=1e-4)

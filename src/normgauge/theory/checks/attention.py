"""Checks: attention, activations, losses, cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.certificates.bounds.cells import mean_walk, tau_chernoff, tau_published, tau_rademacher, tau_variation
from normgauge.instrument.records import LOSSES
from normgauge.theory.checks.layers import no_bound, ruled
from normgauge.theory.claim import Found, below, equals
from normgauge.theory.draw import DELTA, Draw, draw_counts, variation
from normgauge.theory.jacobians import jacobian_slope, spectral_norm
from normgauge.theory.nets import Map, eye, ones


@dataclass(frozen=True, slots=True)
class Head:
    """One attention head: W_Q, W_K, W_V, biases of queries and keys, rotations of the positions."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_bias: Tensor
    key_bias: Tensor
    causal: bool = False
    turns: Tensor | None = None

    @classmethod
    def drawn(cls, draw: Draw, d: int, bias: float = 0.0) -> Head:
        """A head with random weights."""
        query, key, value = (draw.normal(d, d) / math.sqrt(d) for _ in range(3))
        return cls(query, key, value, bias * draw.normal(d), bias * draw.normal(d))

    @property
    def form(self) -> Tensor:
        """A = W_QᵀW_K/√d: the logits are x_i·A x_j without biases."""
        return self.query.T @ self.key / math.sqrt(len(self.query))

    @property
    def pull(self) -> Tensor:
        """W_Kᵀb_Q/√d: what the query bias adds to Aᵀx."""
        return self.key.T @ self.query_bias / math.sqrt(len(self.query))

    def weights(self, x: Tensor) -> Tensor:
        """P, one row a token."""
        q, k = x @ self.query.T + self.query_bias, x @ self.key.T + self.key_bias
        if self.turns is not None:
            q, k = (torch.einsum("nij,nj->ni", self.turns, rows) for rows in (q, k))
        logits = q @ k.T / math.sqrt(len(self.query))
        if self.causal:
            logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -math.inf)
        return torch.softmax(logits, -1)

    def __call__(self, x: Tensor) -> Tensor:
        """The output, one row a token."""
        return self.weights(x) @ x @ self.value.T


def spreads(p: Tensor, x: Tensor) -> Tensor:
    """Covariances of the rows of x under every row of p, (tokens, d, d)."""
    apart = x - (p @ x)[:, None]
    return torch.einsum("ij,ija,ijb->iab", p, apart, apart)


def pointwise(head: Head, x: Tensor) -> float:
    """‖W_V‖(√(max column sum of P) + max‖C_iAᵀ‖ + √(max_j Σ_i P_ij λmax(C_i)‖Aᵀx_i‖²))."""
    p = head.weights(x)
    c, reach = spreads(p, x), (x @ head.form + head.pull).norm(dim=1)
    second = float(torch.linalg.matrix_norm(c @ head.form.T, 2).max())
    third = math.sqrt(float((p * (torch.linalg.matrix_norm(c, 2) * reach**2)[:, None]).sum(0).max()))
    return spectral_norm(head.value) * (math.sqrt(float(p.sum(0).max())) + second + third)


def ball(head: Head, tokens: int, radius: float) -> float:
    """‖W_V‖(√N(1 + R(Ra + b)) + R²a) for tokens no longer than R."""
    a, b = spectral_norm(head.form), float(head.pull.norm())
    return spectral_norm(head.value) * (math.sqrt(tokens) * (1 + radius * (radius * a + b)) + radius**2 * a)


def longest(x: Tensor) -> float:
    return float(x.norm(dim=1).max())


def tokens(draw: Draw) -> tuple[Tensor, int]:
    """Layer-normalized tokens and their width."""
    n, d = draw.integer(3, 7), draw.integer(3, 5)
    return F.layer_norm(draw.normal(n, d), (d,)), d


def qkv(draw: Draw) -> Found:
    n, m, d, (s,) = draw.integer(2, 6), draw.integer(2, 6), draw.integer(2, 4), draw.numbers(1, 0.3, 2.0)
    q, k, v, one, two = draw.normal(n, d), draw.normal(m, d), draw.normal(m, d), draw.normal(1, d), draw.normal(2, d)
    attend = partial(F.scaled_dot_product_attention, scale=s)
    yield ruled("in v", lambda t: attend(q[None], k[None], t), v, "point", exact=False)
    yield ruled("in v, all attention even", lambda t: attend(0 * q[None], k[None], t), v, "point")
    yield ruled("in q", lambda t: attend(t, k[None], v[None]), q, "point")
    yield ruled("in k", lambda t: attend(q[None], t, v[None]), k, "point", exact=False)
    yield ruled("in k, even weights on two", lambda t: attend(one[None], t, two[None]), one.expand(2, d), "point")
    moved = q + 0.1 * draw.orthogonal(d)[:1] / math.sqrt(n)
    yield ruled("in all, near q", lambda t: attend(t, t, t), q, "ball:0.1", exact=False, at=[q, moved])
    yield no_bound("in all, on unbounded tokens", lambda t: attend(t, t, t), q)


def _one_sink(n: int) -> tuple[Head, Tensor]:
    """All of n tokens attend to the first."""
    return Head(80 * eye(1), eye(1), eye(1), 0 * ones(1), 0 * ones(1)), torch.cat([2 * ones(1, 1), ones(n - 1, 1)])


def one_head(draw: Draw) -> Found:
    x, d = tokens(draw)
    head, n, r, shift = Head.drawn(draw, d, bias=1.0), len(x), longest(x), draw.normal(d)
    found, bound, plain = jacobian_slope(head, x), ball(head, n, r), replace(head, query_bias=0 * shift)
    yield below("‖J‖, against the pointwise bound", found, predicted=pointwise(head, x))
    causal, sink = replace(head, causal=True), _one_sink(n)
    yield below("‖J‖, causal", jacobian_slope(causal, x), predicted=pointwise(causal, x))
    yield equals("‖J‖, all attention on one token", jacobian_slope(*sink), predicted=pointwise(*sink), rel=1e-3)
    yield below("pointwise bound, against the ball's", pointwise(head, x), predicted=bound)
    yield equals("R of normalized tokens", longest(F.layer_norm(1e3 * x, (d,))), predicted=math.sqrt(d), rel=1e-6)
    terms = math.sqrt(n), r**2 * spectral_norm(head.form), math.sqrt(n * r**2 * (r * spectral_norm(head.form)) ** 2)
    yield equals(
        "each term at its largest, no bias", spectral_norm(head.value) * sum(terms), predicted=ball(plain, n, r)
    )
    added = spectral_norm(head.value) * math.sqrt(n) * r * float((head.key.T @ head.query_bias).norm()) / math.sqrt(d)
    yield equals("what the query bias adds", bound - ball(plain, n, r), predicted=added)
    yield equals("‖J‖ without the key bias", jacobian_slope(replace(head, key_bias=0 * shift), x), predicted=found)
    yield equals("‖J‖ with a value bias", jacobian_slope(lambda t: head(t) + shift, x), predicted=found)


def growth(draw: Draw) -> Found:
    n, head, (r,) = draw.integer(3, 20), replace(_one_sink(1)[0], query=eye(1)), draw.numbers(1, 100.0, 1000.0)
    for size in (r, 10 * r):
        found = jacobian_slope(head, torch.tensor([[0.0], [size], [-size]], dtype=torch.float64))
        yield equals(f"‖J‖ over R², R = {size:.3g}", found / size**2, predicted=2 / 3, rel=1e-3)
    yield equals("‖J‖, all attend to one", jacobian_slope(*_one_sink(n)), predicted=math.sqrt(n), rel=1e-6)
    yield equals("‖J‖, four times the tokens", jacobian_slope(*_one_sink(4 * n)), predicted=2 * math.sqrt(n), rel=1e-6)


def rotations(n: int, d: int) -> Tensor:
    """Rotary embeddings of n positions, (n, d, d)."""
    turns = torch.arange(n)[:, None] * 10_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    pairs = torch.stack([turns.cos(), -turns.sin(), turns.sin(), turns.cos()], -1).reshape(n, d // 2, 2, 2)
    return torch.stack([torch.block_diag(*blocks) for blocks in pairs])


def rotary(draw: Draw) -> Found:
    n, d = draw.integer(3, 6), 2 * draw.integer(1, 3)
    x, head, turns = F.layer_norm(draw.normal(n, d), (d,)), Head.drawn(draw, d, bias=1.0), rotations(n, d)
    r, wq, wk = longest(x), spectral_norm(head.query), spectral_norm(head.key)
    bq, bk = float(head.query_bias.norm()), float(head.key_bias.norm())
    to_key, to_query = (r * w * (u * r + c) / math.sqrt(d) for w, u, c in ((wk, wq, bq), (wq, wk, bk)))
    bound = spectral_norm(head.value) * (math.sqrt(n) * (1 + to_key) + to_query)
    yield below("‖J‖", jacobian_slope(replace(head, turns=turns), x), predicted=bound)
    yield below("the plain ball bound, against this form", ball(head, n, r), predicted=bound)
    query = head.query @ x[-1]
    yield equals("length of a rotated query", (turns[-1] @ query).norm(), predicted=query.norm())


def local(draw: Draw) -> Found:
    x, d = tokens(draw)
    head = Head.drawn(draw, d)
    for r in (0.0, 0.01, 0.1, 1.0):
        found = max(jacobian_slope(head, x + r * step / step.norm()) for step in draw.normal(3, *x.shape))
        yield below(f"‖J‖ within r = {r}", found, predicted=nearby(head, x, r))
    p, a = head.weights(x), spectral_norm(head.form)
    spread = torch.linalg.matrix_norm(spreads(p, x), 2)
    third = (p * (spread * (x @ head.form).norm(dim=1) ** 2)[:, None]).sum(0).max().sqrt()
    known = min(
        spectral_norm(head.value) * float(p.sum(0).max().sqrt() + spread.max() * a + third),
        ball(head, len(x), longest(x)),
    )
    yield equals("bound at r = 0: the pointwise one, ‖CAᵀ‖ ≤ λ·a", nearby(head, x, 0.0), predicted=known)
    (r, c), token = draw.numbers(2, 0.1, 2.0), x[0]
    further = token * (1 + r / token.norm())
    change = c * (2 * float(token.norm()) * r + r**2)
    yield equals("change of a logit, A = c·I", c * (further @ further - token @ token), predicted=change)


def nearby(head: Head, x: Tensor, r: float) -> float:
    """The local bound over the Frobenius ball of radius r around x."""
    a, big, p = spectral_norm(head.form), longest(x), head.weights(x)
    grown = math.exp(2 * a * (2 * big * r + r**2))
    root = torch.linalg.matrix_norm(spreads(p, x), 2).sqrt()
    spread = (grown * (root + r) ** 2).clamp_max((big + r) ** 2)
    p = (grown * p).clamp_max(1.0)
    third = (p * (spread * ((x @ head.form).norm(dim=1) + a * r) ** 2)[:, None]).sum(0).max().sqrt()
    return min(
        spectral_norm(head.value) * float(p.sum(0).max().sqrt() + spread.max() * a + third), ball(head, len(x), big + r)
    )


def heads(draw: Draw) -> Found:
    (x, d), count = tokens(draw), draw.integer(2, 4)
    several, out = [Head.drawn(draw, d) for _ in range(count)], draw.normal(d, count * d)
    found = jacobian_slope(lambda t: torch.cat([head(t) for head in several], -1) @ out.T, x)
    yield below(
        "‖J‖", found, predicted=spectral_norm(out) * math.sqrt(sum(jacobian_slope(head, x) ** 2 for head in several))
    )
    one, turn = several[0], draw.orthogonal(count * d)
    alike = jacobian_slope(lambda t: one(t).repeat(1, count) @ turn.T, x)
    yield equals(
        "‖J‖ of equal heads", alike, predicted=spectral_norm(turn) * math.sqrt(count * jacobian_slope(one, x) ** 2)
    )


def steepness(x: Tensor, gain: Tensor) -> float:
    """max|γ|/σ_ε, σ the smallest over tokens."""
    return float(gain.max()) / math.sqrt(float(x.var(1, correction=0).min()) + 1e-5)


@dataclass(frozen=True, slots=True)
class Block:
    """A pre-norm transformer block: attention, then a layer up and one down, each behind a LayerNorm and a skip."""

    head: Head
    gains: Tensor
    up: Tensor
    down: Tensor
    activation: Map = torch.relu

    def middle(self, x: Tensor) -> Tensor:
        """The tokens behind the attention."""
        return x + self.head(F.layer_norm(x, x.shape[1:], self.gains[0]))

    def __call__(self, x: Tensor) -> Tensor:
        """The output."""
        x = self.middle(x)
        return x + self.activation(F.layer_norm(x, x.shape[1:], self.gains[1]) @ self.up.T) @ self.down.T


def block_bound(block: Block, x: Tensor) -> float:
    """(1 + L_attn·max|γ₁|/σ₁)(1 + ‖W₂‖‖W₁‖·max|γ₂|/σ₂) at tokens x."""
    first = jacobian_slope(block.head, F.layer_norm(x, x.shape[1:], block.gains[0])) * steepness(x, block.gains[0])
    second = spectral_norm(block.down) * spectral_norm(block.up) * steepness(block.middle(x), block.gains[1])
    return (1 + first) * (1 + second)


def block(draw: Draw) -> Found:
    n, d, (a, b, c, e, f) = draw.integer(2, 5), draw.integer(3, 5), draw.numbers(5, 0.5, 2.0)
    x, gains, head = 2 * draw.normal(n, d), draw.uniform(2, d, low=0.5, high=1.5), Head.drawn(draw, d)
    some = Block(head, gains, draw.normal(2 * d, d), draw.normal(d, 2 * d))
    yield below("‖J‖", jacobian_slope(some, x), predicted=block_bound(some, x))
    lone, even = replace(head, value=a * eye(d)), torch.stack([b * ones(d), c * ones(d)])
    aligned = Block(lone, even, e * eye(d), f * eye(d), torch.clone)
    yield equals("‖J‖, all directions aligned", jacobian_slope(aligned, x[:1]), predicted=block_bound(aligned, x[:1]))


def steep_point(function: Map, low: float, high: float, points: int = 4001) -> Tensor:
    """Where |f′| is largest on a fine grid, drawn closer around the best point twice."""
    for _ in range(3):
        x = torch.linspace(low, high, points, dtype=torch.float64).requires_grad_()
        (slopes,) = torch.autograd.grad(function(x).sum(), x)
        at, width = float(x.detach()[slopes.abs().argmax()]), (high - low) / (points - 1)
        low, high = max(low, at - width), min(high, at + width)
    return torch.tensor([at], dtype=torch.float64)


def activations(draw: Draw) -> Found:
    (a, b), root = draw.numbers(2), math.sqrt(2 / math.pi)
    table: dict[str, Map] = {
        "ReLU": torch.relu, f"LeakyReLU({a:.3g})": partial(F.leaky_relu, negative_slope=a), "SELU": F.selu,
        f"ELU({b:.3g})": partial(F.elu, alpha=b), "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": F.softplus,
        "GELU": F.gelu, "GELU, tanh": partial(F.gelu, approximate="tanh"), "SiLU": F.silu, "Mish": F.mish,
        "Hardswish": F.hardswish, "Hardsigmoid": F.hardsigmoid,
        "GELU, written out": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "GELU, tanh, written out": lambda x: 0.5 * x * (1 + torch.tanh(root * (x + 0.044715 * x**3))),
        f"x·sigmoid({a:.3g}x)": lambda x: x * torch.sigmoid(a * x),
        "Mish, written out": lambda x: x * torch.tanh(F.softplus(x)),
    }  # fmt: skip
    for name, function in table.items():
        yield ruled(name, function, steep_point(function, -15.0, 15.0), rel=2e-6)


def on_a_range(draw: Draw) -> Found:
    (a,), (gap,), p = draw.numbers(1, 0.05, 1.0), draw.numbers(1, 0.5, 2.0), draw.integer(2, 5)
    low, high = torch.tensor([[a], [a + gap]], dtype=torch.float64)
    table: tuple[tuple[str, Map, Tensor], ...] = (
        ("exp", torch.exp, high), (f"x^{p}", lambda x: x**p, high), ("log", torch.log, low), ("√x", torch.sqrt, low),
        ("1/√x", torch.rsqrt, low), ("1/x", torch.reciprocal, low), ("log(1+x)", torch.log1p, low),
    )  # fmt: skip
    for name, function, steep in table:
        yield ruled(name, function, (low + high) / 2, f"ball:{gap / 2}", at=[steep])
    yield no_bound("exp, everywhere", torch.exp, low)
    yield no_bound("√x, everywhere", torch.sqrt, low)


def jump(draw: Draw) -> Found:
    gap, table = 10 ** -draw.number(6.0, 9.0), draw.normal(2, 3)
    cases: tuple[tuple[str, Map, float, float], ...] = (
        ("round", torch.round, 0.5, 1.0), ("sign", torch.sign, 0.0, 2.0), ("Hardshrink(0.5)", F.hardshrink, 0.5, 0.5),
    )  # fmt: skip
    for name, function, at, height in cases:
        ends = torch.tensor([at - gap / 2, at + gap / 2], dtype=torch.float64)
        slope = float(function(ends).diff().abs() / ends.diff())
        yield equals(f"secant of {name}, times its length", slope * gap, predicted=height, rel=1e-5)
        yield no_bound(name, function, ends[:1], "ball:0.1")
    ends = torch.tensor([[0.0, gap], [gap, 0.0]], dtype=torch.float64)
    rows = F.embedding(ends.argmax(1), table).diff(dim=0)
    yield equals("jump of a looked-up row", rows.norm(), predicted=table.diff(dim=0).norm())
    yield no_bound("a looked-up row", lambda t: F.embedding(t.argmax(1), table), ends[0])


def softmax(draw: Draw) -> Found:
    x = draw.normal(draw.integer(2, 9)) * 10 ** draw.uniform(1, low=-1.0, high=1.0)
    run, log, total = (partial(f, dim=1) for f in (torch.softmax, torch.log_softmax, torch.logsumexp))
    sharp, even = 60 * eye(len(x))[0], 40 * eye(len(x))[:2].sum(0)
    yield ruled("at a point", run, x, "point", exact=False)
    yield ruled("everywhere, at two equal logits", run, x, at=[even])
    yield ruled("at a point, two equal logits", run, even, "point")
    yield ruled("log softmax", log, x, "point")
    yield ruled("log softmax everywhere, one p near 1", log, x, at=[sharp])
    yield ruled("logsumexp", total, x, exact=False)
    yield ruled("logsumexp, one p near 1", total, x, at=[sharp])


def glu(draw: Draw) -> Found:
    (small,), (large,) = draw.numbers(1, 0.1, 2.8), draw.numbers(1, 4.0, 12.0)
    s, points = (3 - math.sqrt(1 - 8 / large**2)) / 4, small * draw.uniform(20, 2, low=-1.0)
    top = torch.tensor([large - 1e-12, math.log(s / (1 - s))], dtype=torch.float64)
    yield ruled("A small", lambda t: F.glu(t.clamp(-small, small), 1), points[0], exact=False, at=points)
    yield ruled("A large, where it is steepest", lambda t: F.glu(t.clamp(-large, large), 1), points[0], at=[top])
    yield no_bound("of anything", lambda t: F.glu(t, 1), points[0])


def losses(draw: Draw) -> Found:
    n, (theta, delta) = draw.integer(2, 9), draw.numbers(2, 0.3, 3.0)
    x, y = draw.normal(20, n) * 10 ** draw.uniform(20, 1, low=-1.0, high=1.0), draw.uniform(n).round()
    near, far = torch.cat([torch.tensor([theta / 2, 0.0]), -5 * ones(n - 2)]), 100 * (1 - 2 * y)  # far: all wrong
    p, known = torch.softmax(x[0], 0), {name: constant(n) for name, constant in LOSSES.items()}
    crossed = partial(F.binary_cross_entropy_with_logits, target=y)
    table: tuple[tuple[str, Map, Tensor, float], ...] = (
        ("cross-entropy", lambda t: F.cross_entropy(t, torch.tensor(0)), 60 * eye(n)[1], known["cross_entropy"]),
        ("softmax ℓ1", lambda t: (eye(n)[0] - t.softmax(0)).abs().sum(), 40 * eye(n)[:2].sum(0), known["softmax_l1"]),
        ("ramp", lambda t: (1 - (t[0] - t[1:].max()) / theta).clamp(0, 1), near, math.sqrt(2) / theta),
        ("ℓ1", lambda t: (t - y).abs().sum(), far, known["l1_sum"]),
        ("binary cross-entropy", partial(crossed, reduction="sum"), far, known["bce_with_logits_sum"]),
        ("binary cross-entropy, mean", crossed, far, known["bce_with_logits_mean"]),
        ("Huber", lambda t: F.huber_loss(t, y, "sum", delta), far, delta * known["huber_sum_delta_1"]),
    )
    for name, loss, worst, constant in table:
        yield below(f"{name}, 20 gradients", max(jacobian_slope(loss, row) for row in x), predicted=constant)
        yield equals(f"{name}, at its worst", jacobian_slope(loss, worst), predicted=constant)
    yield equals("square", jacobian_slope(lambda t: (t - y).square().sum(), x[0]), predicted=2 * (x[0] - y).norm())
    yield equals("‖onehot − softmax‖₁", (eye(n)[0] - p).abs().sum(), predicted=2 * (1 - p[0]), scale=1.0)


def partition(draw: Draw) -> tuple[Tensor, int]:
    """Probabilities of a few cells, and a number of samples."""
    p = draw.uniform(draw.integer(3, 20), low=0.05) ** 2
    return p / p.sum(), draw.integer(50, 300)


def broken(p: Tensor, counts: Tensor, limit: Callable[[list[int]], float]) -> float:
    """The share of draws in which the variation exceeds the slack that their counts give."""
    limits = torch.tensor([limit([int(c) for c in row]) for row in counts.tolist()])
    return float((variation(p, counts) > limits).double().mean())


def cells_rademacher(draw: Draw) -> Found:
    cells, m, many = draw.integer(2, 5), draw.integer(3, 12), 100_000
    where = torch.tensor([draw.integer(0, cells) for _ in range(m)])
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=m)), dtype=torch.float64)
    sums = torch.zeros(2**m, cells, dtype=torch.float64).index_add_(1, where, signs)
    average = float(sums.clamp_min(0.0).sum(1).mean()) / m  # the best function is 1 where the sum is positive
    counts = torch.bincount(where, minlength=cells).tolist()
    first = tau_rademacher(counts, DELTA) - 3 * math.sqrt(math.log(2 / DELTA) / (2 * m))
    yield equals("twice the Rademacher average", 2 * average, predicted=first)
    yield equals("E|S_k| over all signs", signs.sum(1).abs().mean(), predicted=mean_walk(m))
    yield below("E|S_k|, against √k", mean_walk(m), predicted=math.sqrt(m))
    yield equals("E|S_k|/√k, k large", mean_walk(many) / math.sqrt(many), predicted=math.sqrt(2 / math.pi), rel=1e-4)
    p, size = partition(draw)
    drawn = draw_counts(draw, p, size, 300)
    yield below("share of draws that break it", broken(p, drawn, lambda c: tau_rademacher(c, DELTA)), predicted=DELTA)


def cells_variation(draw: Draw) -> Found:
    (p, m), even, large = partition(draw), 0.5 * ones(2), 400
    drawn = draw_counts(draw, p, m, 300)
    gaps = variation(p, drawn)
    best = ((p - drawn / m).clamp_min(0.0)).sum(1)  # a = 1 where P has more than D
    yield equals("largest gap of a function of the cell", best[0], predicted=gaps[0])
    yield below("mean variation", gaps.mean(), predicted=math.sqrt((len(p) - 1) / m) / 2)
    two = float(variation(even, draw_counts(draw, even, large, 6000)).mean()) / (math.sqrt(1 / large) / 2)
    yield equals("two even cells, over the bound", two, predicted=math.sqrt(2 / math.pi), rel=0.12)
    found = (gaps > tau_variation(len(p), m, DELTA)).double().mean()
    yield below("share of draws that break it", found, predicted=DELTA)
    yield equals("slack at N = 1", tau_variation(1, m, DELTA), predicted=math.sqrt(math.log(1 / DELTA) / (2 * m)))


def cells_chernoff(draw: Draw) -> Found:
    (p, m), cells, each, size = partition(draw), draw.integer(2, 30), draw.integer(2, 30), 10**12
    drawn = draw_counts(draw, p, m, 300)
    found = broken(p, drawn, lambda c: tau_chernoff(c, len(p), DELTA))
    yield below("share of draws that break it", found, predicted=DELTA)
    rows = [[int(c) for c in row] for row in drawn.tolist()]
    gaps = (tau_chernoff(r, len(p), DELTA) - tau_published(sum(k > 0 for k in r), len(p), m, DELTA) for r in rows)
    yield below("slack minus g, largest", max(gaps), predicted=0.0)
    even = tau_chernoff([each] * cells, cells, DELTA)
    yield equals("slack for equal cells", even, predicted=math.sqrt(2 * math.log(cells / DELTA) / each))
    ratio = tau_published(cells, cells, cells * size, DELTA) / tau_chernoff([size] * cells, cells, DELTA)
    known = (1 + math.sqrt(1 / 2)) * math.sqrt(math.log(2 * cells / DELTA) / math.log(cells / DELTA))
    yield equals("g over it, m large", ratio, predicted=known, rel=1e-4)


def cells_distance(draw: Draw) -> Found:
    cells, m, gaps = draw.integer(2, 8), draw.integer(60, 150), []
    for _ in range(60):
        x = cells * draw.uniform(m)  # cells of width 1
        cell, inside = x.floor(), x - x.floor()
        near = (cell[:, None] == cell[None]).double()
        others, sums = near.sum(1) - 1, (near * (x[:, None] - x[None]).abs()).sum(1)
        pairs = torch.where(others > 0, sums / others.clamp_min(1), 1.0)
        gaps.append(float((inside**2 - inside + 0.5 - pairs).mean()))  # E|U − s| for U uniform on the cell
    limit = 3 * math.sqrt(math.log(1 / DELTA) / (2 * m))
    yield equals("mean difference, over R", sum(gaps) / len(gaps), predicted=0.0, scale=1.0, rel=0.02)
    yield below("share of draws that break it", sum(gap > limit for gap in gaps) / len(gaps), predicted=DELTA)
    u, s = draw.uniform(200_000), draw.number()
    yield equals("E|U − s|, simulated", (u - s).abs().mean(), predicted=s**2 - s + 0.5, rel=0.02)


def holdout(draw: Draw) -> Found:
    n, p, large = draw.integer(30, 300), draw.number(0.1, 0.9), 1e14
    seen = (draw.uniform(500, n) < p).double().mean(1)
    slack = math.sqrt(math.log(1 / DELTA) / (2 * n))
    yield below("share of draws that break it", (p > seen + slack).double().mean(), predicted=DELTA)
    yield equals("slack, n = 10,000, δ = .01", math.sqrt(math.log(1 / 0.01) / 20_000), predicted=0.0152, rel=3e-3)
    ratio = tau_published(1, 1, large, DELTA) / math.sqrt(math.log(1 / DELTA) / (2 * large))
    known = (2 + math.sqrt(2)) * math.sqrt(math.log(2 / DELTA) / math.log(1 / DELTA))
    yield equals("g with one cell over it, n large", ratio, predicted=known, rel=1e-4)

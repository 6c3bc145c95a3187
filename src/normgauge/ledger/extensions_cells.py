"""Our own claims on generalization: sharper slacks for Theorem 20, mean distances from D alone, a held-out set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.generalization.bounds.cells import mean_walk, tau_chernoff, tau_published, tau_rademacher, tau_variation
from normgauge.ledger.cells import draw_counts, variation
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw

claims = Family("X", "normgauge")
DELTA = 0.1


def partition(draw: Draw) -> tuple[Tensor, int]:
    """Probabilities of a few cells, and a number of samples."""
    p = draw.uniform(draw.integer(3, 20), low=0.05) ** 2
    return p / p.sum(), draw.integer(50, 300)


@claims.add(
    "cells.rademacher",
    "Theorem 20, sharpened",
    Verdict.HOLDS,
    "The slack may be (1/m)ΣE|S_{m_i}| + 3√(ln(2/δ)/(2m)), free of the number of cells; E|S_k| ≤ √k.",
    "The first term is twice the empirical Rademacher average of all functions of the cell with values in [0, 1].",
)
def cells_rademacher(draw: Draw) -> Iterator[Finding | Curve]:
    """All signs of a small sample: the average itself; then coverage."""
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


@claims.add(
    "cells.variation",
    "Theorem 20, sharpened",
    Verdict.HOLDS,
    "The slack may be ½√((N−1)/m) + √(ln(1/δ)/(2m)).",
    "The gap of any function of the cell is at most the total variation of P and D on the cells, and that is small.",
)
def cells_variation(draw: Draw) -> Iterator[Finding | Curve]:
    """The worst function of the cell is an indicator; the mean variation, exactly for two cells; coverage."""
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


@claims.add(
    "cells.chernoff",
    "Theorem 20, sharpened",
    Verdict.HOLDS,
    "The slack may be Σ√(2m_i ln(N/δ))/m, which is always below g.",
    "At most √(2|T|ln(N/δ)/m), with equality for equal cells; g has (√2+1), 2N and a second term.",
)
def cells_chernoff(draw: Draw) -> Iterator[Finding | Curve]:
    """Random and equal cells; coverage."""
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


@claims.add(
    "cells.distance",
    "Theorem 20, λ from D alone",
    Verdict.HOLDS,
    "Λ = Σ(m_i/m)λ_i is at most its mean over pairs of D in one cell plus 3R√(ln(1/δ)/(2m)), R the largest diameter.",
    "Swapping one sample changes the difference by 3R/m at most (McDiarmid); singletons count with R.",
)
def cells_distance(draw: Draw) -> Iterator[Finding | Curve]:
    """Uniform points in cells of a line, where Λ is known in closed form; coverage and closeness."""
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


@claims.add(
    "holdout",
    "the bound to print beside all others",
    Verdict.HOLDS,
    "With n unseen samples F(P) ≤ F(V) + C√(ln(1/δ)/(2n)).",
    "Hoeffding; .0152 C for n = 10,000, δ = .01: below every row that needs no held-out set.",
)
def holdout(draw: Draw) -> Iterator[Finding | Curve]:
    """Coverage; its size; and Theorem 20's slack with one cell beside it."""
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

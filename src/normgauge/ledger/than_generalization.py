"""Claims of Than 2025 on generalization: Theorem 20, Corollaries 21 and 22 and the bounds it compares with."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.generalization.bounds.cells import tau_chernoff, tau_published, tau_rademacher, tau_variation
from normgauge.ledger.cells import draw_counts, variation
from normgauge.ledger.claim import Family, below, equal, exceeds
from normgauge.ledger.draw import Draw

claims = Family("T", "Than 2025")
DELTA = 0.1


@claims.add(
    "T20.13",
    "Theorem 20, (13)",
    Verdict.LOOSE,
    "F(P) ≤ F(D) + Σ(m_i/m)λ_iL_i + g, g = C(√2+1)√(|T|ln(2N/δ)/m) + 2C|T|ln(2N/δ)/m, with probability 1−δ.",
    "True, for all models at once; g may be ½√((N−1)/m) + √(ln(1/δ)/2m) or Σ E|S_{m_i}|/m + 3√(ln(2/δ)/2m), 4 to 43 "
    "times smaller. Needs cells fixed before D, one label a cell, a true sup C, λ and L certified over the cell.",
)
def t20(draw: Draw) -> Iterator[Finding | Curve]:
    """Coverage by simulation against the worst model chosen after D; the printed table; the factor."""
    n, m, trials = draw.integer(3, 25), draw.integer(60, 300), 300
    p = draw.uniform(n, low=0.1) ** 2
    p = p / p.sum()
    counts = draw_counts(draw, p, m, trials)
    gaps = variation(p, counts)
    rows = [[int(k) for k in row] for row in counts.tolist()]
    printed = torch.tensor([tau_published(sum(k > 0 for k in row), n, m, DELTA) for row in rows])
    sharper = torch.tensor([tau_rademacher(row, DELTA) for row in rows])
    misses = [float((gaps > tau).double().mean()) for tau in (printed, sharper, tau_variation(n, m, DELTA))]
    yield below("share of draws that break g", misses[0], predicted=DELTA)
    yield below("share that break the Rademacher form", misses[1], predicted=DELTA)
    yield below("share that break the total-variation form", misses[2], predicted=DELTA)
    worst = max(tau_chernoff(row, n, DELTA) - float(tau) for row, tau in zip(rows, printed, strict=True))
    yield below("Chernoff's form minus g, largest", worst, predicted=0.0)
    for cells, values in ((100, (0.379, 0.0575, 0.0290)), (10_000, (9.92, 0.397, 0.230))):
        even = [50_000 // cells] * cells
        taus = (
            tau_published(cells, cells, 50_000, 0.01),
            tau_rademacher(even, 0.01),
            tau_variation(cells, 50_000, 0.01),
        )
        for name, found, known in zip(("g", "Rademacher", "total variation"), taus, values, strict=True):
            yield equal(f"{name} for {cells} cells, m = 50,000, δ = .01", found, predicted=known, rel=2e-3)
    yield _slacks()


def _slacks() -> Curve:
    cells = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    m, delta = 50_000, 0.01
    return Curve(
        "Slack for a loss in [0, 1], m = 50,000, δ = .01, all cells met",
        "cells",
        "slack",
        cells,
        (
            ("as printed", tuple(tau_published(n, n, m, delta) for n in cells)),
            ("Rademacher", tuple(tau_rademacher([m // n] * n, delta) for n in cells)),
            ("total variation", tuple(tau_variation(n, m, delta) for n in cells)),
        ),
        log_x=True,
        log_y=True,
    )


@claims.add(
    "T20.66",
    "Theorem 20's proof, (66)",
    Verdict.HOLDS,
    "The same with the mean change of the loss inside each cell, ε_i, in the place of λ_iL_i.",
    "True but circular: with no training error the ε-term is the test error itself, weighted by m_i/m.",
)
def t20_direct(draw: Draw) -> Iterator[Finding | Curve]:
    """A table of points in cells and a model that is right where D is and nowhere else."""
    n, points, m = draw.integer(3, 8), draw.integer(20, 60), draw.integer(30, 80)
    p = draw.uniform(n, points, low=0.1)
    p = p / p.sum()
    inside = p / p.sum(1, keepdim=True)
    picks = torch.multinomial(p.flatten(), m, replacement=True, generator=draw.generator)
    loss = torch.ones(n * points, dtype=torch.float64)
    loss[picks] = 0.0
    loss = loss.reshape(n, points)
    cell, point = picks // points, picks % points
    term = sum(
        float((inside[i] * (loss[i] - loss[i, j]).abs()).sum()) / m
        for i, j in zip(cell.tolist(), point.tolist(), strict=True)
    )
    counts = torch.bincount(cell, minlength=n).double()
    errors = (inside * loss).sum(1)
    yield equal("ε-term of a model without training error", term, predicted=float((counts / m) @ errors))
    mass = p.sum(1)
    slack = float(variation(mass, counts[None])[0])
    yield below(
        "its test error, g replaced by the total variation met", float((p * loss).sum()), predicted=term + slack
    )
    worst = (mass > counts / m).double()  # all wrong where P has more than D, all right elsewhere
    yield equal(
        "the same for losses constant on cells, at their worst", float((mass - counts / m) @ worst), predicted=slack
    )


@claims.add(
    "T20.dimension",
    "text after Corollary 21",
    Verdict.WRONG,
    "Unlike √(N/m), the slack g does not suffer from the curse of dimension.",
    "In dimension n small cells are all different: |T| → m and g > C; it is vacuous once |T|ln(2N/δ) ≥ 0.106m.",
)
def t20_dimension(draw: Draw) -> Iterator[Finding | Curve]:
    """Uniform data on a grid of b^n cells: cells met, and what g becomes."""
    m, b = draw.integer(1000, 2000), draw.integer(3, 5)
    dims = tuple(range(1, 13))
    met = []
    for n in dims:
        bins = (draw.uniform(m, n) * b).floor()
        met.append(len(bins.unique(dim=0)))
    slacks = [tau_published(t, b**n, m, 0.05) for t, n in zip(met, dims, strict=True)]
    yield exceeds(f"g/C in dimension {dims[-1]}", slacks[-1], published=1.0)
    expected = b ** dims[-1] * -math.expm1(m * math.log1p(-(b ** -dims[-1])))
    yield equal("cells met there, over m", met[-1] / m, predicted=expected / m, rel=0.02)
    root = ((math.sqrt((math.sqrt(2) + 1) ** 2 + 8) - math.sqrt(2) - 1) / 4) ** 2
    yield equal("share |T|ln(2N/δ)/m at which g = C", root, predicted=0.106, rel=5e-3)
    yield equal("g/C there", tau_published(root * m / math.log(2 * b / DELTA), b, m, DELTA), predicted=1.0)
    yield Curve(
        "Slack in dimension n", "n", "g / C", dims, (("g", tuple(slacks)), ("vacuous", (1.0,) * len(dims))), log_y=True
    )


@claims.add(
    "T20.corollary",
    "section 5.2.1",
    Verdict.HOLDS,
    "Theorem 20 follows from Than et al. 2025, (66): the mean change of the loss in a cell is at most λ_iL_i.",
    "Equality for a loss that grows at its full rate, such as a linear one in one dimension.",
)
def t20_corollary(draw: Draw) -> Iterator[Finding | Curve]:
    """Random points of a cell and a random maximum of linear functions; then one linear function on a line."""
    points, dim = draw.integer(10, 40), draw.integer(2, 5)
    x, rows = draw.uniform(points, dim), draw.normal(4, dim)
    change = spread((x @ rows.T).max(1).values[:, None])
    yield below("mean change of the loss", change, predicted=local_term(rows, x))
    line, slopes = (
        draw.uniform(points, 1),
        torch.cat([draw.uniform(1, 1, low=0.5, high=3.0), torch.zeros(1, 1).double()]),
    )
    exact = spread((line @ slopes.T).max(1).values[:, None])
    yield equal("the same, linear on a half line", exact, predicted=local_term(slopes, line))


def local_term(rows: Tensor, x: Tensor) -> float:
    """λL of a maximum of linear functions."""
    return spread(x) * float(rows.norm(dim=1).max())


def spread(x: Tensor) -> float:
    """The mean distance of two rows."""
    return float(torch.cdist(x, x).mean())


@claims.add(
    "C21",
    "Corollary 21",
    Verdict.HOLDS,
    "The loss may jump on a set of measure zero.",
    "Provided that no cell straddles the jump: where one does, L_i off the jump misses 2q(1−q) of mean change.",
)
def c21(draw: Draw) -> Iterator[Finding | Curve]:
    """A step of the loss: at a cell's edge nothing is missed, inside a cell the Lipschitz term is 0 and wrong."""
    points, q = draw.integer(20, 60), float(draw.uniform(1, low=0.2, high=0.8))
    x = draw.uniform(points, 1)
    step = (x > x.sort(0).values[int(q * points)]).double()
    share = float(step.mean())
    yield equal("mean change in a cell that straddles the jump", spread(step), predicted=2 * share * (1 - share))
    sides = [spread(step[step[:, 0] == side]) for side in (0.0, 1.0)]
    yield equal("mean change in the two cells it separates", max(sides), predicted=0.0, scale=1.0)


@claims.add(
    "HKK",
    "section 5.2.1 (quoting Hou et al. 2023)",
    Verdict.UNSUPPORTED,
    "Because of √(N/m) and a global constant, Hou et al.'s bound is looser than Theorem 20.",
    "It has an unnamed constant, so it is a score. With every cell met √(N/m) is below g by (√2+1)√ln(2N/δ) or more.",
)
def hkk(draw: Draw) -> Iterator[Finding | Curve]:
    """Both slacks with every cell met, and where they cross."""
    n, m = draw.integer(2, 500), draw.integer(1000, 100_000)
    ratio = tau_published(n, n, m, DELTA) / math.sqrt(n / m)
    first = (math.sqrt(2) + 1) * math.sqrt(math.log(2 * n / DELTA))
    yield exceeds("g over √(N/m), every cell met", ratio, published=1.0)
    yield equal("the same, large m", tau_published(n, n, 1e14, DELTA) / math.sqrt(n / 1e14), predicted=first, rel=1e-4)
    cells = 10**6
    met = cells / ((math.sqrt(2) + 1) ** 2 * math.log(2 * cells / DELTA))
    large = tau_published(met, cells, 1e14, DELTA) / math.sqrt(cells / 1e14)
    yield equal("the same where few cells are met and both are alike", large, predicted=1.0, rel=1e-3)

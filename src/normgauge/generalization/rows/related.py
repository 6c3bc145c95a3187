"""Rows beside Theorem 20: robustness, the form with labels of a hold-out, transport, and a bound that is none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.certificate import Consumed, Kind, Row, promised
from normgauge.generalization.bounds.cells import tau_variation
from normgauge.generalization.bounds.distances import from_holdout
from normgauge.generalization.bounds.hou2023 import transport
from normgauge.generalization.bounds.parts import Parts
from normgauge.generalization.bounds.than_phan2025 import computable
from normgauge.generalization.bounds.xu_mannor2012 import kawaguchi, xu_mannor
from normgauge.generalization.conditions import HOLDOUT, together
from normgauge.generalization.facts.hashes import fingerprints_of
from normgauge.generalization.facts.sample import Sample
from normgauge.generalization.facts.space import STEEPNESS, Space, crossed
from normgauge.generalization.rows.cells import LOSS, SLACK, TERM, blank, hopeless, refused

PARTNERS = 4  # training samples each fresh point is compared with
SAME_POINTS = (
    "the cells were made from the hold-out, so its points are not fresh to them: give unlabeled= for the cells"
)
NO_HOLDOUT = "it needs labelled points the training never saw: give holdout="


def rows(space: Space, delta: float, fresh: Sample | None, wrong: Tensor | None) -> Iterator[Row]:
    """All of them for one space.

    Args:
        space: D in cells.
        delta: share of failure.
        fresh: hold-out points in the same space, with labels.
        wrong: (n,) whether the network errs on each of them.
    """
    yield lambda_row(space, delta, fresh)
    yield from robustness(space, delta)
    yield direct(space, delta, fresh, wrong)
    yield hou(space, delta)
    yield than_phan(space)


def lambda_row(space: Space, delta: float, fresh: Sample | None) -> Row:
    """Theorem 20 with the distances from fresh points: each is compared with a few samples of its cell at random."""
    row = dataclasses.replace(
        blank(space, delta, "theorem20.holdout", "Theorem 20, distances from a hold-out"),
        formula="F(D) + Σ_{n_i>0}(m_i/m)ρ̂_i + √(½ln(1/δ')Σ(m_i/m)²/n_i) + share of cells without a fresh point + C·τ",
        consumed=(Consumed.TRAIN_LABELS, Consumed.HOLDOUT_LABELS),
    )
    row = dataclasses.replace(row, condition=together(row.condition, HOLDOUT))
    stopped = refused(space, row)
    if stopped is not None or fresh is None:
        return stopped or dataclasses.replace(row, reason=NO_HOLDOUT)
    if space.partition.seen and not space.partition.seen.isdisjoint(fingerprints_of(fresh)):
        return dataclasses.replace(row, reason=SAME_POINTS)
    tau = tau_variation(space.count, space.m, delta / 2)
    share = delta / 2 / len(STEEPNESS)
    distances, owners = fresh_distances(space, fresh)
    best: tuple[float, float, float] | None = None
    for choice in space.choices:
        term = _fresh_term(space, (distances * choice.steepness).clamp(max=1), owners, share)
        best = min(best or (math.inf, 0.0, 0.0), (choice.loss + term, choice.loss, term))
    if best is None or best[0] + tau >= 1:
        return hopeless(space, row, delta, tau, lambda m: tau_variation(space.count, m, delta / 2))
    terms = tuple((n, space.limit * v) for n, v in ((LOSS, best[1]), (TERM, best[2]), (SLACK, tau)))
    value = math.nextafter(math.fsum(v for _, v in terms), math.inf)
    return promised(row, value=value, terms=terms, additive=True, reason="")


def fresh_distances(space: Space, fresh: Sample, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """For each fresh point whose cell D meets: distances to random samples of that cell, (n, 4), and the cell, (n,)."""
    cells = crossed(space.partition, fresh, space.classes)
    order = torch.argsort(space.cells, stable=True)
    met, counts = torch.unique_consecutive(space.cells[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    place = torch.searchsorted(met, cells).clamp(max=len(met) - 1)
    kept = (met[place] == cells).nonzero().squeeze(1)
    place = place[kept]
    generator = torch.Generator().manual_seed(seed)
    picks = (torch.rand(len(kept), PARTNERS, generator=generator) * counts[place][:, None]).long()
    partners = order[starts[place][:, None] + picks]
    columns = []
    for k in range(PARTNERS):
        parts = [
            (fresh.take(i).flatten(1).double() - space.points.take(j).flatten(1).double()).norm(dim=1)
            for i, j in zip(kept.split(4096), partners[:, k].split(4096), strict=True)
        ]
        columns.append(torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64))
    return torch.stack(columns, 1), met[place]


def _fresh_term(space: Space, changes: Tensor, owners: Tensor, delta: float) -> float:
    met, counts = torch.unique(space.cells, return_counts=True)
    place = torch.searchsorted(met, owners)
    seen = torch.bincount(place, minlength=len(met))
    means = torch.zeros(len(met), dtype=torch.float64).index_add_(0, place, changes.mean(1)) / seen.clamp(min=1)
    weights = (counts.double() / space.m).tolist()
    far = (
        space.classes * len(space.partition.centres)
        if space.partition.radius and space.partition.centres is not None
        else None
    )
    if far is not None:  # what is far from every centre counts in full
        means = torch.where(met >= far, 1.0, means)
    return from_holdout(weights, means.tolist(), seen.tolist(), [1.0] * len(weights), delta)


def robustness(space: Space, delta: float) -> Iterator[Row]:
    """Xu & Mannor and Kawaguchi et al.: the worst change of the loss inside a cell, not its mean."""
    radius = space.partition.radius
    diameter = math.inf if radius is None or bool(space.far().any()) else 2 * radius
    for key, name, source in (
        ("xu_mannor", "Robustness, Xu & Mannor", "Xu & Mannor 2012, Theorem 1"),
        ("kawaguchi", "Robustness, Kawaguchi et al.", "Kawaguchi et al. 2022, Theorem 1"),
    ):
        row = dataclasses.replace(
            blank(space, delta, key, name), source=source, formula="F(D) + max over cells of sup|f(x)−f(s)| + C·τ"
        )
        stopped = refused(space, row)
        if stopped is not None:
            yield stopped
            continue
        found = [
            _robust(key, space, space.limit * c.loss, space.limit * min(1.0, c.steepness * diameter), delta)
            for c in space.choices
        ]
        error = space.limit * float((space.margins <= 0).double().mean())  # the ramp of a margin of nothing
        found += [_robust(key, space, error, space.limit, delta)] if space.quantity == "error" else []
        best = min(found, key=lambda parts: parts.value, default=Parts.added(change_in_a_cell=math.inf))
        reason = "" if best.value < space.limit else _why(diameter)
        yield promised(row, value=best.value, terms=best.terms, additive=True, reason=reason)


def _robust(key: str, space: Space, loss: float, change: float, delta: float) -> Parts:
    if key == "xu_mannor":
        return xu_mannor(loss, change, space.count, space.m, delta, space.limit)
    return kawaguchi(loss, change, len(space.counts()), space.count, space.m, delta, space.limit)


def _why(diameter: float) -> str:
    if math.isinf(diameter):
        return "the worst change inside a cell is not below the range of the loss: the cells have no finite diameter"
    return "the worst change inside a cell and the slack add up to the range of the loss"


def direct(space: Space, delta: float, fresh: Sample | None, wrong: Tensor | None) -> Row:
    """Equation (66): the mean change of the 0-1 loss inside the cells, from labels of a hold-out."""
    row = dataclasses.replace(
        blank(space, delta, "equation66", "Equation (66), change of the loss from a hold-out"),
        formula="error on D + Σ(m_i/m) mean|e(x)−e(s)| over fresh x and s of the cell + τ",
        consumed=(Consumed.TRAIN_LABELS, Consumed.HOLDOUT_LABELS),
        limit=1.0,
        quantity="error",
        confidence=None,
    )
    if fresh is None or wrong is None or fresh.labels is None:
        return dataclasses.replace(row, reason=NO_HOLDOUT)
    errors = (space.margins <= 0).double()
    cells = crossed(space.partition, fresh, space.classes)
    met, place, counts = torch.unique(space.cells, return_inverse=True, return_counts=True)
    rate = torch.zeros(len(met), dtype=torch.float64).index_add_(0, place, errors) / counts
    where = torch.searchsorted(met, cells).clamp(max=len(met) - 1)
    kept = met[where] == cells
    seen = torch.bincount(where[kept], minlength=len(met))
    bad = torch.zeros(len(met), dtype=torch.float64).index_add_(0, where[kept], wrong[kept].double())
    fresh_rate = bad / seen.clamp(min=1)
    change = torch.where(seen > 0, fresh_rate * (1 - rate) + rate * (1 - fresh_rate), 1.0)
    terms = (
        ("training error", float(errors.mean())),
        ("change inside cells", float((counts / space.m * change).sum())),
        (SLACK, tau_variation(space.count, space.m, delta)),
    )
    reason = (
        "circular: without training error its second term is the test error; the hold-out row needs the same labels"
    )
    return dataclasses.replace(
        row, kind=Kind.ESTIMATE, value=math.fsum(v for _, v in terms), terms=terms, additive=True, reason=reason
    )


def hou(space: Space, delta: float) -> Row:
    """The transport terms of Hou et al.; its constant is not known, so it ranks and bounds nothing."""
    row = dataclasses.replace(
        blank(space, delta, "hkk", "HKK, transport terms"),
        source="Hou et al. 2023 (arXiv 2211.01258)",
        formula="Σ(m_i/m)λ_i max(1, L_i) + max λ_iL_i √(ln(4/δ)/m) + √(N/m), constant unknown",
        confidence=None,
    )
    stopped = refused(space, row)
    if stopped is not None:
        return stopped
    cells, distances = space.spread.by_cell()
    met, counts = torch.unique(space.cells, return_counts=True)
    shares = (counts[torch.searchsorted(met, cells)].double() / space.m).tolist()
    steep = space.slope / space.gamma()
    if not math.isfinite(steep):
        return dataclasses.replace(row, reason="the network has no finite slope")
    parts = transport(shares, distances.tolist(), [steep] * len(shares), space.count, space.m, delta)
    return dataclasses.replace(
        row,
        kind=Kind.SCORE,
        value=parts.value,
        terms=parts.terms,
        additive=True,
        reason="its constant is not given, so it ranks networks and bounds nothing",
    )


def than_phan(space: Space) -> Row:
    """A published bound that depends on the network only through its training loss: shown as what it is."""
    _, counts = torch.unique(space.cells, return_counts=True)
    loss = float((space.margins <= 0).double().mean())
    parts = computable(loss, (counts.double() / space.m).tolist(), space.count, space.m)
    row = blank(space, 0.05, "than_phan", "Than & Phan, computable bound")
    return dataclasses.replace(
        row,
        source="Than & Phan 2025 (arXiv 2503.07325)",
        formula="F(S) + C√(û α ln γ) + C·g(δ/2)",
        confidence=None,
        terms=parts.terms,
        reason=f"it says {parts.value:.3g}, but knows the network only through its training loss: a table of the "
        "training samples gets the same number and errs everywhere else. Valid only for a network fixed without D",
    )

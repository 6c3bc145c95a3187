"""Rows beside Theorem 20: robustness, the form with labels of a hold-out, transport, and a bound that fails."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.certificates.bounds.cells import robust_bound, tau_published, tau_variation, tau_xu_mannor
from normgauge.certificates.bounds.distances import from_holdout
from normgauge.certificates.bounds.hou2023 import transport
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.than_phan2025 import computable_bound
from normgauge.certificates.conditions import HOLDOUT, joined_conditions
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.space import STEEPNESS, CellSpace, sample_distances
from normgauge.certificates.rows.cells import OURS, SLACK, THAN, VARIATION, blank_row, hopeless_row, smallest_loss
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row

PARTNERS = 4  # training samples each fresh point is compared with
SAME_POINTS = (
    "the cells were made from the hold-out, so its points are not fresh to them: give unlabeled= for the cells"
)
NO_HOLDOUT = "it needs labelled points the training never saw: give holdout="

CIRCULAR = "circular: without training error its second term is the test error; the hold-out row needs the same labels"
NO_DIAMETER = "the worst change inside a cell is not below the range of the loss: the cells have no finite diameter"
ADDED_UP = "the worst change inside a cell and the slack add up to the range of the loss"


def related_rows(space: CellSpace, delta: float, fresh: DataSample | None, wrong: Tensor | None) -> Iterator[Row]:
    """All rows of this file for one space.

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


def lambda_row(space: CellSpace, delta: float, fresh: DataSample | None) -> Row:
    """Theorem 20 with the distances from fresh points: each is compared with a few samples of its cell at random."""
    row = blank_row(
        space,
        delta,
        "theorem20.holdout",
        "Theorem 20, distances from a hold-out",
        source=OURS,
        formula="F(D) + Σ_{n_i>0}(m_i/m)ρ̂_i + √(½ln(1/δ')Σ(m_i/m)²/n_i) + share of cells without a fresh point + C·τ",
        consumed=(Consumed.TRAIN_LABELS, Consumed.HOLDOUT_LABELS),
    )
    row = dataclasses.replace(row, condition=joined_conditions(row.condition, HOLDOUT))
    if space.refusal or fresh is None:
        return dataclasses.replace(row, reason=space.refusal or NO_HOLDOUT)
    if space.partition.seen and not space.partition.seen.isdisjoint(fresh.marks):
        return dataclasses.replace(row, reason=SAME_POINTS)
    apart, places = fresh_distances(space, fresh)
    share = delta / 2 / len(STEEPNESS)
    best = smallest_loss(space, delta, VARIATION, lambda c: _fresh_term(space, apart * c.steepness, places, share))
    if best is None:
        return hopeless_row(space, row, delta, VARIATION)
    return promised_row(row, value=best[1].value, terms=best[1].terms, additive=True, reason="")


def fresh_distances(space: CellSpace, fresh: DataSample, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """For each fresh point whose cell D meets: distances to samples of that cell, (n, 4), and its place, (n,)."""
    kept, place = space.shared(fresh)
    order, counts = torch.argsort(space.cells, stable=True), space.met()[1]
    starts = counts.cumsum(0) - counts
    generator = torch.Generator().manual_seed(seed)
    picks = (torch.rand(len(kept), PARTNERS, generator=generator) * counts[place][:, None]).long()
    partners = order[starts[place][:, None] + picks]
    columns = [sample_distances(fresh, kept, space.points, partners[:, k]) for k in range(PARTNERS)]
    return torch.stack(columns, 1), place


def _fresh_term(space: CellSpace, changes: Tensor, place: Tensor, delta: float) -> float:
    met, counts = space.met()
    seen = torch.bincount(place, minlength=len(met))
    changed = _by_cell(place, changes.clamp(max=1).mean(1), len(met)) / seen.clamp(min=1)
    means = torch.where(
        space.partition.far(met // space.classes), 1.0, changed
    )  # what is far from every centre counts in full
    weights = (counts.double() / space.m).tolist()
    return from_holdout(weights, means.tolist(), seen.tolist(), [1.0] * len(weights), delta)


def _by_cell(place: Tensor, values: Tensor, cells: int) -> Tensor:
    """The sum of the values in each cell."""
    return torch.zeros(cells, dtype=torch.float64).index_add_(0, place, values.double())


def robustness(space: CellSpace, delta: float) -> Iterator[Row]:
    """Xu & Mannor and Kawaguchi et al.: the worst change of the loss inside a cell, not its mean."""
    radius, formula = space.partition.radius, "F(D) + max over cells of sup|f(x)−f(s)| + C·τ"
    diameter = (
        math.inf if radius is None or bool(space.partition.far(space.cells // space.classes).any()) else 2 * radius
    )
    tried = [(c.loss, min(1.0, c.steepness * diameter)) for c in space.choices]
    if space.quantity == "error":
        tried.append((float((space.margins <= 0).double().mean()), 1.0))  # the ramp of a margin of nothing
    taus = tau_xu_mannor(space.count, space.m, delta), tau_published(len(space.counts()), space.count, space.m, delta)
    for key, name, source, tau in (
        ("xu_mannor", "Robustness, Xu & Mannor", "Xu & Mannor 2012, Theorem 1", taus[0]),
        ("kawaguchi", "Robustness, Kawaguchi et al.", "Kawaguchi et al. 2022, Theorem 1", taus[1]),
    ):
        row = blank_row(space, delta, key, name, source=source, formula=formula)
        if space.refusal:
            yield row
            continue
        found = [robust_bound(space.limit * loss, space.limit * change, tau, space.limit) for loss, change in tried]
        best = min(found, key=lambda parts: parts.value, default=Parts.added(change_in_a_cell=math.inf))
        reason = "" if best.value < space.limit else NO_DIAMETER if math.isinf(diameter) else ADDED_UP
        yield promised_row(row, value=best.value, terms=best.terms, additive=True, reason=reason)


def direct(space: CellSpace, delta: float, fresh: DataSample | None, wrong: Tensor | None) -> Row:
    """Equation (66): the mean change of the 0-1 loss inside the cells, from labels of a hold-out."""
    row = blank_row(
        space,
        delta,
        "equation66",
        "Equation (66), change of the loss from a hold-out",
        source=f"{THAN.replace('Theorem 20', 'equation (66)')}; slack ours",
        formula="error on D + Σ(m_i/m) mean|e(x)−e(s)| over fresh x and s of the cell + τ",
        consumed=(Consumed.TRAIN_LABELS, Consumed.HOLDOUT_LABELS),
        limit=1.0,
        quantity="error",
        confidence=None,
        reason=NO_HOLDOUT,
    )
    if fresh is None or wrong is None or fresh.labels is None:
        return row
    errors = (space.margins <= 0).double()
    met, counts = space.met()
    rate = _by_cell(torch.searchsorted(met, space.cells), errors, len(met)) / counts
    kept, place = space.shared(fresh)
    seen = torch.bincount(place, minlength=len(met))
    fresh_rate = _by_cell(place, wrong[kept], len(met)) / seen.clamp(min=1)
    change = torch.where(seen > 0, fresh_rate * (1 - rate) + rate * (1 - fresh_rate), 1.0)
    terms = (
        ("training error", float(errors.mean())),
        ("change inside cells", float((counts / space.m * change).sum())),
        (SLACK, tau_variation(space.count, space.m, delta)),
    )
    value = math.fsum(v for _, v in terms)
    return dataclasses.replace(row, kind=RowKind.ESTIMATE, value=value, terms=terms, additive=True, reason=CIRCULAR)


def hou(space: CellSpace, delta: float) -> Row:
    """The transport terms of Hou et al.; its constant is not known, so it ranks and bounds nothing."""
    row = blank_row(
        space,
        delta,
        "hkk",
        "HKK, transport terms",
        source="Hou et al. 2023 (arXiv 2211.01258)",
        formula="Σ(m_i/m)λ_i max(1, L_i) + max λ_iL_i √(ln(4/δ)/m) + √(N/m), constant unknown",
        confidence=None,
    )
    steep = space.slope / space.gamma()
    if space.refusal or not math.isfinite(steep):
        return dataclasses.replace(row, reason=space.refusal or "the network has no finite slope")
    cells, apart = space.spread.by_cell()
    met, counts = space.met()
    shares = (counts[torch.searchsorted(met, cells)].double() / space.m).tolist()
    parts = transport(shares, apart.tolist(), [steep] * len(shares), space.count, space.m, delta)
    reason = "its constant is not given, so it ranks networks and bounds nothing"
    return dataclasses.replace(
        row, kind=RowKind.SCORE, value=parts.value, terms=parts.terms, additive=True, reason=reason
    )


def than_phan(space: CellSpace) -> Row:
    """A published bound that depends on the network only through its training loss: the row says why it is not one."""
    loss = float((space.margins <= 0).double().mean())
    parts = computable_bound(loss, (space.met()[1].double() / space.m).tolist(), space.count, space.m)
    return blank_row(
        space,
        0.05,
        "than_phan",
        "Than & Phan, computable bound",
        source="Than & Phan 2025 (arXiv 2503.07325)",
        formula="F(S) + C√(û α ln γ) + C·g(δ/2)",
        confidence=None,
        terms=parts.terms,
        reason=f"it says {parts.value:.3g}, but knows the network only through its training loss: a table of the "
        "training samples gets the same number and errs everywhere else. Valid only for a network fixed without D",
    )

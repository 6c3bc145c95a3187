"""Theorem 20 of Than 2025 and its relatives: a loss that changes little inside cells that were fixed beforehand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from normgauge.certificates.bounds.cells import (
    entropy_radius,
    kl_cells,
    tau_published,
    tau_rademacher,
    tau_variation,
)
from normgauge.certificates.bounds.distances import paired_distance
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import samples_needed
from normgauge.certificates.conditions import CELLS, ENCODER, TRAIN, joined_conditions
from normgauge.certificates.facts.space import STEEPNESS, CellSpace, Choice
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row

LOSS, TERM, SLACK = "training loss", "Lipschitz term", "slack of the cells"
THAN = "Than 2025 (arXiv 2511.00958), Theorem 20"
CUT = f"{THAN}; cut-off at C ours"
OURS = f"{THAN}; cut-off at C and slack ours"
DISGUISE = "a hold-out bound in disguise, since D is fresh to the encoder: features.encoder_holdout is the plain one"
LARGEST = 10**12 // 2  # samples; beyond that no size is worth naming
MORE = 200  # cells, as an example
TAU = "τ = ½√((N−1)/m) + √(ln(1/δ)/(2m))"
SUM = "F(D) + (1/m)Σ_s E[min(C, L‖x−s‖) : x in the cell of s] + C·τ"


@dataclasses.dataclass(frozen=True, slots=True)
class SlackForm:
    """One form of the slack: its key and words, its formula, and τ/C as a function of the samples and of δ.

    Where the slack depends on what it is added to, ``added`` says how, and τ only shows its size.
    """

    key: str
    words: str
    formula: str
    tau: Callable[[CellSpace, int, float], float]
    added: Callable[[CellSpace, float, float], float] | None = None


def _published(space: CellSpace, m: int, delta: float) -> float:
    met = len(space.counts()) if m == space.m else space.count
    return tau_published(met, space.count, m, delta)


def _rademacher(space: CellSpace, m: int, delta: float) -> float:
    counts = space.counts() if m == space.m else [-(-m // space.count)] * min(space.count, m)
    return tau_rademacher(counts, delta)


VARIATION = SlackForm(
    "variation", "total-variation slack", f"{SUM}, {TAU}", lambda space, m, delta: tau_variation(space.count, m, delta)
)
FORMS = (
    SlackForm("published", "as published", f"{SUM}, τ = (√2+1)√(|T|ln(2N/δ)/m) + 2|T|ln(2N/δ)/m", _published),
    SlackForm("rademacher", "Rademacher slack", f"{SUM}, τ = ΣE|S_{{m_i}}|/m + 3√(ln(2/δ)/(2m))", _rademacher),
    VARIATION,
    SlackForm(
        "kl",
        "relative entropy",
        "C·kl⁻¹((F(D) + Lipschitz term)/C, e), e from the tail of KL(p̂‖p) over N cells (Agrawal 2020)",
        lambda space, m, delta: math.sqrt(entropy_radius(space.count, m, delta) / 2),  # Pinsker
        lambda space, delta, total: kl_cells(total, space.count, space.m, delta) - total,
    ),
)


def theorem20(space: CellSpace, delta: float) -> Iterator[Row]:
    """Theorem 20 with each slack; half of δ for the slack, half for the distances."""
    for form in FORMS:
        yield theorem20_row(space, delta, form)


def blank_row(space: CellSpace, delta: float, key: str, name: str, **told: Any) -> Row:
    """An empty row with what all rows of a space share; ``told`` are the fields of its own."""
    behind = space.name != "inputs"
    row = Row(
        ("features." if behind else "") + key,
        name + (" on features" if behind else ""),
        "feature cells" if behind else "cells",
        RowKind.NOT_APPLICABLE,
        confidence=1 - delta,
        consumed=(Consumed.TRAIN_LABELS, Consumed.OTHER) if behind else (Consumed.TRAIN_LABELS,),
        condition=joined_conditions(TRAIN, ENCODER if behind else "", CELLS if space.partition.cells > 1 else ""),
        reason=space.refusal or "not computed",
        limit=space.limit,
        quantity=space.quantity,
        source=THAN,
    )
    return dataclasses.replace(row, **told)


def theorem20_row(space: CellSpace, delta: float, form: SlackForm) -> Row:
    """F(D) + Lipschitz term + τ, at the best loss on offer; the distances hold for the whole grid of steepness."""
    row = blank_row(space, delta, f"theorem20.{form.key}", f"Theorem 20, {form.words}", formula=form.formula)
    row = dataclasses.replace(row, source=CUT if form.key == "published" else OURS)
    if space.refusal:
        return row
    best = smallest_loss(space, delta, form, lambda c: space.spread.upper(c.steepness, delta / 2 / len(STEEPNESS)))
    if best is None:
        return hopeless_row(space, row, delta, form)
    choice, parts = best
    told = [DISGUISE] if space.name != "inputs" else []
    if form.key == "published" and printed_floor(space) + form.tau(space, space.m, delta / 2) >= 1:
        told.append("as printed, L·λ not cut off at C, it would say nothing here")
    reason = "; ".join(told)
    formula = form.formula + here(space, choice.gamma)
    return promised_row(row, value=parts.value, terms=parts.terms, additive=True, reason=reason, formula=formula)


def smallest_loss(
    space: CellSpace, delta: float, form: SlackForm, term: Callable[[Choice], float]
) -> tuple[Choice, Parts] | None:
    """The loss with the smallest bound, and its parts; None if that bound is not below the range of the loss."""
    tau, found = form.tau(space, space.m, delta / 2), []
    for choice in space.choices:
        change = term(choice)
        slack = tau if form.added is None else form.added(space, delta / 2, choice.loss + change)
        found.append((choice, {LOSS: choice.loss, TERM: change, SLACK: slack}))
    best, terms = min(found, key=lambda one: sum(one[1].values()), default=(None, {LOSS: math.inf, TERM: math.inf}))
    if best is None or sum(terms.values()) >= 1 or terms[LOSS] + terms[TERM] >= 1:
        return None
    return best, Parts.added(**{name: space.limit * part for name, part in terms.items()})


def here(space: CellSpace, gamma: float | None) -> str:
    """The numbers a reader needs to compute a row again, as words."""
    margin = "" if gamma is None else f"γ = {gamma:.4g}, slope of the margin {space.slope:.4g}, "
    sizes = f"N = {space.count}, |T| = {len(space.counts())}, m = {space.m}"
    return f"; here {margin}{sizes}, half of δ for τ and half for the distances"


def hopeless_row(space: CellSpace, row: Row, delta: float, form: SlackForm) -> Row:
    """A row that says nothing, shown at the median margin without truncation, so that a reader sees why.

    A ramp so wide that every loss is near 1 would always come out near 1 and hide the cause.
    """
    gamma = None if space.choices and space.choices[0].gamma is None else space.gamma()
    if gamma is None:
        mean, steep = space.choices[0].loss, space.choices[0].steepness
    else:
        mean, steep = float((1 - space.margins / gamma).clamp(0, 1).mean()), space.slope / gamma
    alone = space.spread.alone / space.m
    inside = (1 - alone) * steep * space.spread.mean() + alone
    parts = ((LOSS, mean), (TERM, inside), (SLACK, form.tau(space, space.m, delta / 2)))
    terms = tuple((name, space.limit * part) for name, part in parts)
    whole = math.fsum(part for _, part in terms)
    needed, reason = _enough(space, delta / 2, form)
    value = max(whole, space.limit)
    formula = row.formula + here(space, gamma) + "; shown at the median margin, the change not cut off at C"
    return promised_row(
        row, value=value, terms=terms, additive=value == whole, reason=reason, needed=needed, formula=formula
    )


def _enough(space: CellSpace, delta: float, form: SlackForm) -> tuple[int | None, str]:
    """From how many samples on a row would say something, None if from none, and this in words."""

    def tau(m: int) -> float:
        return form.tau(space, m, delta)

    needed = sample_size(space, tau, delta)
    if needed is None:
        return None, _no_size(space)
    if form.key != "published":
        return needed, f"too few samples: cut off at C, with distances like these some {needed:,} would be needed"
    floor, ours = printed_floor(space), f"cut off at C, with distances like these some {needed:,} would be needed"
    printed = samples_needed(lambda m: floor + tau(m), space.m, 1.0, LARGEST, parts=1000)
    if printed is not None:
        needed = max(needed, printed)
        return needed, f"too few samples: with distances like these some {needed:,} would be needed"
    if floor < 1:
        return None, f"as printed, L·λ not cut off at C, no number of samples worth naming would do; {ours}"
    return None, (
        f"with {_cells(space)} no sample size would help as printed, L·λ not cut off at C: λ, the mean distance in a "
        f"cell, would have to be below {_printed_distance(space):.3g}, and is {space.spread.mean():.3g}; "
        f"{_more(space)}; {ours}"
    )


def _no_size(space: CellSpace) -> str:
    """Why no sample size would help, and whether other cells may."""
    told = f"with {_cells(space)} no sample size would help: "
    if not space.choices:
        return f"{told}the slope is infinite or beyond measure, and smaller cells do not change that"
    if space.partition.cells > 1 and 2 * space.spread.alone > space.m:
        return f"{told}most samples are alone in theirs; fewer cells may (--cells)"
    return f"{told}the loss and its change inside a cell add up to its whole range; {_more(space)}"


def _cells(space: CellSpace) -> str:
    return "1 cell" if space.partition.cells == 1 else f"{space.partition.cells:,} cells"


def _more(space: CellSpace) -> str:
    return "more cells may (--cells" + (f" {MORE})" if space.partition.cells < MORE else ")")


def printed_floor(space: CellSpace) -> float:
    """F(D) + L·λ over C, not cut off, as printed in (13), at the best margin γ, with λ the mean distance met in a cell.

    In u = 1/γ the mean ramp is convex and piecewise linear, so the least value is at a γ that is one of the margins.
    """
    mean = space.spread.mean()
    if not space.choices or space.choices[0].gamma is None:
        return min((c.loss + c.steepness * mean for c in space.choices), default=math.inf)
    finite = space.margins[space.margins.isfinite() & (space.margins > 0)].sort().values
    wrong = int((space.margins <= 0).sum())
    below = torch.arange(len(finite)) - (finite.cumsum(0) - finite) / finite  # Σ (1 − margin/γ) over margins below γ
    at = (wrong + below) / space.m + space.slope * mean / finite
    return min((wrong + len(finite)) / space.m, float(at.min()) if len(at) else math.inf)


def _printed_distance(space: CellSpace) -> float:
    """The mean distance in a cell below which `printed_floor` is below 1: there the slope at u = 0 is negative."""
    if space.choices[0].gamma is None:
        return max((1 - c.loss) / c.steepness for c in space.choices)
    return float(space.margins.clamp(min=0).mean()) / space.slope


def sample_size(space: CellSpace, tau: Callable[[int], float], delta: float) -> int | None:
    """The sample size at which the row would be a bound, with distances like those met; None if no size would do."""
    share = delta / len(STEEPNESS)
    known = [(c.loss, *space.spread.sums(c.steepness)) for c in space.choices]

    def whole(m: int) -> float:
        grown = m / space.m
        alone = round(grown * space.spread.alone)
        rest = (loss + paired_distance(grown * s, grown * q, alone, m, share) for loss, s, q in known)
        return min(rest, default=math.inf) + tau(m)

    return samples_needed(whole, space.m, 1.0, LARGEST, parts=1000)

"""Theorem 20 of Than 2025 and its relatives: a loss that changes little inside cells that were fixed beforehand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from normgauge.core.certificate import Consumed, Kind, Row, promised
from normgauge.generalization.bounds.cells import (
    entropy_radius,
    kl_cells,
    tau_published,
    tau_rademacher,
    tau_variation,
)
from normgauge.generalization.bounds.distances import paired
from normgauge.generalization.bounds.roots import samples_needed
from normgauge.generalization.conditions import CELLS, ENCODER, TRAIN, together
from normgauge.generalization.facts.space import STEEPNESS, Choice, Space

LOSS, TERM, SLACK = "training loss", "Lipschitz term", "slack of the cells"
THAN = "Than 2025 (arXiv 2511.00958), Theorem 20"
DISGUISE = "a hold-out bound in disguise, since D is fresh to the encoder: features.encoder_holdout is the plain one"
LARGEST = 10**12 // 2  # samples; beyond that no size is worth naming
SUM = "F(D) + (1/m)Σ_s E[min(C, L‖x−s‖) : x in the cell of s] + C·τ"


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """One of the slacks: its key and words, and τ for so many samples and so much δ."""

    key: str
    words: str
    formula: str
    tau: Callable[[Space, int, float], float]
    source: str = THAN


def _published(space: Space, m: int, delta: float) -> float:
    met = len(space.counts()) if m == space.m else space.count
    return tau_published(met, space.count, m, delta)


def _rademacher(space: Space, m: int, delta: float) -> float:
    counts = space.counts() if m == space.m else [-(-m // space.count)] * min(space.count, m)
    return tau_rademacher(counts, delta)


FORMS = (
    Form("published", "as published", "τ = (√2+1)√(|T|ln(2N/δ)/m) + 2|T|ln(2N/δ)/m", _published),
    Form("rademacher", "Rademacher slack", "τ = ΣE|S_{m_i}|/m + 3√(ln(2/δ)/(2m))", _rademacher),
    Form(
        "variation",
        "total-variation slack",
        "τ = ½√((N−1)/m) + √(ln(1/δ)/(2m))",
        lambda space, m, delta: tau_variation(space.count, m, delta),
    ),
)


def prefix(space: Space) -> str:
    """Keys of the feature space have their own beginning."""
    return "" if space.name == "inputs" else "features."


def family(space: Space) -> str:
    """Rows of one space stand together."""
    return "cells" if space.name == "inputs" else "feature cells"


def theorem20(space: Space, delta: float) -> Iterator[Row]:
    """Theorem 20 with each slack; half of δ for the slack, half for the distances."""
    for form in FORMS:
        yield additive_row(space, delta, form)
    yield kl_row(space, delta)


def blank(space: Space, delta: float, key: str, name: str) -> Row:
    """What all rows of a space share."""
    behind = space.name != "inputs"
    where = " on features" if behind else ""
    return Row(
        prefix(space) + key,
        name + where,
        family(space),
        Kind.NOT_APPLICABLE,
        confidence=1 - delta,
        consumed=(Consumed.TRAIN_LABELS, Consumed.OTHER) if behind else (Consumed.TRAIN_LABELS,),
        condition=together(TRAIN, ENCODER if behind else "", CELLS if space.partition.cells > 1 else ""),
        reason="not computed",
        limit=space.limit,
        quantity=space.quantity,
        source=THAN,
    )


def refused(space: Space, row: Row) -> Row | None:
    """The row where it cannot be computed at all: no loss with a range, or no slope."""
    if space.problem:
        return dataclasses.replace(row, reason=space.problem)
    if space.gap:
        return dataclasses.replace(row, reason=space.gap)
    return None


def additive_row(space: Space, delta: float, form: Form) -> Row:
    """F(D) + Lipschitz term + τ, at the best loss on offer."""
    row = blank(space, delta, f"theorem20.{form.key}", f"Theorem 20, {form.words}")
    row = dataclasses.replace(row, formula=f"{SUM}, {form.formula}", source=form.source)
    stopped = refused(space, row)
    if stopped is not None:
        return stopped
    tau = form.tau(space, space.m, delta / 2)
    best = smallest(space, delta / 2, lambda total: total + tau)
    if best is not None and sum(best[1:]) + tau < 1:
        return finished(space, row, best, tau)
    return hopeless(space, row, delta, tau, lambda m: form.tau(space, m, delta / 2))


def kl_row(space: Space, delta: float) -> Row:
    """kl⁻¹(F(D) + Lipschitz term, e)."""
    row = blank(space, delta, "theorem20.kl", "Theorem 20, relative entropy")
    row = dataclasses.replace(
        row, formula="C·kl⁻¹((F(D) + Lipschitz term)/C, e), e from the tail of KL(p̂‖p) over N cells (Agrawal 2020)"
    )
    stopped = refused(space, row)
    if stopped is not None:
        return stopped
    radius = entropy_radius(space.count, space.m, delta / 2)
    best = smallest(space, delta / 2, lambda total: kl_cells(total, space.count, space.m, delta / 2))
    if best is not None and best[1] + best[2] < 1:
        tau = kl_cells(best[1] + best[2], space.count, space.m, delta / 2) - best[1] - best[2]
        if best[1] + best[2] + tau < 1:
            return finished(space, row, best, tau)
    return hopeless(
        space, row, delta, math.sqrt(radius / 2), lambda m: math.sqrt(entropy_radius(space.count, m, delta / 2) / 2)
    )


Found = tuple[Choice, float, float]  # the loss chosen, F(D)/C, Lipschitz term/C


def smallest(space: Space, delta: float, whole: Callable[[float], float]) -> Found | None:
    """The best of the losses on offer; the distances hold for the whole grid of steepness at once."""
    share = delta / len(STEEPNESS)
    found = [(c, c.loss, space.spread.upper(c.steepness, share)) for c in space.choices]
    return min(found, key=lambda one: whole(one[1] + one[2]), default=None)


def finished(space: Space, row: Row, best: Found, tau: float) -> Row:
    """A row that says something."""
    terms = tuple((name, space.limit * part) for name, part in ((LOSS, best[1]), (TERM, best[2]), (SLACK, tau)))
    value = math.nextafter(math.fsum(part for _, part in terms), math.inf)
    formula = row.formula + here(space, best[0].gamma)
    reason = DISGUISE if space.name != "inputs" else ""
    return promised(row, value=value, terms=terms, additive=True, reason=reason, formula=formula)


def here(space: Space, gamma: float | None) -> str:
    """The numbers a reader needs to work a row out again."""
    margin = "" if gamma is None else f"γ = {gamma:.4g}, slope of the margin {space.slope:.4g}, "
    sizes = f"N = {space.count}, |T| = {len(space.counts())}, m = {space.m}"
    return f"; here {margin}{sizes}, half of δ for τ and half for the distances"


def hopeless(space: Space, row: Row, delta: float, tau: float, again: Callable[[int], float]) -> Row:
    """A row that says nothing, shown at the median margin without truncation, so that a reader sees why.

    A ramp so wide that every loss is near 1 would always come out near 1 and hide the cause.
    """
    gamma = None if space.choices and space.choices[0].gamma is None else space.gamma()
    if gamma is None:
        mean, steep = space.choices[0].loss, space.choices[0].steepness
    else:
        mean, steep = float((1 - space.margins / gamma).clamp(0, 1).mean()), space.slope / gamma
    alone = (space.spread.singles + space.spread.outside) / space.m
    inside = (1 - alone) * steep * space.spread.mean() + alone
    terms = tuple((name, space.limit * part) for name, part in ((LOSS, mean), (TERM, inside), (SLACK, tau)))
    whole = math.fsum(part for _, part in terms)
    needed = sample_size(space, again, delta / 2)
    if needed is None:
        reason = "no sample size would help: with this slope the loss changes by its whole range inside a cell"
    else:
        reason = f"too few samples: with distances like these some {needed:,} would be needed"
    value = max(whole, space.limit)
    formula = row.formula + here(space, gamma) + "; shown at the median margin, the change not cut off at C"
    return promised(
        row, value=value, terms=terms, additive=value == whole, reason=reason, needed=needed, formula=formula
    )


def sample_size(space: Space, tau: Callable[[int], float], delta: float) -> int | None:
    """The m with which loss, distances like those met and all slacks stay below the range; None where no m does."""
    share, alone = delta / len(STEEPNESS), space.spread.singles + space.spread.outside
    known = [(c.loss, *space.spread.sums(c.steepness)) for c in space.choices]

    def whole(m: int) -> float:
        grown = m / space.m
        rest = (loss + paired(grown * s, grown * q, round(grown * alone), m, share) for loss, s, q in known)
        return min(rest, default=math.inf) + tau(m)

    return samples_needed(whole, space.m, 1.0, LARGEST, parts=1000)

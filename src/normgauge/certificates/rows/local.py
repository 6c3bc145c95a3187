"""Corollaries 21 and 22: networks without jumps inside a cell, and constants of the network, global and local."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.certificates.bounds.cells import tau_variation
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.facts.cells import Partition
from normgauge.certificates.facts.slopes import MarginSlopes
from normgauge.certificates.facts.space import CellSpace, ramps
from normgauge.certificates.rows.cells import LOSS, SLACK, SUM, TAU, TERM, VARIATION, blank_row, theorem20_row
from normgauge.core.certificate import Row, RowKind, promised_row
from normgauge.instrument.rules.normalizer import BATCH

EVERYWHERE = "LayerNorm, GroupNorm, RMSNorm, 1/√ε"
COROLLARY = "Than 2025 (arXiv 2511.00958), Corollary {}"
NO_CENTRES = "local cells need inputs the training never saw: give unlabeled= or holdout="


@dataclass(frozen=True, slots=True, eq=False)
class LocalCells:
    """Balls around points the training never saw, and what the network does in each.

    Attributes:
        partition: has a radius.
        owners: (m,) the ball of each sample of D; ``len(slopes)`` for those far from every centre.
        slopes: (centres,) proved Lipschitz constant of the margin in each ball; inf where unknown.
        leads: (centres,) the lead of the winning class at each centre, in the units of the margin.
        gap: why there are no slopes.
    """

    partition: Partition
    owners: Tensor
    slopes: Tensor
    leads: Tensor
    gap: str = ""

    @property
    def diameter(self) -> float:
        """The diameter of a ball."""
        return 2 * (self.partition.radius or 0.0)

    def slack(self, classes: int, delta: float) -> float:
        """The slack of these cells by total variation; a cell never mixes labels."""
        return tau_variation(self.partition.cells * classes, len(self.owners), delta)


def corollary22(space: CellSpace, slopes: MarginSlopes, delta: float) -> Iterator[Row]:
    """Theorem 20 with constants of the whole network: as published, folded, and for nets without normalizers."""
    batch = any(record.rule.startswith(BATCH) for record in slopes.normalizers)
    local = any(record.sigma is not None and not record.rule.startswith(BATCH) for record in slopes.normalizers)
    named = ", ".join(dict.fromkeys(record.kind for record in slopes.normalizers))
    for key, words, slope, why_not in (
        ("batch", "BatchNorm folded", slopes.folded, "" if batch else "there is no BatchNorm in it"),
        ("global", EVERYWHERE, slopes.balanced, "" if local else f"its normalizers: {named or 'none'}"),
        ("none", "no normalizer", slopes.folded, f"the network has normalizers: {named}" if named else ""),
    ):
        yield _constant(space, delta, key, words, slope, why_not)
    names = ("corollary10_2", "corollary11") if named else ("P_w",)
    yield _published(space, slopes, delta, next((n for n in names if f"log10_{n}" in slopes.published), ""))


def _constant(space: CellSpace, delta: float, key: str, words: str, slope: float, why_not: str = "") -> Row:
    row = dataclasses.replace(
        theorem20_row(at_slope(space, slope), delta, VARIATION),
        key=f"corollary22.{key}",
        name=f"Corollary 22, {words}",
        source=COROLLARY.format(22) + "; cut-off at C and slack ours",
        formula=f"{SUM}, L = √2·Lip(f)/γ for the ramp at margin γ; {TAU}",
    )
    if not why_not or row.kind is RowKind.NOT_APPLICABLE:
        return row
    return dataclasses.replace(
        row, kind=RowKind.NOT_APPLICABLE, value=None, terms=(), additive=False, needed=None, reason=why_not
    )


def _published(space: CellSpace, slopes: MarginSlopes, delta: float, name: str) -> Row:
    if not name:
        why_not = slopes.gap or "the corollaries printed are about networks all of BatchNorm, or all of LayerNorm"
        return _constant(space, delta, "published", "constant as published", math.inf, why_not)
    slope = slopes.published[f"log10_{name}"]
    row = _constant(space, delta, "published", f"constant as published ({name})", slope)
    if row.kind is RowKind.NOT_APPLICABLE or slope >= slopes.balanced:
        return row  # above a proved constant, so itself one
    reason = f"the printed constant {slope:.3g} is below the proved one {slopes.balanced:.3g}: it leaves out the gain γ"
    return dataclasses.replace(row, kind=RowKind.ESTIMATE, reason=reason, needed=None)


def at_slope(space: CellSpace, slope: float) -> CellSpace:
    """These cells with another slope of the margin; cross-entropy keeps its own."""
    if space.quantity != "error":
        return space
    return dataclasses.replace(space, slope=slope, choices=ramps(space.margins, slope))


def corollary21(cells: LocalCells | None, space: CellSpace, delta: float) -> Row:
    """The 0-1 loss, which jumps: cells that no boundary crosses change nothing, all others count in full."""
    row = blank_row(
        space,
        delta,
        "corollary21",
        "Corollary 21, cells no boundary crosses",
        source=COROLLARY.format(21) + "; slack ours",
        formula="error on D + share of D in cells a boundary may cross + τ; " + TAU,
        limit=1.0,
        quantity="error",
    )
    if cells is None or cells.gap:
        return dataclasses.replace(row, reason=cells.gap if cells else NO_CENTRES)
    safe = cells.leads > cells.slopes * cells.diameter / 2
    whole = torch.cat([safe, torch.zeros(1, dtype=torch.bool)])[cells.owners]
    error, crossed, far = (
        float(bad.double().mean()) for bad in (space.margins <= 0, ~whole, cells.owners == len(safe))
    )
    tau = cells.slack(space.classes, delta)
    terms = (
        ("training error", error),
        ("cells a boundary may cross", crossed - far),
        ("far from every cell", far),
        (SLACK, tau),
    )
    value = math.nextafter(error + crossed + tau, math.inf)
    return promised_row(row, value=value, terms=terms, additive=True, reason="")


def corollary22_local(cells: LocalCells | None, space: CellSpace, delta: float) -> Row:
    """Constants certified ball by ball; distances in a ball are at most its diameter, so no δ is spent on them."""
    row = blank_row(
        space,
        delta,
        "corollary22.local",
        "Corollary 22, certified local constants",
        source=COROLLARY.format(22) + "; cut-off at C and slack ours",
        formula="F(D) + Σ(m_i/m) min(1, 2r·L_i/γ) + share of D outside every ball + τ; " + TAU,
    )
    if space.problem or cells is None or cells.gap:
        return dataclasses.replace(row, reason=space.problem or (cells.gap if cells else NO_CENTRES))
    if space.quantity != "error":
        return dataclasses.replace(row, reason="computed for the ramp only; leave loss= at its default")
    margins, inside = space.margins, cells.owners < len(cells.slopes)
    steep = cells.slopes[cells.owners[inside]]
    far = float((~inside).double().mean())
    error = float((margins <= 0).double().mean())  # the ramp at a margin of nothing, where no ball holds a sample
    best: tuple[float, float, float] = (error + 1 - far, error, 1 - far)
    right = margins[margins > 0]
    for gamma in right.quantile(torch.linspace(0.02, 0.98, 25).double()).tolist() if len(right) else []:
        loss = float((1 - margins / gamma).clamp(0, 1).mean())
        term = float((cells.diameter * steep / gamma).clamp(max=1).sum()) / len(margins)
        best = min(best, (loss + term, loss, term))
    slack = cells.slack(space.classes, delta)
    parts = Parts.added(**{LOSS: best[1], TERM: best[2], "far from every cell": far, SLACK: slack})
    return promised_row(row, value=parts.value, terms=parts.terms, additive=True, reason="")

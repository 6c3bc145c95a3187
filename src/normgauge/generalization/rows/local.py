"""Corollaries 21 and 22: networks without jumps inside a cell, and constants of the network, global and local."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.certificate import Kind, Row, promised
from normgauge.generalization.bounds.cells import tau_variation
from normgauge.generalization.facts.cells import Partition
from normgauge.generalization.facts.slopes import Slopes
from normgauge.generalization.facts.space import Space, ramps
from normgauge.generalization.rows.cells import FORMS, LOSS, SLACK, TERM, additive_row, blank, refused
from normgauge.rules.normalizer import BATCH

COROLLARY = "Than 2025 (arXiv 2511.00958), Corollary {}"
NO_CENTRES = "local cells need inputs the training never saw: give unlabeled= or holdout="


@dataclass(frozen=True, slots=True, eq=False)
class LocalCells:
    """Balls around points the training never saw, and what the network does in each.

    Attributes:
        partition: has a radius.
        cells: (m,) cell times label of D.
        margins: (m,) of D.
        classes: how many labels there are.
        slopes: (centres,) proved Lipschitz constant of the margin in each ball; inf where unknown.
        leads: (centres,) the lead of the winning class at each centre, in the units of the margin.
        gap: why there are no slopes.
    """

    partition: Partition
    cells: Tensor
    margins: Tensor
    classes: int
    slopes: Tensor
    leads: Tensor
    gap: str = ""

    @property
    def diameter(self) -> float:
        """No two points of a ball are farther apart."""
        return 2 * (self.partition.radius or 0.0)

    def owners(self) -> Tensor:
        """(m,) the ball of each sample; ``len(slopes)`` for those far from every centre."""
        return self.cells // self.classes

    def slack(self, delta: float) -> float:
        """What so many cells cost, by total variation."""
        return tau_variation(self.partition.cells * self.classes, len(self.cells), delta)


def corollary22(space: Space, slopes: Slopes, delta: float) -> Iterator[Row]:
    """Theorem 20 with constants of the whole network: as published, folded, and for nets without normalizers."""
    batch = any(record.rule.startswith(BATCH) for record in slopes.normalizers)
    local = any(record.sigma is not None and not record.rule.startswith(BATCH) for record in slopes.normalizers)
    named = ", ".join(dict.fromkeys(record.kind for record in slopes.normalizers)) or "none"
    yield _constant(
        space, slopes, delta, "batch", "BatchNorm folded", slopes.folded, "" if batch else "there is no BatchNorm in it"
    )
    yield _constant(
        space,
        slopes,
        delta,
        "global",
        "LayerNorm, GroupNorm, RMSNorm, 1/√ε",
        slopes.balanced,
        "" if local else f"its normalizers: {named}",
    )
    yield _constant(
        space,
        slopes,
        delta,
        "none",
        "no normalizer",
        slopes.folded,
        "" if not slopes.normalizers else f"the network has normalizers: {named}",
    )
    yield _published(space, slopes, delta, batch, local)


def _constant(space: Space, slopes: Slopes, delta: float, key: str, words: str, slope: float, why_not: str) -> Row:
    row = additive_row(at_slope(space, slope), delta, FORMS[2])
    named = dataclasses.replace(
        row,
        key=f"corollary22.{key}",
        name=f"Corollary 22, {words}",
        source=COROLLARY.format(22),
        formula="Theorem 20 with L = √2·Lip(f)/γ for the ramp at margin γ; " + FORMS[2].formula,
    )
    if why_not and row.kind is not Kind.NOT_APPLICABLE:
        return dataclasses.replace(
            named, kind=Kind.NOT_APPLICABLE, value=None, terms=(), additive=False, needed=None, reason=why_not
        )
    return named


def _published(space: Space, slopes: Slopes, delta: float, batch: bool, local: bool) -> Row:
    name = "log10_corollary10_2" if batch else "log10_corollary11" if local else "log10_P_w"
    slope = slopes.published.get(name, math.inf)
    row = _constant(space, slopes, delta, "published", f"constant as published ({name[6:]})", slope, "")
    if row.kind is Kind.NOT_APPLICABLE or slope >= slopes.balanced:
        return row  # above a proved constant, so itself one
    reason = f"the printed constant {slope:.3g} is below the proved one {slopes.balanced:.3g}: it leaves out the gain γ"
    return dataclasses.replace(row, kind=Kind.ESTIMATE, value=row.value, reason=reason, needed=None)


def at_slope(space: Space, slope: float) -> Space:
    """The same cells, another constant; a loss that is given keeps its own."""
    if space.quantity != "error":
        return space
    return dataclasses.replace(space, slope=slope, choices=ramps(space.margins, slope))


def corollary21(cells: LocalCells | None, space: Space, delta: float) -> Row:
    """The 0-1 loss, which jumps: cells that no boundary crosses change nothing, all others count in full."""
    row = dataclasses.replace(
        blank(space, delta, "corollary21", "Corollary 21, cells no boundary crosses"),
        source=COROLLARY.format(21),
        formula="error on D + share of D in cells a boundary may cross + τ; " + FORMS[2].formula,
        limit=1.0,
        quantity="error",
    )
    if cells is None or cells.gap:
        return dataclasses.replace(row, reason=cells.gap if cells else NO_CENTRES)
    safe = cells.leads > cells.slopes * cells.diameter / 2
    owner = cells.owners()
    whole = torch.cat([safe, torch.zeros(1, dtype=torch.bool)])[owner]
    error = float((cells.margins <= 0).double().mean())
    crossed, far = float((~whole).double().mean()), float((owner == len(safe)).double().mean())
    tau = cells.slack(delta)
    terms = (
        ("training error", error),
        ("cells a boundary may cross", crossed - far),
        ("far from every cell", far),
        (SLACK, tau),
    )
    value = math.nextafter(error + crossed + tau, math.inf)
    return promised(row, value=value, terms=terms, additive=True, reason="")


def corollary22_local(cells: LocalCells | None, space: Space, delta: float) -> Row:
    """Constants certified ball by ball; distances in a ball are at most its diameter, so no δ is spent on them."""
    row = dataclasses.replace(
        blank(space, delta, "corollary22.local", "Corollary 22, certified local constants"),
        source=COROLLARY.format(22),
        formula="F(D) + Σ(m_i/m) min(1, 2r·L_i/γ) + share of D outside every ball + τ; " + FORMS[2].formula,
    )
    stopped = refused(dataclasses.replace(space, gap=""), row)
    if stopped is not None or cells is None or cells.gap:
        return stopped or dataclasses.replace(row, reason=cells.gap if cells else NO_CENTRES)
    if space.quantity != "error":
        return dataclasses.replace(row, reason="computed for the ramp only; leave loss= at its default")
    owner, margins = cells.owners(), cells.margins
    inside = owner < len(cells.slopes)
    steep = torch.cat([cells.slopes, torch.tensor([math.inf], dtype=torch.float64)])[owner]
    far = float((~inside).double().mean())
    tau = cells.slack(delta)
    error = float((margins <= 0).double().mean())  # the ramp at a margin of nothing, where no ball holds a sample
    best: tuple[float, float, float] = (error + 1 - far, error, 1 - far)
    right = margins[margins > 0]
    for gamma in right.quantile(torch.linspace(0.02, 0.98, 25).double()).tolist() if len(right) else []:
        loss = float((1 - margins / gamma).clamp(0, 1).mean())
        term = float((cells.diameter * steep / gamma).clamp(max=1)[inside].sum()) / len(margins)
        best = min(best, (loss + term, loss, term))
    terms = ((LOSS, best[1]), (TERM, best[2]), ("far from every cell", far), (SLACK, tau))
    value = math.nextafter(math.fsum(v for _, v in terms), math.inf)
    return promised(row, value=value, terms=terms, additive=True, reason="")

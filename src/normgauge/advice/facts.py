"""Facts that ask for no action: which normalizers hold the slope down, and which layer owns the gap."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from normgauge.advice.remark import Remark, Severity
from normgauge.advice.whatif.question import can_leave
from normgauge.core.first_notes import counts_unreached
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render.numbers import UP, format_factor, plural

LISTED = 3


def control(model: nn.Module, reading: Reading) -> Iterator[Remark]:
    """The normalizers with the smallest gains at the samples."""
    norms = sorted((r for r in reading.layers if r.sigma is not None), key=lambda r: r.log_stretch)
    if not norms:
        return
    told = ", ".join(f"{r.name} ({format_factor(r.log_stretch, UP)})" for r in norms[:LISTED])
    most, asked = norms[0], next((r.name for r in norms if can_leave(model, reading, r.name)), None)
    ask = "" if asked is None else f' ng.what_if(model, batch).without("{asked}") measures the network without one.'
    yield Remark(
        "control",
        most.name,
        f"of {plural(len(norms), 'normalizer')} these multiply a small change by least at the samples: {told}. This "
        "ranks them with the weights as they are written; a rescaling that leaves the function alone can change it."
        + ask,
        {r.name: r.log_stretch / LN10 for r in norms[:LISTED]},
        Severity.FACT,
        depth=most.depth,
    )


def gap_remarks(reading: Reading) -> Iterator[Remark]:
    """The layer whose gain reaches furthest beyond what it did along the steepest direction found."""
    owner, gap = reading.gap_owner(), (reading.log_capacity - reading.log_lower) / LN10
    if owner is None or not 0.05 < gap < float("inf") or owner.log_slack_reaching > gap * LN10:
        return
    share = owner.log_slack_reaching / LN10
    others = (
        "rows that do not reach the output, such as padding, are a part of that (samples of one length have none); "
    )
    others = f"{others}with normalizers counted over the other rows, " if counts_unreached(reading.notes) else ""
    yield Remark(
        "gap",
        owner.name,
        f"at the samples the bound composed of the layers' gains lies {gap:.2f} decades above the largest slope found; "
        f"{others}{owner.name} ({owner.kind}) has the largest share, {share:.2f}.",
        {"gap": gap, "share": share},
        Severity.FACT,
        depth=owner.depth,
    )

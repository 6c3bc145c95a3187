"""Several networks side by side: what sets them apart in two sentences, one bracket, one table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.core.reading import Reading
from normgauge.render import parts
from normgauge.render.bracket import Row, bracket
from normgauge.render.groups import Group
from normgauge.render.numbers import decades, factor, plural, power, where
from normgauge.render.panel import figure
from normgauge.render.svg import NARROW, WIDE
from normgauge.render.table import Grid
from normgauge.render.verdict import alarm, known


def overview(groups: Sequence[Group], extra: Sequence[Row], lead: Sequence[str] = ()) -> str:
    """The first section of a page about several networks.

    Args:
        groups: the networks; the section of the i-th has the id ``g{i}``.
        extra: rows of the bracket beside theirs.
        lead: what to say first, in place of `compared`.
    """
    named = [
        (f"{group.label}, {reading.scope}" if len(group.readings) > 1 else group.label, reading, i)
        for i, group in enumerate(groups)
        for reading in group.readings
    ]
    firsts = {id(group.readings[0]) for group in groups if len(group.readings) > 1}
    rows = [*(Row(name, reading, "now" if id(reading) in firsts else "") for name, reading, _ in named), *extra]
    drawn = figure("Where the truth lies", *(bracket(rows, shape) for shape in (WIDE, NARROW)))
    refuted = [f"{name}: {alarm(reading)}" for name, reading, _ in named if reading.log_refuted is not None]
    warned = "".join(f'<p class="warn">{parts.words(sentence)}</p>' for sentence in refuted)
    told = " ".join(lead) or compared(groups)
    table = parts.html_table(_totals([(name, r) for name, r, _ in named]), [f"g{i}" for _, _, i in named])
    opening = f'<h2 class="first">Side by side</h2>{warned}<p class="verdict">{parts.words(told)}</p>'
    return f"<section>{opening}{drawn}{table}</section>"


def compared(groups: Sequence[Group]) -> str:
    """Which network is held tightest, which loosest, and where the steepest slope was found."""
    scopes = {group.readings[0].scope for group in groups}
    found = max(((g, r) for g in groups for r in g.readings), key=lambda pair: pair[1].log_lower)
    steepest = f"The steepest slope found is {factor(found[1].log_lower)}, in {found[0].label} {where(found[1].scope)}."
    if len(scopes) > 1:
        return f"{plural(len(groups), 'network')}, measured in different scopes. {steepest}"
    ranked = sorted(groups, key=lambda group: group.readings[0].log_upper)
    low, high = ranked[0], ranked[-1]
    place = where(low.readings[0].scope)
    bounds = [factor(group.readings[0].log_upper) for group in (low, high)]
    if math.isinf(high.readings[0].log_upper):
        bounds[1] = "no finite bound"
    return (
        f"Of {plural(len(groups), 'network')}, {low.label} has the smallest bound {place}, {bounds[0]}, and "
        f"{high.label} the largest, {bounds[1]}. {steepest}"
    )


def _totals(named: Sequence[tuple[str, Reading]]) -> Grid:
    rows = tuple(
        (
            name,
            reading.mode,
            str(reading.scope),
            power(reading.log_lower),
            power(reading.log_upper),
            decades(reading.log_folded),
            "inf" if math.isinf(reading.gap) else f"{reading.gap:.2f}",
            known(reading),
        )
        for name, reading in named
    )
    headers = ("reading", "mode", "scope", "at least (found)", "at most", "log10 folded", "gap, decades", "evidence")
    return Grid("Totals: what was found, and what is at most possible", headers, rows, frozenset({3, 4, 5, 6}))

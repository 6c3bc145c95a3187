"""Readings as one self-contained HTML page: no network, one script of our own, every name escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from normgauge.core.reading import Reading
from normgauge.errors import ReadingError
from normgauge.render.bracket import Row, bracket
from normgauge.render.document import document, facts, paragraphs, section, write_page
from normgauge.render.glossary import TERMS
from normgauge.render.groups import Group, grouped
from normgauge.render.markup import Markup, markup, tag
from normgauge.render.numbers import decades, factor, plural, power, where
from normgauge.render.panel import panel, rules
from normgauge.render.svg import both, figure
from normgauge.render.table import Grid, html_table
from normgauge.render.verdict import alarm, known


def report(
    readings: Reading | Sequence[Reading],
    path: str | Path,
    *,
    labels: Sequence[str] | None = None,
    title: str = "normgauge report",
    lead: Sequence[str] = (),
    beside: Sequence[tuple[str, Reading]] = (),
) -> Path:
    """Write one HTML page about one or more readings.

    Args:
        readings: what to show, in this order; one network's scopes, next to each other, share a section.
        path: the file to write.
        labels: a name for each reading; the model's class name where it is not given.
        title: heading of the page.
        lead: sentences to open with.
        beside: readings to compare with, each with a label: extra rows in the bracket.

    Returns:
        The path written.

    Raises:
        ReadingError: when there is nothing to show, or labels and readings differ in number.
        InputError: when the file cannot be written.
    """
    items = [readings] if isinstance(readings, Reading) else list(readings)
    if not items:
        raise ReadingError("a report needs at least one reading, got none")
    if labels is not None and len(labels) != len(items):
        raise ReadingError(f"expected one label for each of {len(items)} readings, got {len(labels)}")
    return write_page(html(grouped(items, labels), title, lead, beside), path)


def html(
    groups: Sequence[Group], title: str, lead: Sequence[str] = (), beside: Sequence[tuple[str, Reading]] = ()
) -> str:
    """The page as a string."""
    return document(title, _subtitle(groups), body(groups, lead, beside))


def body(groups: Sequence[Group], lead: Sequence[str] = (), beside: Sequence[tuple[str, Reading]] = ()) -> Markup:
    """Everything between heading and end."""
    extra = [Row(label, reading, "beside") for label, reading in beside]
    used = rules([reading for group in groups for reading in group.readings])
    back = (
        tag("details", tag("summary", tag("h2", "Rules used")), used, class_="part") if used else None,
        section("Glossary", facts(TERMS)),
    )
    if len(groups) == 1:
        opening = paragraphs([" ".join(lead)] if lead else [], "verdict")
        return markup(opening, _group(groups[0], "g0", extra, 2, opened=True), back)
    networks = (
        section(group.label, _group(group, f"g{i}", [], 3, opened=False), class_="network", id=f"g{i}")
        for i, group in enumerate(groups)
    )
    return markup(overview(groups, extra, lead), networks, back)


def _subtitle(groups: Sequence[Group]) -> str:
    if len(groups) > 1:
        return plural(sum(len(group.readings) for group in groups), "reading")
    first = groups[0].readings[0]
    label = groups[0].label
    name = first.model if label == first.model else f"{label} ({first.model})"
    return f"{name}, mode {first.mode}, {plural(len(first.layers), 'layer')}, {plural(len(first.samples), 'sample')}"


def _group(group: Group, key: str, extra: Sequence[Row], level: int, *, opened: bool) -> Markup:
    several = len(group.readings) > 1

    def rows(shown: Reading) -> list[Row]:
        own = [Row(where(r.scope), r, "now" if several and r is shown else "") for r in group.readings]
        return [*own, *extra]

    panels = (
        panel(reading, rows(reading), f"{key}s{i}", level, opened=opened, heading=several)
        for i, reading in enumerate(group.readings)
    )
    return tag("div", panels, class_="group")


def overview(groups: Sequence[Group], extra: Sequence[Row], lead: Sequence[str] = ()) -> Markup:
    """Several networks side by side: what sets them apart in two sentences, one bracket, one table.

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
    refuted = [f"{name}: {alarm(reading)}" for name, reading, _ in named if reading.log_refuted is not None]
    return tag(
        "section",
        tag("h2", "Side by side", class_="first"),
        paragraphs(refuted, "warn"),
        paragraphs([" ".join(lead) or compared(groups)], "verdict"),
        figure("Where the truth lies", both(lambda shape: bracket(rows, shape))),
        html_table(_totals(named)),
    )


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


def _totals(named: Sequence[tuple[str, Reading, int]]) -> Grid:
    rows = tuple(
        (
            tag("a", name, href=f"#g{i}"),
            reading.mode,
            str(reading.scope),
            power(reading.log_lower),
            power(reading.log_upper),
            decades(reading.log_folded),
            "inf" if math.isinf(reading.gap) else f"{reading.gap:.2f}",
            known(reading),
        )
        for name, reading, i in named
    )
    headers = ("reading", "mode", "scope", "at least (found)", "at most", "log10 folded", "gap, decades", "evidence")
    return Grid("Totals: what was found, and what is at most possible", headers, rows, frozenset({3, 4, 5, 6}))

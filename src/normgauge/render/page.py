"""Readings as one self-contained HTML page: no network, one script of our own, every name escaped."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path

from normgauge.core.bound import Scope
from normgauge.core.errors import ReadingError
from normgauge.core.first_notes import measured_output
from normgauge.core.reading import Reading
from normgauge.render.bracket import BracketRow, bracket_figure
from normgauge.render.compared import compared_networks, network_warnings, refuted_networks
from normgauge.render.document import document, fact_list, paragraphs, section, write_file
from normgauge.render.groups import Group, distinct_trainings, grouped_readings
from normgauge.render.markup import Markup, markup, tag
from normgauge.render.numbers import UP, format_decades, plural, scope_words
from normgauge.render.panel import panel, used_rules
from normgauge.render.table import Grid, html_table
from normgauge.render.verdict import edit_contradicts, evidence_words, found_words, most_words, sample_count

TERMS = (
    ("at most, upper", "A factor no slope in the scope exceeds: the smallest bound, rounded up. Its evidence says how "
     "it is known."),
    ("at least, lower, found", "The largest slope met on actual inputs. The network has it; it may have larger ones."),
    ("gap", "The distance between found and upper, in decades. The truth lies inside it."),
    ("decade", "A factor of ten. All tables count in decades: 2 means a factor of 100, -1 a tenth."),
    ("gain", "A bound: one layer alone stretches a small change of its input by at most this, anywhere in the scope."),
    ("cumulative, layer by layer", "The bound from the network's input to a layer's output when every layer's gain is "
     "taken alone: gains multiply in a chain and add where branches meet."),
    ("folded", "The bound when linear maps are taken together with the normalizers beside them, which is less than "
     "one after the other. In the table: a layer's share of it."),
    ("balanced", "The folded bound, minimised over the rescalings of hidden values that leave the function alone. In "
     "the table: a layer's share in the solution found; only the total is unique."),
    ("gauge", "A way to write the same function down with other weights, such as larger weights before a BatchNorm "
     "with a larger σ. What depends on the gauge is no property of the network."),
    ("published products", "Products of norms and of 1/σ as the literature states them. They depend on the gauge."),
    ("reached", "How much a direction had grown by a layer's output, observed: the steepest one found at the samples, "
     "and in a ball or everywhere the one at the sample where the search for slopes began."),
    ("slack", "What a layer's gain allows over what the layer did to that direction. In a chain the slacks add up to "
     "how far the balanced bound lies above what the whole network did to it."),
    ("scope", "Where an upper bound holds. point: at the samples and nowhere else. ball:R: for all inputs within R of "
     "a sample. global: for all inputs."),
    ("sigma, σ", "What a normalizer divides by: √(variance + ε), one for each channel, group or row."),
    ("eps, ε", "The small constant under that root. It keeps σ at √ε or more, so it caps a normalizer's gain."),
    ("γ", "A normalizer's own weights, by which it multiplies after the division."),
    ("proved", "Follows from the rules for all inputs of the scope, in exact arithmetic on the stored weights."),
    ("on the same path", "The model looks at its data to decide what to do; the bound holds where they take the path "
     "that was traced."),
    ("computed", "Holds up to the rounding of float64, which is not enclosed."),
    ("estimated", "A proof was possible only in part; the notes say why."),
    ("observed", "Met on actual inputs: true there, and no statement about other inputs."),
    ("refuted", "A slope was found above a bound: the bound is wrong and taken back, and no upper end is left. Where "
     "the file was edited it tells of the edit, and of no bound."),
    ("median", "Of an even number of slopes the geometric mean of the two in the middle. Of trainings whose slopes are "
     "only enclosed: the median of what was found and that of the bounds, each by itself."),
    ("unknown", "A step has no bound, or the trace is not what the model does: nothing is proved. The step is named."),
    ("unbounded", "A step that provably has no finite gain in the scope."),
    ("no bound found", "A step for which no finite gain was found, where one may exist."),
    ("rule, claim", "The formula a layer's gain comes from, and the number of the statement it rests on."),
)  # fmt: skip


def bracket_rows(named: Sequence[tuple[str, str, Reading]], chosen: Collection[int] = ()) -> list[BracketRow]:
    """A row a name and scope, about all trainings that share them.

    Args:
        named: of each reading the name of its row, and its own.
        chosen: the ids of the readings to point out.
    """
    rows: dict[tuple[str, Scope], list[Reading]] = {}
    for name, _, reading in named:
        rows.setdefault((name, reading.scope), []).append(reading)
    own = {id(reading): name for _, name, reading in named}
    found = []
    for (name, _), readings in rows.items():
        first, *others = distinct_trainings([r for r in readings if not edit_contradicts(r)] or readings)
        kind = "now" if id(first) in chosen else ""
        found.append(BracketRow(name, first, kind, tuple(others), tuple(own[id(r)] for r in (first, *others))))
    return found


def report(
    readings: Reading | Sequence[Reading],
    path: str | Path,
    *,
    labels: Sequence[str] | None = None,
    title: str = "normgauge report",
    lead: Sequence[str] = (),
    beside: Sequence[tuple[str, Reading]] = (),
    files: Sequence[str] | None = None,
) -> Path:
    """Write one HTML page about one or more readings.

    Args:
        readings: what to show, in this order; one network's scopes, next to each other, share a section.
        path: the file to write.
        labels: a name for each reading; the model's class name where it is not given. Readings that share one in the
            same scope are several trainings of a network, told by their median and range; those with the same weights
            are one.
        title: heading of the page.
        lead: sentences to open with.
        beside: readings to compare with, each with a label: extra rows in the bracket.
        files: where each reading is from, to tell trainings with one label apart.

    Returns:
        The path written.

    Raises:
        ReadingError: when there is nothing to show, or labels and readings differ in number.
        InputError: when the file cannot be written.
    """
    if isinstance(readings, str | Path):
        raise ReadingError(f"report: expected readings first and the file second, got {readings!r} first")
    items = [readings] if isinstance(readings, Reading) else list(readings)
    if not items:
        raise ReadingError("a report needs at least one reading, got none")
    if labels is not None and len(labels) != len(items):
        raise ReadingError(f"expected one label for each of {len(items)} readings, got {len(labels)}")
    groups = grouped_readings(items, labels, files)
    return write_file(document(title, _subtitle(groups), body(groups, lead, beside)), path)


def body(groups: Sequence[Group], lead: Sequence[str] = (), beside: Sequence[tuple[str, Reading]] = ()) -> Markup:
    """Return everything below the heading of the page."""
    extra = [BracketRow(label, reading, "beside") for label, reading in beside]
    used = used_rules([reading for group in groups for reading in group.readings])
    back = (
        tag("details", tag("summary", tag("h2", "Rules used")), used, class_="part") if used else None,
        section("Glossary", fact_list(TERMS), class_="glossary"),
    )
    if len(groups) == 1:
        opening = paragraphs([" ".join(lead)] if lead else [], "verdict")
        return markup(opening, _group(groups[0], "g0", extra, 2, opened=True), back)
    networks = (
        section(group.label, _group(group, f"g{i}", [], 3, opened=False), class_="network", id=f"g{i}")
        for i, group in enumerate(groups)
    )
    return markup(network_overview(groups, extra, lead), networks, back)


def _subtitle(groups: Sequence[Group]) -> str:
    if len(groups) > 1:
        return plural(sum(len(group.readings) for group in groups), "reading")
    first = groups[0].readings[0]
    label = groups[0].label
    name = first.model if label == first.model else f"{label} ({first.model})"
    output = measured_output(first.notes)
    name += f", {first.input_name} to {output}" if output else ""
    return f"{name}, mode {first.mode}, {plural(len(first.layers), 'layer')}, {sample_count(first)}"


def _group(group: Group, key: str, extra: Sequence[BracketRow], level: int, *, opened: bool) -> Markup:
    several = len(group.readings) > 1

    def rows(shown: Reading) -> list[BracketRow]:
        own = [BracketRow(scope_words(r.scope), r, "now" if several and r is shown else "") for r in group.readings]
        return [*own, *extra]

    panels = (
        panel(reading, rows(reading), f"{key}s{i}", level, opened=opened, heading=several)
        for i, reading in enumerate(group.readings)
    )
    return tag("div", panels, class_="group")


def network_overview(groups: Sequence[Group], extra: Sequence[BracketRow], lead: Sequence[str] = ()) -> Markup:
    """Several networks side by side: what sets them apart in words, one bracket, one table.

    Args:
        groups: the networks; the section of the i-th has the id ``g{i}``.
        extra: rows of the bracket beside theirs.
        lead: what to say first, in place of `compared_networks`.
    """
    each = [(group, reading, i) for i, group in enumerate(groups) for reading in group.readings]
    named = [(group.row_name(reading), reading, i) for group, reading, i in each]
    drawn = [(group.row_name(reading, group.name), group.row_name(reading), reading) for group, reading, _ in each]
    firsts = {id(group.readings[0]) for group in groups if len(group.readings) > 1}
    rows = [*bracket_rows(drawn, firsts), *extra]
    return tag(
        "section",
        tag("h2", "Side by side", class_="first"),
        paragraphs(refuted_networks(groups), "warn"),
        paragraphs([] if lead else network_warnings(groups), "warn"),
        paragraphs([" ".join(lead)] if lead else compared_networks(groups), "verdict"),
        bracket_figure(rows),
        html_table(_totals(named)),
    )


def _totals(named: Sequence[tuple[str, Reading, int]]) -> Grid:
    rows = tuple(
        (
            tag("a", name, href=f"#g{i}"),
            reading.mode,
            str(reading.scope),
            found_words(reading),
            most_words(reading),
            format_decades(reading.log_folded, way=UP),
            "inf" if math.isinf(reading.gap) else f"{reading.gap:.2f}",
            evidence_words(reading),
        )
        for name, reading, i in named
    )
    headers = ("reading", "mode", "scope", "at least (found)", "at most", "log10 folded", "gap, decades", "evidence")
    return Grid("Totals: slopes found, and bounds", headers, rows, frozenset({3, 4, 5, 6}))

"""The smaller parts of the page: samples, rules, published products, losses, and what was assumed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from normgauge.core.bound import Evidence
from normgauge.core.reading import Finding, Reading
from normgauge.core.spelled import LN10
from normgauge.render import table, verdict
from normgauge.render.numbers import decades, factor, plural, power, where
from normgauge.render.table import Grid

SHOWN = 8
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+")
EVIDENCE = {
    Evidence.PROVED: "proved: holds for all inputs of the scope, in exact arithmetic on the stored weights",
    Evidence.COMPUTED: "computed: holds up to the rounding of float64, which is not enclosed",
    Evidence.ESTIMATED: "estimated: a proof was possible only in part, see the notes",
    Evidence.OBSERVED: "observed on actual inputs only",
    Evidence.REFUTED: "refuted: a slope was found above it, so it is wrong and taken back",
    Evidence.UNKNOWN: "unknown: a step has no bound, or the trace is not the model; nothing is proved",
}
MODES = {"eval": "eval: as it predicts", "train": "train: the map of the whole batch, with the batch's own statistics"}


def words(sentence: str) -> str:
    """A sentence as HTML, with powers of ten raised."""
    return re.sub(r"\b10\^(-?\d+(?:\.\d+)?)", r"10<sup>\1</sup>", escape(sentence))


def html_table(grid: Grid, links: Sequence[str] = ()) -> str:
    """A grid as an HTML table with a scrollbar of its own where the screen is narrow.

    Args:
        grid: what to draw; the first column names the row.
        links: ids on this page, one for each row's first cell.
    """

    def cell(column: int, content: str, row: int) -> str:
        shown = f'<a href="#{links[row]}">{escape(content)}</a>' if links and column == 0 else words(content)
        kind = ' class="n"' if column in grid.numeric else ""
        return f'<th scope="row">{shown}</th>' if column == 0 else f"<td{kind}>{shown}</td>"

    heads = "".join(
        f'<th scope="col"{" class=n" if i in grid.numeric else ""}>{escape(h)}</th>' for i, h in enumerate(grid.headers)
    )
    body = "".join(
        "<tr>" + "".join(cell(i, content, row) for i, content in enumerate(cells)) + "</tr>"
        for row, cells in enumerate(grid.rows)
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(grid.title)}" tabindex="0"><table><caption>'
        f"{escape(grid.title)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def samples(reading: Reading) -> str:
    """The most sensitive samples, with their pictures where there are any."""
    ranked = sorted(reading.samples, key=lambda s: -float(s.get("log10_lower") or 0.0))[:SHOWN]
    if not ranked:
        return ""
    cards = "".join(_card(sample) for sample in ranked)
    count = len(reading.samples)
    told = (
        f"<p>The {len(ranked)} of {plural(count, 'sample')} with the steepest slopes found.</p>"
        if count > len(ranked)
        else f"<p>All {plural(count, 'sample')}, the steepest slope found first.</p>"
    )
    return f'{told if count > 1 else ""}<ul class="cards">{cards}</ul>'


def _card(sample: Mapping[str, Any]) -> str:
    index = escape(str(sample.get("index", "")))
    picture = sample.get("picture")
    shown = ""
    if isinstance(picture, str) and PICTURE.fullmatch(picture):
        shown = f'<img src="{picture}" alt="sample {index}">'
    bounds = [
        f"{name} {words(factor(float(sample[key]) * LN10))}"
        for name, key in (("found", "log10_lower"), ("at most", "log10_upper"))
        if sample.get(key) is not None
    ]
    return f"<li>{shown}<b>sample {index}</b><br>{'<br>'.join(bounds)}</li>"


def products(reading: Reading) -> str:
    """The published products."""
    return html_table(table.published(reading)) if reading.published else ""


def losses(reading: Reading) -> str:
    """Constants of usual losses in the input."""
    rows = tuple((name, decades(value * LN10)) for name, value in reading.loss.items())
    title = "How fast a loss of one sample can change with the input: upper bound times the loss's own constant"
    return html_table(Grid(title, ("loss", "log10"), rows, frozenset({1}))) if rows else ""


def rules(readings: Sequence[Reading]) -> str:
    """Formula, validity and source of every rule used."""
    texts = {name: text for reading in readings for name, text in reading.rules.items()}
    items = "".join(
        f'<div data-rule="{escape(name)}"><dt>{escape(name)}</dt>'
        f'<dd class="formula">{escape(t.get("formula", ""))}</dd>'
        + "".join(f"<dd>{k}: {escape(t[k])}</dd>" for k in ("holds", "source") if t.get(k))
        + "</div>"
        for name, t in sorted(texts.items())
    )
    return f'<dl class="rules">{items}</dl>' if items else ""


def assumed(reading: Reading) -> str:
    """Everything the numbers rest on, as a list of terms."""
    rows = "".join(
        f"<div><dt>{escape(term)}</dt>" + "".join(f"<dd>{words(line)}</dd>" for line in told) + "</div>"
        for term, told in _facts(reading)
        if told
    )
    return f'<dl class="facts">{rows}</dl>'


def _facts(reading: Reading) -> Iterator[tuple[str, Sequence[str]]]:
    yield "network", [reading.model]
    yield "mode", [MODES.get(reading.mode, reading.mode)]
    yield "scope", [f"{reading.scope}: {where(reading.scope)}"]
    yield "measured", [f"from {reading.input_name} to the output, {plural(len(reading.samples), 'sample')}"]
    yield "upper bound", [EVIDENCE[reading.evidence], *verdict.conditions(reading)]
    yield "found slope", _witness(reading)
    moved = reading.displacement
    yield "output moves by", [] if moved is None else [f"at most {power(moved)} while the input stays in the ball"]
    yield "minimised over", reading.gauges
    yield "unknown", _named(reading.unknown)
    yield "unbounded", _named(reading.unbounded)
    yield "no bound found", _named(reading.no_bound)
    yield "notes", reading.notes
    yield "CPU seconds", [", ".join(f"{part} {spent:.2g}" for part, spent in reading.seconds.items())]
    yield "traced in", [reading.precision] if reading.precision else []
    yield "weights", [reading.weights] if reading.weights else []
    yield "normgauge", [reading.version]


def _witness(reading: Reading) -> list[str]:
    seen = reading.witness
    if seen is None:
        return ["observed on actual inputs"]
    return [
        f"observed {seen.where}: the input moved by {seen.input_change:.3g} and the output by {seen.output_change:.3g}"
    ]


def _named(findings: Sequence[Finding]) -> list[str]:
    return [f"{finding.name}: {finding.why}" for finding in findings]

"""Readings as one self-contained HTML page: no script, no network, every name escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from normgauge.core.reading import Reading
from normgauge.errors import ReadingError
from normgauge.render import table, verdict
from normgauge.render.numbers import decades, power
from normgauge.render.svg import waterfall
from normgauge.render.table import Grid

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .7rem; border-bottom: 1px solid #eee; overflow-wrap: break-word; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; } .dim { color: #666; font-size: .9rem; }
.waterfall { width: 100%; height: auto; } .waterfall .tick { stroke: #eee; } .waterfall .zero { stroke: #999; }
.waterfall .axis { font: 12px system-ui, sans-serif; fill: #555; } .waterfall .weight { fill: #c8553d; }
.waterfall .norm { fill: #2b6c8f; } .waterfall .open { fill: #8a2be2; }
.waterfall .line { fill: none; stroke: #111; stroke-width: 2; }
.key span { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
"""

KEY = (
    '<p class="dim key"><span style="background:#c8553d"></span>weights and other steps'
    '<span style="background:#2b6c8f"></span>normalizers<span style="background:#8a2be2"></span>no finite gain'
    '<span style="background:#111"></span>bound from the input to here. Bars are each layer\'s own log10 gain, '
    "stacked as if the layers stood in series.</p>"
)


def report(
    readings: Reading | Sequence[Reading],
    path: str | Path,
    *,
    labels: Sequence[str] | None = None,
    title: str = "normgauge report",
    lead: Sequence[str] = (),
) -> Path:
    """Write one HTML page about one or more readings.

    Args:
        readings: what to show, in this order.
        path: the file to write.
        labels: a name for each reading; the model's class name and the scope where it is not given.
        title: heading of the page.
        lead: sentences to open with; the first reading's verdict where there are none.

    Returns:
        The path written.

    Raises:
        ReadingError: when there is nothing to show, or labels and readings differ in number.
    """
    items = [readings] if isinstance(readings, Reading) else list(readings)
    if not items:
        raise ReadingError("a report needs at least one reading, got none")
    names = [f"{r.model}, {r.scope}" for r in items] if labels is None else list(labels)
    if len(names) != len(items):
        raise ReadingError(f"expected one label for each of {len(items)} readings, got {len(names)}")
    page = Path(path)
    page.write_text(html(items, names, title, lead), encoding="utf-8")
    return page


def html(items: Sequence[Reading], names: Sequence[str], title: str, lead: Sequence[str] = ()) -> str:
    """The page as a string."""
    opening = list(lead) or [verdict.upper_sentence(items[0]), verdict.bracket_sentence(items[0])]
    sections = "".join(_section(reading, name) for reading, name in zip(items, names, strict=True))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(' '.join(opening))}</p>{_grid(_overview(items, names))}{sections}"
        "</body></html>\n"
    )


def _overview(items: Sequence[Reading], names: Sequence[str]) -> Grid:
    rows = tuple(
        (
            name,
            reading.mode,
            str(reading.scope),
            power(reading.log_upper),
            decades(reading.log_folded),
            power(reading.log_lower),
            "inf" if reading.gap == float("inf") else f"{reading.gap:.2f}",
            "unknown" if reading.unknown else str(reading.evidence),
        )
        for reading, name in zip(items, names, strict=True)
    )
    headers = ("reading", "mode", "scope", "at most", "log10 folded", "at least (found)", "gap, decades", "evidence")
    return Grid("Totals", headers, rows, frozenset({3, 4, 5, 6}))


def _section(reading: Reading, name: str) -> str:
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict.verdict(reading))
    balance = verdict.balance_sentence(reading)
    parts = [f"<h2>{escape(name)}</h2>{sentences}", f"<p>{escape(balance)}</p>" if balance else ""]
    if reading.layers:
        parts += [waterfall(reading), KEY, _details("Layers", table.layers(reading, every=True))]
    if reading.published:
        parts.append(_details("Published, gauge-dependent products", table.published(reading)))
    return "".join(parts)


def _details(summary: str, grid: Grid) -> str:
    return f"<details><summary>{escape(summary)}</summary>{_grid(grid)}</details>"


def _grid(grid: Grid) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        classes = [' class="n"' if i in grid.numeric else "" for i in range(len(cells))]
        return "".join(f"<{tag}{c}>{escape(cell)}</{tag}>" for c, cell in zip(classes, cells, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in grid.rows)
    return (
        f"<table><caption>{escape(grid.title)}</caption><thead><tr>{line(grid.headers, 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )

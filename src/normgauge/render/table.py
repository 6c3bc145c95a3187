"""The rows of a reading's tables, as strings; console and page only draw them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.reading import LayerRecord, Reading
from normgauge.render import published as products
from normgauge.render.numbers import ABSENT, decades, factor, power, sigma_range, where
from normgauge.render.verdict import known

TOP_ROWS = 30
MEANING = (  # one line of 120 columns
    "gain: what the layer alone allows; folded, balanced: its share of those bounds; cumulative: from the input to here"
)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table to draw: headers, rows of the same length, and which columns hold numbers."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    footer: str = ""


def totals(readings: Sequence[Reading]) -> Grid:
    """One labelled upper bound for each scope beside the slope found there, and the largest slope found."""
    rows = [
        (
            "at most, " + where(r.scope),
            str(r.scope),
            power(r.log_upper),
            known(r),
            factor(r.log_lower),
        )
        for r in readings
    ]
    found = max(readings, key=lambda r: r.log_lower)
    rows.append(
        ("at least, the largest slope found", str(found.scope), power(found.log_lower), "observed", ABSENT),
    )
    return Grid(
        "How much a small change of the input can grow",
        ("", "scope", "factor", "evidence", "found there"),
        tuple(rows),
        frozenset({2, 4}),
    )


def layers(reading: Reading, every: bool = False) -> Grid:
    """One row a layer, in the order of execution; the most active ones of a long network unless ``every``."""
    shown = reading.layers if every else _most_active(reading.layers)
    rows = tuple(
        (
            r.name,
            r.kind,
            decades(r.gain.hi),
            decades(r.log_folded),
            decades(r.log_balanced),
            decades(r.log_cumulative),
            sigma_range(r.sigma),
            r.note,
        )
        for r in shown
    )
    hidden = len(reading.layers) - len(rows)
    cut = f"{hidden} of {len(reading.layers)} layers that change little are not shown (--all shows them)\n"
    headers = ("layer", "kind", "gain", "folded", "balanced", "cumulative", "σ", "note")
    title = f"Layers, scope {reading.scope}: log10 of what each does"
    return _without_empty(Grid(title, headers, rows, frozenset(range(2, 7)), (cut if hidden else "") + MEANING))


def _without_empty(grid: Grid) -> Grid:
    """The grid without the columns in which nothing stands."""
    kept = [i for i in range(len(grid.headers)) if any(row[i] not in ("", ABSENT) for row in grid.rows)]
    return Grid(
        grid.title,
        tuple(grid.headers[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in grid.rows),
        frozenset(new for new, old in enumerate(kept) if old in grid.numeric),
        grid.footer,
    )


def published(reading: Reading) -> Grid:
    """The papers' products, labelled as what they are."""
    rows = tuple(products.rows(reading.published))
    return Grid(
        "Published quantities: gauge-dependent, a rescaling that leaves the function alone moves them",
        ("quantity", "log10"),
        rows,
        frozenset({1}),
    )


def _most_active(records: Sequence[LayerRecord]) -> list[LayerRecord]:
    if len(records) <= TOP_ROWS:
        return list(records)

    def activity(record: LayerRecord) -> float:
        shares = [record.gain.hi, *(s for s in (record.log_folded, record.log_balanced) if s is not None)]
        return math.inf if record.note else max(abs(s) for s in shares)

    kept = {id(r) for r in sorted(records, key=activity, reverse=True)[:TOP_ROWS]}
    return [r for r in records if id(r) in kept]

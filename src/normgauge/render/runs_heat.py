"""Every layer over time as one map a quantity and run: what changes, where and when, at a glance."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from normgauge.render import svg
from normgauge.render.runs_data import Labelled, called, cells, chosen, evidence, warned
from normgauge.render.runs_png import ABSENT, LEVELS, NOT_FINITE, picture
from normgauge.render.svg import Scale, Shape

QUANTITIES = (
    ("norm_lower", "norm, lower end"),
    ("sigma_rms", "σ rms"),
    ("scale_free_gradient", "‖w‖·‖∇‖"),
    ("effective_lr", "effective lr"),
    ("update_ratio", "update / weight"),
)
BINS, ROWS, CELLS = 140, 256, 24_000
WIDE = Shape("wide", 960, 0, 170, 14, 0)
NARROW = Shape("narrow", 380, 0, 96, 8, 0)
TOP, FOOT = 8.0, 22.0


@dataclass(frozen=True, slots=True)
class Map:
    """The cells of one run.

    Attributes:
        names: of the rows.
        rows: a byte a cell.
        alarms: step and row of each alarm; no row where its layer is not on the map.
    """

    names: Sequence[str]
    rows: Sequence[bytes]
    alarms: Sequence[tuple[int, int | None]]


def heat_maps(runs: Sequence[Labelled], span: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Title and figures of each quantity that any run has: one map a run, on one scale."""
    for column, title in QUANTITIES:
        values = [(item, _values(item, column, span)) for item in runs]
        logs = [math.log10(v) for _, rows in values for _, row in rows for v in row if v and math.isfinite(v) and v > 0]
        if logs:
            ends = (min(logs), max(logs)) if max(logs) > min(logs) else (min(logs) - 0.5, max(logs) + 0.5)
            known = f"{title} ({evidence(runs[0].run, column.replace('update_ratio', 'update'))})"
            drawn = "".join(_figure(item, rows, ends, span, known) for item, rows in values if rows)
            yield known, drawn + _key(ends)


def _values(item: Labelled, column: str, span: tuple[int, int]) -> list[tuple[str, list[float | None]]]:
    """Name and values of every layer that has the quantity; beyond ``ROWS`` layers neighbours share a row."""
    names = item.run.layers
    bins = max(min(BINS, CELLS // max(min(len(names), ROWS), 1)), 24)
    picked = chosen(item.run.steps, *span, bins)
    taken: dict[int, list[float | None]] = {}  # lines that fill several cells are read once
    columns = []
    for record in picked:
        if record is not None and id(record) not in taken:
            taken[id(record)] = cells(record, column, len(names))
        columns.append([None] * len(names) if record is None else taken[id(record)])
    rows = [(name, [line[i] for line in columns]) for i, name in enumerate(names)]
    return _shared([(name, row) for name, row in rows if any(v is not None for v in row)])


def _shared(rows: list[tuple[str, list[float | None]]]) -> list[tuple[str, list[float | None]]]:
    size = math.ceil(len(rows) / ROWS)
    if size <= 1:
        return rows
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [
        (f"{group[0][0]} … {group[-1][0]}", [_largest(line) for line in zip(*(row for _, row in group), strict=True)])
        for group in groups
    ]


def _largest(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    odd = [v for v in known if not math.isfinite(v)]
    return odd[0] if odd else max(known, default=None)


def _level(value: float | None, low: float, high: float) -> int:
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return NOT_FINITE
    if value <= 0:
        return 1
    share = (math.log10(value) - low) / (high - low)
    return 1 + round(min(max(share, 0.0), 1.0) * (LEVELS - 1))


def _figure(
    item: Labelled,
    rows: Sequence[tuple[str, list[float | None]]],
    ends: tuple[float, float],
    span: tuple[int, int],
    title: str,
) -> str:
    names = [name for name, _ in rows]
    pixels = [bytes(_level(value, *ends) for value in row) for _, row in rows]
    place = {name: i for i, name in enumerate(names)}
    alarms = [(w.first, place.get(w.layer)) for w in warned(item.run)]
    shown = Map(names, pixels, alarms)
    data = {
        "names": list(map(called, names)),
        "bins": len(pixels[0]),
        "low": round(ends[0], 4),
        "high": round(ends[1], 4),
    }
    told = escape(json.dumps({**data, "first": span[0], "last": span[1]}, ensure_ascii=False))
    packed = base64.b64encode(b"".join(pixels)).decode()
    address = picture(pixels)
    drawn = "".join(_drawing(shown, shape, span, address, f"{title}, {item.label}") for shape in (WIDE, NARROW))
    return (
        f'<figure class="heat" data-map="{told}" data-cells="{packed}"><figcaption>{escape(item.label)}</figcaption>'
        f"{drawn}</figure>"
    )


def _drawing(shown: Map, shape: Shape, span: tuple[int, int], address: str, label: str) -> str:
    height = min(max(420 / len(shown.names), 2.0), 15.0)
    across = Scale(*span, shape.left, shape.width - shape.right)
    low = TOP + height * len(shown.names)
    parts = [
        f'<image class="cells" href="{address}" x="{shape.left:g}" y="{TOP:g}" width="{across.end - across.start:g}" '
        f'height="{low - TOP:.1f}" preserveAspectRatio="none"/>'
    ]
    every = math.ceil(13 / height)
    for i in range(0, len(shown.names), every):
        name = svg.fit(shown.names[i], shape.left - 8)
        parts.append(svg.text(shape.left - 5, TOP + height * (i + 0.5) + 4, name, "tiny", "end"))
    for step, row in shown.alarms:
        x = across.at(step)
        if row is not None:
            parts.append(svg.arrow(x, TOP + height * (row + 0.5), 0.9, 0, "alarmed"))
        parts.append(svg.line(x, TOP, x, low, "alarm"))
    for value in svg.ticks(across, 7 if shape.wide else 4):
        if value == round(value) and across.at(value) < across.end - 12:
            parts.append(svg.text(across.at(value), low + 15, f"{value:,.0f}", "tiny", "middle"))
    said = f"{label}: {len(shown.names)} layers over steps {span[0]} to {span[1]}."
    return svg.drawing(shape.width, low + FOOT, shape.name, said, parts)


def _key(ends: tuple[float, float]) -> str:
    """The scale of colours with its two ends."""
    ramp = picture([bytes(range(1, LEVELS + 1))])
    low, high = (f"{10**end:.3g}" for end in ends)
    return (
        f'<p class="ramp">{low} <img src="{ramp}" alt="from dark to light"> {high}, logarithmic; '
        "pink is not finite, empty was not measured; ▸ marks an alarm.</p>"
    )

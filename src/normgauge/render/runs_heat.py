"""Every layer over time as one map a quantity and run: what changes, where and when, at a glance.

A map is a picture of one byte a cell: too many cells to draw one by one.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache

from normgauge.render import svg
from normgauge.render.markup import Markup, markup, tag
from normgauge.render.png import INDEXED, png_address
from normgauge.render.runs_curves import steps_axis
from normgauge.render.runs_data import LabelledRun, column_evidence, layer_cells, sampled_steps
from normgauge.render.runs_incidents import layer_phrase, run_incidents
from normgauge.render.svg import Axis, Shape

QUANTITIES = (
    ("norm_lower", "norm, lower end"),
    ("sigma_rms", "σ rms"),
    ("scale_free_gradient", "‖w‖·‖∇‖"),
    ("effective_lr", "effective lr"),
    ("update_ratio", "update / weight"),
)
BINS, ROWS, CELLS = 140, 256, 24_000
WIDE = Shape("wide", 960, 0, 170, 14)
NARROW = Shape("narrow", 380, 0, 96, 8)
TOP, FOOT = 8.0, 22.0
ABSENT, NOT_FINITE, LEVELS = 0, 255, 254
RAMP = ((38, 38, 94), (33, 102, 136), (52, 158, 133), (160, 200, 90), (250, 230, 80))
WARNING = (220, 40, 120)


def heat_maps(runs: Sequence[LabelledRun], span: tuple[int, int]) -> Iterator[tuple[str, Markup]]:
    """Title and figures of each quantity that any run has: one map a run, on one scale."""
    for column, title in QUANTITIES:
        values = [(item, _values(item, column, span)) for item in runs]
        logs = [math.log10(v) for _, rows in values for _, row in rows for v in row if v and math.isfinite(v) and v > 0]
        if logs:
            ends = (min(logs), max(logs)) if max(logs) > min(logs) else (min(logs) - 0.5, max(logs) + 0.5)
            known = f"{title} ({column_evidence(runs[0].run, column.replace('update_ratio', 'update'))})"
            yield known, markup((_figure(item, rows, ends, span, known) for item, rows in values if rows), _key(ends))


def _values(item: LabelledRun, column: str, span: tuple[int, int]) -> list[tuple[str, list[float | None]]]:
    """Name and values of every layer that has the quantity; beyond ``ROWS`` layers neighbours share a row."""
    names = item.run.layers
    bins = max(min(BINS, CELLS // max(min(len(names), ROWS), 1)), 24)
    picked = sampled_steps(item.run.steps, *span, bins)
    records = {id(record): record for record in picked if record is not None}  # those that fill several cells once
    taken = {key: layer_cells(record, column, len(names)) for key, record in records.items()}
    columns = [taken.get(id(record), [None] * len(names)) for record in picked]
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


def _figure(
    item: LabelledRun,
    rows: Sequence[tuple[str, list[float | None]]],
    ends: tuple[float, float],
    span: tuple[int, int],
    title: str,
) -> Markup:
    names = [name for name, _ in rows]
    shade = Axis(((ends[0], 1.0), (ends[1], LEVELS)), logarithmic=True)

    def level(value: float | None) -> int:
        return ABSENT if value is None else round(shade.at(value)) if math.isfinite(value) else NOT_FINITE

    pixels = [bytes(map(level, row)) for _, row in rows]
    place = {name: i for i, name in enumerate(names)}
    alarms = [(w.began, place.get(w.layer)) for w in run_incidents(item.run)]
    scale = {"low": round(ends[0], 4), "high": round(ends[1], 4), "first": span[0], "last": span[1]}
    data = {"names": list(map(layer_phrase, names)), "bins": len(pixels[0]), **scale}
    address = heat_picture(pixels)

    def drawing(shape: Shape) -> Markup:
        height = min(max(420 / len(names), 2.0), 15.0)
        across, ticks = steps_axis(span, shape)
        low = TOP + height * len(names)
        size = {"width": across.end - across.start, "height": low - TOP}
        return svg.drawing(
            (shape.width, low + FOOT),
            shape.name,
            f"{title}, {item.label}: {len(names)} layers over steps {span[0]} to {span[1]}.",
            tag("image", class_="cells", href=address, x=shape.left, y=TOP, preserveAspectRatio="none", **size),
            (
                svg.text_line(
                    shape.left - 5, TOP + height * (i + 0.5) + 4, svg.fit(names[i], shape.left - 8), "tiny", "end"
                )
                for i in range(0, len(names), math.ceil(13 / height))
            ),
            (
                (
                    None if row is None else svg.arrow(across.at(step), TOP + height * (row + 0.5), 0.9, 0, "alarmed"),
                    svg.line(across.at(step), TOP, across.at(step), low, "alarm"),
                )
                for step, row in alarms  # an arrow at the row of the layer where that is on the map
            ),
            svg.uprights(ticks, low, low, shape.width),
        )

    packed = base64.b64encode(b"".join(pixels)).decode()
    told = json.dumps(data, ensure_ascii=False)
    return svg.captioned_figure(
        item.label, drawing(WIDE), drawing(NARROW), class_="heat", data_map=told, data_cells=packed
    )


def _key(ends: tuple[float, float]) -> Markup:
    """The scale of colours with its two ends."""
    ramp = tag("img", src=heat_picture([bytes(range(1, LEVELS + 1))]), alt="from dark to light")
    low, high = (f"{10**end:.3g}" for end in ends)
    told = "logarithmic; pink is not finite, empty was not measured; ▸ marks an alarm."
    return tag("p", f"{low} ", ramp, f" {high}, {told}", class_="ramp")


@cache
def palette() -> bytes:
    """Red, green, blue of each level: 0 for no value, then the ramp, then what is not finite."""
    channels = [Axis(tuple(enumerate(channel))) for channel in zip(*RAMP, strict=True)]
    places = [level / (LEVELS - 1) * (len(RAMP) - 1) for level in range(LEVELS)]
    ramp = [round(channel.pixel(place)) for place in places for channel in channels]
    return bytes((128, 128, 128, *ramp, *WARNING))


def heat_picture(rows: Sequence[bytes]) -> str:
    """The rows, each a byte a cell, as a ``data:`` address."""
    return png_address(rows, len(rows[0]), INDEXED, (b"PLTE", palette()), (b"tRNS", b"\0"))

"""σ by layer: the range of every normalizer's √(variance + ε), beside √ε, the least it can be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from normgauge.core.reading import LayerRecord, Reading
from normgauge.render import svg
from normgauge.render.numbers import plural, where
from normgauge.render.svg import Scale, Shape

TOP, ROW, WIDEST = 24.0, 22.0, 18.0
KEY = (("norm", "smallest to largest σ"), ("line balanced solid", "root mean square"), ("line floor-mark", "√ε"))


def normalizers(reading: Reading) -> list[tuple[int, LayerRecord, Mapping[str, float]]]:
    """Position, record and σ of every normalizer that has one."""
    return [
        (place, record, record.sigma)
        for place, record in enumerate(reading.layers)
        if record.sigma is not None and any(_positive(record.sigma, end) for end in ("min", "max"))
    ]


def sigma_ranges(reading: Reading, shape: Shape = svg.WIDE, key: str = "") -> str:
    """Draw one range bar a normalizer, from smallest to largest σ, in the order of execution; empty without any.

    Args:
        reading: what to draw.
        shape: wide or narrow.
        key: bars carry ``data-row="{key}{position}"``, the id of their row in the page's table.
    """
    found = normalizers(reading)
    if not found:
        return ""
    values = [v for _, _, s in found for v in (*(_log(s, e) for e in ("min", "rms", "max")), _root_eps(s))]
    axis = svg.scale([v for v in values if v is not None], TOP + shape.height * 0.8, TOP)
    bottom = axis.start + ROW
    parts = [*_grid(axis, shape), *_bars(found, axis, shape, key), *_names([r for _, r, _ in found], shape, bottom - 6)]
    swatches, taken = svg.legend(KEY, bottom + 4, shape.left, shape.width - 4)
    label = f"σ of {plural(len(found), 'normalizer')} by depth, {where(reading.scope)}."
    return svg.drawing(shape.width, bottom + taken + 6, shape.name, label, [*parts, *swatches])


def _positive(sigma: Mapping[str, float], end: str) -> bool:
    return end in sigma and sigma[end] > 0 and math.isfinite(sigma[end])


def _log(sigma: Mapping[str, float], end: str) -> float | None:
    return math.log10(sigma[end]) if _positive(sigma, end) else None


def _root_eps(sigma: Mapping[str, float]) -> float | None:
    eps = _log(sigma, "eps")
    return None if eps is None else eps / 2


def _grid(axis: Scale, shape: Shape) -> Iterator[str]:
    for value in svg.ticks(axis, 7 if shape.wide else 6):
        y = axis.at(value)
        yield svg.line(shape.left, y, shape.width - 8, y, "zero" if value == 0 else "grid")
        yield svg.text(shape.left - 5, y + 4, f"{value:g}", "soft", "end")
    yield svg.text(2, 12, "log10 σ", "soft")


def _bars(
    found: Sequence[tuple[int, LayerRecord, Mapping[str, float]]], axis: Scale, shape: Shape, key: str
) -> Iterator[str]:
    room = (shape.width - shape.left - 8) / len(found)
    thick = min(max(room * 0.6, 1.0), WIDEST)
    for index, (place, record, sigma) in enumerate(found):
        left = shape.left + room * index
        x, middle = left + (room - thick) / 2, left + room / 2
        ends = [v for v in (_log(sigma, "max"), _log(sigma, "min")) if v is not None]
        top, low = axis.at(ends[0]), axis.at(ends[-1])
        told = f"{record.name} ({record.kind}): σ " + ", ".join(f"{k} {v:.3g}" for k, v in sigma.items())
        yield f'<g class="bar" data-row="{escape(key)}{place}"><title>{escape(told)}</title>'
        yield svg.box(left, TOP, room, axis.start - TOP, "hit") + svg.box(x, top, thick, low - top, "norm")
        for value, kind in ((_log(sigma, "rms"), "balanced solid"), (_root_eps(sigma), "floor-mark")):
            if value is not None:
                half = thick * (0.5 if kind != "floor-mark" else 0.8)
                yield svg.line(middle - half, axis.at(value), middle + half, axis.at(value), kind)
        yield "</g>"


def _names(records: Sequence[LayerRecord], shape: Shape, y: float) -> Iterator[str]:
    """The normalizers' names wherever there is room."""
    room = (shape.width - shape.left - 8) / len(records)
    free = 0.0
    for index, record in enumerate(records):
        middle, half = shape.left + room * (index + 0.5), svg.text_width(record.name, 12) / 2
        start = max(middle - half, shape.left)
        if start >= free and start + 2 * half <= shape.width:
            yield svg.text(start, y, record.name, "tiny")
            free = start + 2 * half + 10

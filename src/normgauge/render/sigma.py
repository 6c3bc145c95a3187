"""σ by layer: the range of every normalizer's √(variance + ε) at the samples, beside √ε, the least it can be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from normgauge.core.reading import LayerRecord, Reading
from normgauge.render import svg
from normgauge.render.levels import called_layer
from normgauge.render.markup import Markup
from normgauge.render.numbers import plural
from normgauge.render.svg import Axis, Shape

TOP, ROW, WIDEST = 24.0, 22.0, 18.0
KEY = (("norm", "smallest to largest σ"), ("line balanced solid", "root mean square"), ("line floor-mark", "√ε"))


def normalizers(reading: Reading) -> list[tuple[int, LayerRecord, Mapping[str, float]]]:
    """Position, record and σ of every normalizer that has one."""
    return [
        (place, record, record.sigma)
        for place, record in enumerate(reading.layers)
        if record.sigma is not None and any(_positive(record.sigma, end) for end in ("min", "max"))
    ]


def sigma_ranges(reading: Reading, shape: Shape = svg.WIDE, key: str = "") -> Markup:
    """Draw one range bar a normalizer, from smallest to largest σ, in the order of execution; empty without any.

    Args:
        reading: what to draw.
        shape: wide or narrow.
        key: bars carry ``data-row="{key}{position}"``, the id of their row in the page's table.
    """
    found = normalizers(reading)
    if not found:
        return Markup()
    values = [v for _, _, s in found for v in (*(_log(s, e) for e in ("min", "rms", "max")), _root_eps(s))]
    up = svg.level_axis([v for v in values if v is not None], TOP + shape.height * 0.8, TOP)
    bottom, edge, left = up.start + ROW, shape.width, shape.left
    room = (edge - left - 8) / len(found)
    return svg.drawing(
        (shape.width, bottom + 4),
        shape.name,
        f"σ of {plural(len(found), 'normalizer')} by depth, at the samples.",
        svg.levels(up.ticks(7 if shape.wide else 6), shape.left, shape.width - 8, "soft"),
        svg.text_line(2, 12, "log10 σ at the samples", "soft"),
        _bars(found, up, left, room, key),
        svg.uprights(
            ((left + room * (i + 0.5), _called(r, room)) for i, (_, r, _) in enumerate(found)), bottom, bottom, edge, -6
        ),
        key=KEY,
        left=left,
    )


def _called(record: LayerRecord, room: float) -> str:
    """The name, with the kind where that fits and is not said by it, in short where need be."""
    return next((words for words in called_layer(record) if svg.text_width(words, svg.TINY) + 6 <= room), record.name)


def _positive(sigma: Mapping[str, float], end: str) -> bool:
    return end in sigma and sigma[end] > 0 and math.isfinite(sigma[end])


def _log(sigma: Mapping[str, float], end: str) -> float | None:
    return math.log10(sigma[end]) if _positive(sigma, end) else None


def _root_eps(sigma: Mapping[str, float]) -> float | None:
    eps = _log(sigma, "eps")
    return None if eps is None else eps / 2


def _bars(
    found: Sequence[tuple[int, LayerRecord, Mapping[str, float]]], up: Axis, start: float, room: float, key: str
) -> Iterator[Markup]:
    thick = min(max(room * 0.6, 1.0), WIDEST)
    for index, (place, record, sigma) in enumerate(found):
        left = start + room * index
        middle = left + room / 2
        ends = [up.at(v) for v in (_log(sigma, "max"), _log(sigma, "min")) if v is not None]
        marks = ((_log(sigma, "rms"), 0.5, "balanced solid"), (_root_eps(sigma), 0.8, "floor-mark"))
        yield svg.group(
            f"{record.name} ({record.kind}): σ " + ", ".join(f"{k} {v:.3g}" for k, v in sigma.items()),
            svg.box(left, TOP, room, up.start - TOP, "hit"),
            svg.box(middle - thick / 2, ends[0], thick, ends[-1] - ends[0], "norm"),
            (
                svg.line(middle - thick * half, up.at(value), middle + thick * half, up.at(value), kind)
                for value, half, kind in marks
                if value is not None
            ),
            class_="bar",
            data_row=f"{key}{place}",
        )

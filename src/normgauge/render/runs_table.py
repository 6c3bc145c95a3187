"""The layers of a run: their last values, and how each came there as a small line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normgauge.render import svg
from normgauge.render.markup import Markup, markup, tag
from normgauge.render.numbers import ABSENT, enclosure, format_number, plural
from normgauge.render.runs_data import LabelledRun, Pairs, column_evidence, layer_cells
from normgauge.render.runs_incidents import Incident, run_incidents
from normgauge.render.svg import Axis
from normgauge.render.table import Grid, html_table

COLUMNS = (
    ("norm_lower", "norm"),  # shown with its upper end, or with the last one that was proved and its age
    ("sigma_rms", "σ rms"),
    ("folded", "folded"),
    ("scale_free_gradient", "‖w‖·‖∇‖"),
    ("effective_lr", "effective lr"),
    ("update_ratio", "update / weight"),
)
MAIN = {"norm": "sigma_rms", "vector": "frobenius"}  # what a layer's line shows, by role; the norm of all others
TONES = {"norm": "norm", "vector": "other"}
POINTS, FEWER, MOST = 32, 12, 400
OLDEST = 2000  # steps after which a proof is not shown any more
SPARK_WIDTH, SPARK_HEIGHT = 88.0, 18.0


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer as a row of the table of a run's layers.

    Attributes:
        place: its number in the header.
        name, kind, role: what it is.
        norm_upper: the upper end of its norm, where it was proved at the last line.
        proved: the last upper end that was proved before, and how many steps ago.
        values: the last value of each of ``COLUMNS``.
        trend: what its small line shows.
        change: how many decades that changed since the first line.
        alarms: the first alarm of it and since when, or what first followed there from another.
        read: the last step at which it was read, where that is not the last line: it may be gone.
    """

    place: int
    name: str
    kind: str
    role: str
    norm_upper: float | None
    proved: tuple[float, int] | None
    values: tuple[float | None, ...]
    trend: Pairs
    change: float | None
    alarms: str
    read: int | None = None

    @property
    def shown(self) -> str:
        """Its name, and since when it was not read any more."""
        return self.name if self.read is None else f"{self.name} (last read at step {self.read:,})"


def run_layer_rows(item: LabelledRun, points: int = POINTS) -> list[LayerRow]:
    """Every layer of a run, in the header's order."""
    run, names = item.run, item.run.layers
    if not run.steps:
        return []
    stride = max(len(run.steps) // points, 1)
    sampled = [*run.steps[:-1:stride], run.steps[-1]]
    needed = {"norm_lower", "sigma_rms", "frobenius"}
    lines = {name: [(s["step"], layer_cells(s, name, len(names))) for s in sampled] for name in needed}
    now = {name: layer_cells(run.steps[-1], name, len(names)) for name, _ in (*COLUMNS, ("norm_upper", ""))}
    proofs = _last_proofs(run.steps, len(names))
    said = _said(run_incidents(run))
    found = []
    for place, layer in enumerate(run.header["layers"]):
        role = str(layer.get("role", ""))
        trend = [(s, row[place]) for s, row in lines[MAIN.get(role, "norm_lower")] if row[place] is not None]
        known = [(s, v) for s, v in trend if v is not None]
        found.append(
            LayerRow(
                place, names[place], str(layer.get("type", "")), role, now["norm_upper"][place], proofs.get(place),
                tuple(now[name][place] for name, _ in COLUMNS), known, _change(known), said.get(names[place], ""),
                _last_read(run.steps, lines["frobenius"], place),
            )
        )  # fmt: skip
    return found


def _said(incidents: Sequence[Incident]) -> dict[str, str]:
    """What was said of each layer first; that it is a cause comes before what followed there."""
    told = {
        followed.layer: followed.short for incident in reversed(incidents) for followed in reversed(incident.followed)
    }
    return told | {incident.layer: f"{incident.alarm} at step {incident.began:,}" for incident in reversed(incidents)}


def _last_proofs(steps: Sequence[Any], count: int) -> dict[int, tuple[float, int]]:
    """For each layer by its place, the last upper end that is no longer that of the last line, and its age in steps."""
    found: dict[int, tuple[float, int]] = {}
    last = steps[-1]["step"]
    for line in reversed(steps):
        for place, upper in enumerate(layer_cells(line, "norm_upper", count)):
            if upper is not None and place not in found:
                found[place] = upper, last - line["step"]
        if last - line["step"] > OLDEST:
            break
    return {place: proof for place, proof in found.items() if proof[1]}


def _last_read(steps: Sequence[Any], sampled: Sequence[tuple[int, list[float | None]]], place: int) -> int | None:
    """The last step at which a weight's norm was read, where the last line has those of others alone."""
    rows = [row for _, row in sampled]
    if rows[-1][place] is not None or not any(rows[-1]) or all(row[place] is None for row in rows):
        return None
    known = (line for line in reversed(steps) if layer_cells(line, "frobenius", place + 1)[place] is not None)
    return int(next(known)["step"])


def _change(pairs: Pairs) -> float | None:
    fine = [v for _, v in pairs if math.isfinite(v) and v > 0]
    return math.log10(fine[-1] / fine[0]) if len(fine) > 1 else None


def worst_layers(found: Sequence[LayerRow], most: int) -> list[LayerRow]:
    """The layers with alarms, then those that changed most, then those that are not read any more."""
    return sorted(found, key=lambda row: (not row.alarms, row.read is not None, -abs(row.change or 0.0), row.place))[
        :most
    ]


def signed_change(change: float) -> str:
    """A change with its sign; a change of nothing has none.

    >>> signed_change(0.284), signed_change(-0.001)
    ('+0.28', '0.00')
    """
    shown = f"{change:+.2f}"
    return shown[1:] if float(shown) == 0 else shown


def row_cells(row: LayerRow) -> list[str]:
    """The values of a row; the norm with both its ends, an upper one of other weights with its age."""
    norm = enclosure(row.values[0] or None if row.norm_upper is None else row.values[0], row.norm_upper)
    if row.norm_upper is None and row.proved is not None:
        proved = f"{enclosure(None, row.proved[0])}, {plural(row.proved[1], 'step')} ago"
        norm = proved if norm == ABSENT else f"{norm} (was {proved})"
    return [norm, *(format_number(value, 3) for value in row.values[1:])]


def run_layer_table(item: LabelledRun, key: str, crowd: int = 1) -> Markup:
    """The table as HTML; the page's script makes it sortable.

    Args:
        item: whose layers.
        key: rows have the ids ``{key}0``, ``{key}1``, ...
        crowd: runs on the page; the lines are drawn with fewer points where there are many layers in all.
    """
    count = len(item.run.layers)
    found = run_layer_rows(item, POINTS if count * crowd < 800 else FEWER)
    if not found:
        return Markup()
    shown = found if count <= MOST else sorted(worst_layers(found, MOST), key=lambda row: row.place)
    known = (column_evidence(item.run, "update" if column == "update_ratio" else column) for column, _ in COLUMNS)
    measured = [markup(name, " ", tag("small", told)) for (_, name), told in zip(COLUMNS, known, strict=True)]
    heads = ("#", "layer", "kind", *measured, "trend, decades", "alarms")
    cut = f"; the {MOST} with alarms or the largest changes are shown" if count > MOST else ""
    cells = tuple(
        (
            str(row.place + 1),
            markup(row.shown),
            row.kind,
            *row_cells(row),
            markup(f"{trend(row)} ", spark(row.trend)),
            row.alarms,
        )
        for row in shown
    )
    return html_table(
        Grid(f"{plural(count, 'layer')} at step {item.last:,}{cut}", heads, cells, frozenset({0, *range(3, 10)})),
        label=f"Layers of {item.label}",
        named=1,
        rows=[
            {"id": f"{key}{row.place}", "class": "open" if row.alarms else TONES.get(row.role, "weight")}
            for row in shown
        ],
        class_="sorted",
        id=f"{key}table",
    )


def trend(row: LayerRow) -> str:
    """By how many decades a layer's main quantity changed."""
    return ABSENT if row.change is None else signed_change(row.change)


def spark(pairs: Pairs) -> Markup:
    """A small line without axes, on a logarithmic scale where all is positive; marks where it is not finite."""
    fine = [(s, v) for s, v in pairs if math.isfinite(v)]
    gone = [s for s, v in pairs if not math.isfinite(v)]
    if len(fine) < 2:
        return markup(tag("span", "not finite", class_="alarmed")) if gone else Markup()
    logs = [(s, math.log10(v)) for s, v in fine] if min(v for _, v in fine) > 0 else fine
    low, high = min(v for _, v in logs), max(v for _, v in logs)
    middle, half = (low + high) / 2, max((high - low) / 2, 0.02)  # a flat line looks flat
    first, last = pairs[0][0], pairs[-1][0]
    across = Axis(((first, 0.0), (max(last, first + 1), SPARK_WIDTH)))
    up = Axis(((middle - half, SPARK_HEIGHT - 1), (middle + half, 1.0)))
    places = " ".join(f"{across.at(s):.0f},{up.at(v):.1f}" for s, v in logs)
    view = f"0 0 {SPARK_WIDTH:g} {SPARK_HEIGHT:g}"
    marks = (svg.line(across.at(s), 0, across.at(s), SPARK_HEIGHT, "alarm") for s in gone)
    return tag("svg", tag("polyline", points=places), marks, class_="spark", viewBox=view, aria_hidden="true")

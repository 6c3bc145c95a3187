"""Runs in a terminal: what each says, its totals with small lines, the layers to look at, the alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from normgauge.core.store.numbers import read_number
from normgauge.render.console import Block
from normgauge.render.numbers import ABSENT, log_enclosure, plural
from normgauge.render.runs_data import LabelledRun, Pairs, loss_series, rate_moved, run_notes, total_evidence
from normgauge.render.runs_incidents import followed_sentence, layer_phrase, run_incidents
from normgauge.render.runs_table import COLUMNS, row_cells, run_layer_rows, trend, worst_layers
from normgauge.render.runs_words import healthy, run_sentences
from normgauge.render.table import Grid

FLAT = 1e-9
STILL = 0.012  # share of a layer's quantity that its decades, of two digits, do not show either
BARS = "▁▂▃▄▅▆▇█"
WIDTH, WORST, ALARMS, NOTES = 12, 8, 6, 5
TOTALS = (
    ("loss", "loss"),
    ("lr", "learning rate"),
    ("log10_folded", "log10 folded product"),
    ("log10_P_w_lower", "log10 P_w, depends on the gauge"),
    ("log10_prod_inv_sigma_rms", "log10 Π1/σ (rms), depends on the gauge"),
    ("gradient", "gradient norm, behind any clip"),
)
UPPER = {"log10_P_w_lower": "log10_P_w"}  # the other end of a total


def run_blocks(items: Sequence[LabelledRun], state: str = "") -> list[Block]:
    """All of it, as what `normgauge.render.console.draw_blocks` draws; the newest run first.

    Args:
        items: the runs.
        state: what is said below their first lines.
    """
    items = sorted(items, key=lambda item: str(item.run.header.get("created", "")), reverse=True)
    several = len(items) > 1
    told: list[Block] = [_first_lines(item) for item in items]
    told += [state] if state else []
    told += [line for item in items for line in _notes(item, several, max(NOTES // len(items), 1))]
    grids = [_totals(items), _layers(items)]
    grids = [*(grids if several else [grid.without("run") for grid in grids]), _alarms(items)]
    return [*told, *(grid for grid in grids if grid.rows)]


def _first_lines(item: LabelledRun) -> str:
    """What there is to look at, what followed from it beneath, then the rest; one line where all is well."""
    first, *rest = run_sentences(item)
    mark = "ok" if healthy(item) else "LOOK" if item.run.steps else "--"
    followed = [followed_sentence(incident) for incident in run_incidents(item.run)[:1]]
    if mark == "ok":
        return f"[{mark}] {item.label}: {' '.join((first, *rest))}"
    return "\n  ".join((f"[{mark}] {item.label}: {first}", *filter(None, followed), *filter(None, [" ".join(rest)])))


def _notes(item: LabelledRun, several: bool, most: int) -> list[str]:
    """The latest notes and problems of a run; newest last, as in a log."""
    found = run_notes(item.run)
    if not found:
        return []
    of = f" of {item.label}" if several else ""
    count = f", the last {most} of {len(found)}" if len(found) > most else ""
    return [f"Notes{of}{count}:", *(f"  {sentence}" for sentence in found[-most:])]


def small_line(pairs: Pairs, width: int = WIDTH, flat: float = FLAT) -> str:
    """The series in one row of letters; ``!`` where it is not finite; level where it moves by less than a share.

    >>> small_line([(i, float(i)) for i in range(8)], 8)
    '▁▂▃▄▅▆▇█'
    """
    if not pairs:
        return ""
    size = max(math.ceil(len(pairs) / width), 1)
    groups = [[value for _, value in pairs[i : i + size]] for i in range(0, len(pairs), size)]
    means = [sum(group) / len(group) for group in groups]
    fine = [mean for mean in means if math.isfinite(mean)]
    low, high = min(fine, default=0.0), max(fine, default=0.0)
    height = high - low if high - low > flat * abs(high) else math.inf  # rounding is no change
    top = len(BARS) - 1
    return "".join(BARS[round((m - low) / height * top)] if math.isfinite(m) else "!" for m in means)


def _totals(items: Sequence[LabelledRun]) -> Grid:
    lines = []
    for name, words in TOTALS:
        for item in items:
            pairs = _losses(item) if name == "loss" else item.run.total(name)
            if pairs and (name != "lr" or rate_moved(item.run)):
                upper = dict(item.run.total(UPPER.get(name, "")))
                first, last = (_spelled(name, value, upper.get(step)) for step, value in (pairs[0], pairs[-1]))
                at = pairs[-1][0]
                aged = f" (step {at:,})" if at < (item.last or 0) else ""  # later lines do not have it
                own = (first, f"{last}{aged}", small_line(pairs), total_evidence(item.run, name))
                lines.append((words, item.label, *own))
    headers = ("", "run", "first read", "last read", "so far", "evidence")  # of weights, first is after a step
    foot = "!: not finite" if any("!" in line[4] for line in lines) else ""
    return Grid("Totals", headers, tuple(lines), frozenset({2, 3}), foot)


def _losses(item: LabelledRun) -> Pairs:
    """The mean loss of every line, and the loss of the last step."""
    series, last = loss_series(item.run), item.last_loss
    return [*(pair for pair in series if pair[0] < last[0]), last] if series and last is not None else series


def _spelled(name: str, value: float, upper: float | None) -> str:
    if name in UPPER:
        return log_enclosure(value if value > -math.inf else None, upper)  # what is 0 or no number bounds nothing
    return f"{value:.2f}" if name.startswith("log10") else f"{value:.3g}"


def _layers(items: Sequence[LabelledRun]) -> Grid:
    lines = []
    for item in items:
        for row in worst_layers(run_layer_rows(item), max(WORST // len(items), 3)):
            lines.append(
                (row.shown, item.label, *row_cells(row), trend(row), small_line(row.trend, flat=STILL), row.alarms)
            )
    headers = ("layer", "run", *(name for _, name in COLUMNS), "decades", "trend", "alarms")
    foot = "trend: of σ for a normalizer, of the norm's lower end for the others"
    title = "Layers: those with alarms first, then those that changed most"
    return Grid(title, headers, tuple(lines), frozenset(range(2, len(COLUMNS) + 3)), foot).without_empty()


def _alarms(items: Sequence[LabelledRun]) -> Grid:
    found = sorted(
        ((group, item.label) for item in items for group in run_incidents(item.run)), key=lambda p: -p[0].last
    )
    lines = []
    for w, run in found[:ALARMS]:
        what = f"{w.sentence} {w.advice}".strip()
        lines.append((layer_phrase(w.layer) or "the network", f"{w.began:,}", f"{w.times}", what, run))
        beside = (("it followed", w.followed), ("a suspect", w.beside))
        for words, told in ((words, told) for words, both in beside for told in both[:ALARMS]):
            where = layer_phrase(told.layer) or "the network"
            lines.append((where, f"{told.step:,}", ABSENT, f"({words}) {told.sentence}", run))
    title = f"Incidents: the latest {ALARMS} of {len(found)}" if len(found) > ALARMS else "Incidents"
    return Grid(title, ("layer", "step", "times", "what", "run"), tuple(lines), frozenset({1, 2}))


def run_snapshot(item: LabelledRun) -> dict[str, Any]:
    """A run as it stands, for a script: the last line by layer, alarms, notes and problems."""
    run = item.run
    last: dict[str, Any] = dict(run.steps[-1]) if run.steps else {}
    columns = last.get("columns", {})
    layers = [
        {"name": name, **{column: cells[i] for column, cells in columns.items() if i < len(cells)}}
        for i, name in enumerate(run.layers)
    ]
    return {
        "run": item.label, "path": str(run.path), "model": run.header.get("model"), "step": item.reached,
        "read": item.last, "time": last.get("time"), "loss": (run.end or {}).get("loss", last.get("loss")),
        "lr": last.get("lr"), "ended": run.end is not None,
        "healthy": healthy(item), "sentences": run_sentences(item), "lines": len(run.steps),
        "totals": last.get("totals", {}), "alarms": list(run.alarms), "consequences": list(run.consequences),
        "notes": list(run.notes), "problems": list(run.problems), "layers": layers,
    }  # fmt: skip


def headline(items: Sequence[LabelledRun]) -> str:
    """What is being followed, in a few words."""
    steps = [item.reached for item in items if item.reached is not None]
    incidents = sum(len(run_incidents(item.run)) for item in items)
    times = [read_number(item.run.steps[-1].get("time")) or 0.0 for item in items if item.run.steps]
    at = f", up to step {max(steps):,} after {max(times):,.0f} s" if steps else ""
    return f"{plural(len(items), 'run')}{at}, {plural(incidents, 'incident')}"

"""What a monitor writes: the records of the run file, which sinks get too, and warnings for the log, each once."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from normgauge.core import store
from normgauge.core.version import __version__
from normgauge.monitor.layers import WatchedLayer, class_name, count_numbers
from normgauge.monitor.sheet import ALWAYS, COLUMNS, OPTIONAL, TOTALS, Column, Row, header_table
from normgauge.monitor.signs.sign import Alarm, Consequence
from normgauge.monitor.thresholds import LOSS_SUSPECT
from normgauge.render.markup import clean

log = logging.getLogger("normgauge")

# Every reading of the first 200 steps is written; then lines are at least step/500 apart, and the file stays small
DENSE_LINES, FINENESS = 200, 500

# The two ends of an enclosure are rounded outward, since a file keeps six digits
OUTWARD: Mapping[Column, Callable[[float], float]] = {
    "norm_lower": store.rounded_down,
    "norm_upper": store.rounded_up,
}
OUTWARD_TOTALS = {"log10_P_w_lower": store.rounded_down, "log10_P_w": store.rounded_up, "chance": store.rounded_up}

Sink = Callable[[Mapping[str, Any]], None]


class Journal:
    """Writes records and hands them to sinks; never raises.

    Args:
        writer: the open run file.
        sinks: called with each record, the header first.
        on_alarm: called with the alarm of each incident.
        sparse: whether lines become rarer as the run grows.
    """

    def __init__(
        self, writer: Any, sinks: Sequence[Sink], on_alarm: Callable[[Alarm], None] | None, *, sparse: bool
    ) -> None:
        self._writer, self._sinks, self._on_alarm, self._sparse = writer, list(sinks), on_alarm, sparse
        self._said: set[str] = set()
        self._losses: list[tuple[int, float]] = []
        self._last_line = 0
        writer.on_trouble = log.warning
        self._tell(writer.header, 0)

    @property
    def path(self) -> str:
        """The file being written."""
        return str(self._writer.path)

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record and pass it to the sinks."""
        self._writer.append(record)
        self._tell(record, record["step"])

    def line(self, record: Mapping[str, Any], losses: Sequence[tuple[int, float]], rows: Sequence[Row]) -> None:
        """Write a reading, unless the last line is too close; its losses, by step, then go into the next line."""
        self._losses += losses
        step = record["step"]
        if self._sparse and step > DENSE_LINES and step - self._last_line < step / FINENESS:
            return
        heard, self._losses, self._last_line = self._losses, [], step
        seen = [loss for _, loss in heard]
        of_losses = {
            "loss": seen[-1] if losses else None,
            "loss_mean": sum(seen) / len(seen) if seen else None,
            "loss_max": max(seen) if seen else None,
            **calm_losses(heard),
        }
        present = set[str]().union(*rows)
        cells = [row.get for row in rows]
        names = [*ALWAYS, *(name for name in OPTIONAL if name in present)]
        columns = {name: [cell(name) for cell in cells] if name in present else [None] * len(rows) for name in names}
        for name, rounded in OUTWARD.items():
            columns[name] = [None if cell is None else rounded(cell) for cell in columns[name]]
        totals = dict(record["totals"])
        for total, rounded in OUTWARD_TOTALS.items():
            if totals.get(total) is not None:
                totals[total] = rounded(totals[total])
        self.append({"kind": "step", **record, "totals": totals, **of_losses, "columns": columns})

    def say(self, said: Alarm | Consequence) -> None:
        """Write an alarm to the file and the log, and pass it to ``on_alarm``; a consequence goes to the file alone."""
        if isinstance(said, Consequence):
            self.append({"kind": "consequence", **asdict(said)})
            return
        self.append({"kind": "alarm", **asdict(said)})
        log.warning("step %d: %s", said.step, clean(f"{said.sentence} {said.advice}".strip()))
        if self._on_alarm is not None:
            try:
                self._on_alarm(said)
            except Exception as error:  # theirs, not ours: the line is still to be written
                self.note(said.step, f"on_alarm raised {type(error).__name__}: {error}", "on_alarm")

    def note(self, step: int, sentence: str, key: str) -> None:
        """Write a sentence to the file and the log, once for each key."""
        if key in self._said:
            return
        self._said.add(key)
        log.warning("%s", clean(sentence))
        self.append({"kind": "note", "step": step, "sentence": sentence})

    def _tell(self, record: Mapping[str, Any], step: int) -> None:
        """Pass a record to the sinks; one that raises is noted once and called again at the next record."""
        failed: list[tuple[Sink, Exception]] = []
        for sink in self._sinks:
            try:
                sink(record)
            except Exception as error:
                failed.append((sink, error))
        for sink, why in failed:
            said = f"{type(sink).__name__} failed ({type(why).__name__}: {why}); the run file goes on."
            self.note(step, said, f"sink {id(sink)}")


def calm_losses(heard: Sequence[tuple[int, float]]) -> dict[str, float]:
    """The mean up to the step before a loss far above it, and that step: what the mean of all would hide.

    >>> calm_losses([(7, 2.0), (8, 2.5), (9, 30.0), (10, 40.0)])
    {'calm': 8, 'loss_calm': 2.25}
    """
    total = 0.0
    for count, (step, loss) in enumerate(heard):
        if count and total > 0.0 and not loss * count <= LOSS_SUSPECT * total:
            return {"calm": heard[count - 1][0], "loss_calm": total / count} if step - heard[0][0] == count else {}
        total += loss
    return {}


def header_of(
    model: nn.Module, layers: Sequence[WatchedLayer], device: str, world: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The first line of a run file, without what the store fills in.

    Args:
        model: the network.
        layers: what is watched of it, in the order of every column.
        device: of the first weight.
        world: how many processes train the model together.
        config: the settings of the monitor, and what the user wants to keep.
    """
    return {
        "versions": {"normgauge": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "device": device,
        "world": world,
        "model": {"name": class_name(model), "parameters": count_numbers(model.parameters())},
        "layers": [layer.described() for layer in layers],
        "columns": header_table(COLUMNS),
        "totals": header_table(TOTALS),
        "config": dict(config),
    }

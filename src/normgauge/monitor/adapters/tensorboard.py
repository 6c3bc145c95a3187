"""Readings as curves in TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from normgauge.monitor.adapters.scalars import COLUMNS, Scalars, alarm_text


class TensorBoardSink:
    """Logs totals and some columns of every line as scalars, alarms as text.

    Args:
        place: a folder for the event file, or a ``SummaryWriter`` of your own, which is left open.
        columns: which columns, each a curve for every layer; ``normgauge.monitor.adapters.scalars.COLUMNS`` by default.
        prefix: put before every tag.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | SummaryWriter,
        columns: Sequence[str] = COLUMNS,
        prefix: str = "normgauge/",
    ) -> None:
        self._own = not isinstance(place, SummaryWriter)
        self._writer = place if isinstance(place, SummaryWriter) else SummaryWriter(os.fspath(place))
        self._scalars, self._prefix = Scalars(columns, prefix), prefix

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take one record of a monitor."""
        self._scalars.learn(record)
        if record["kind"] == "step":
            for tag, value in self._scalars.of(record).items():
                self._writer.add_scalar(tag, value, record["step"])
        elif record["kind"] == "alarm":
            self._writer.add_text(f"{self._prefix}alarms", alarm_text(record), record["step"])
        elif record["kind"] == "end":
            (self._writer.close if self._own else self._writer.flush)()

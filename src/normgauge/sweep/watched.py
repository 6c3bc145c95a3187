"""The monitor of a trial, where the config asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from normgauge import store
from normgauge.errors import NormgaugeError
from normgauge.monitor import Monitor
from normgauge.sweep.files import RUN


class Watched:
    """Begins the run file when the training says where it begins, and closes it at the end."""

    def __init__(self, model: nn.Module, place: Path, settings: Mapping[str, Any]) -> None:
        self.model, self.place, self.settings = model, place, settings
        self._monitor: Monitor | None = None

    def on_start(self, step: int) -> None:
        """Open the run file: anew for a fresh training, where it stopped for a resumed one."""
        if not self.settings["monitor"]:
            return
        if step == 0:
            (self.place / RUN).unlink(missing_ok=True)  # of an attempt that had not come to its first checkpoint
        note = {"settings": {key: str(value) for key, value in self.settings.items()}}
        self._monitor = Monitor(self.model, self.place / RUN, resume=step or False, note=note)

    def on_step(self, step: int, loss: torch.Tensor) -> None:
        """Pass a step on."""
        if self._monitor is not None:
            self._monitor.step(loss=loss, lr=float(self.settings["training.lr"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._monitor is not None:
            self._monitor.close()


def alarm_count(place: Path) -> int | None:
    """How many alarms the run file of a trial holds, each step, layer and kind once; None where it cannot be read."""
    try:
        alarms = store.read(place / RUN).alarms
    except NormgaugeError:
        return None
    return len({(alarm.get("step"), alarm.get("alarm"), alarm.get("layer")) for alarm in alarms})

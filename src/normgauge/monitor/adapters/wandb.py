"""Readings as curves in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normgauge.monitor.adapters.scalars import COLUMNS, Scalars, alarm_text


class WandbSink:
    """Logs totals and some columns of every line, and alarms as text, to a run of yours.

    The curves have an axis of their own, ``normgauge/step``, so that they do not disturb the steps of your other logs.
    Nothing is sent that the run itself would not send: in offline mode (``WANDB_MODE=offline``) nothing at all.

    Args:
        run: what ``wandb.init()`` gave; it stays open.
        columns: which columns, each a curve for every layer; ``normgauge.monitor.adapters.scalars.COLUMNS`` by default.
        prefix: put before every name.
    """

    def __init__(self, run: Any, columns: Sequence[str] = COLUMNS, prefix: str = "normgauge/") -> None:
        self._run, self._prefix = run, prefix
        self._scalars = Scalars(columns, prefix)
        run.define_metric(f"{prefix}step", hidden=True)
        run.define_metric(f"{prefix}*", step_metric=f"{prefix}step")

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take one record of a monitor."""
        self._scalars.learn(record)
        if record["kind"] == "step":
            self._run.log({f"{self._prefix}step": record["step"], **self._scalars.of(record)})
        elif record["kind"] == "alarm":
            self._run.log({f"{self._prefix}step": record["step"], f"{self._prefix}alarm": alarm_text(record)})

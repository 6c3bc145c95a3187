"""Readings as metrics of an MLflow run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import mlflow
from mlflow.entities import Metric

from normgauge.core.errors import InputError
from normgauge.monitor.adapters.scalars import COLUMNS, Scalars, alarm_text

MOST = 1000  # metrics that MLflow takes in one call


class MlflowSink:
    """Logs totals and some columns of every line as metrics, alarms as tags ``normgauge.alarm.1``, ``.2``, ...

    Args:
        run_id: of an MLflow run; the active one by default.
        columns: which columns, each a curve for every layer; ``normgauge.monitor.adapters.scalars.COLUMNS`` by default.
        prefix: put before every name.

    Raises:
        InputError: if no run is named and none is active.
    """

    def __init__(self, run_id: str | None = None, columns: Sequence[str] = COLUMNS, prefix: str = "normgauge/") -> None:
        active = mlflow.active_run()
        if run_id is None and active is None:
            raise InputError("no MLflow run is active: call mlflow.start_run() before, or give MlflowSink a run_id.")
        self._run_id = run_id or active.info.run_id
        self._client = mlflow.MlflowClient()
        self._scalars = Scalars(columns, prefix)
        self._alarms = 0

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take one record of a monitor."""
        self._scalars.learn(record)
        if record["kind"] == "step":
            now = int(time.time() * 1000)
            metrics = [Metric(name, value, now, record["step"]) for name, value in self._scalars.of(record).items()]
            for first in range(0, len(metrics), MOST):
                self._client.log_batch(self._run_id, metrics=metrics[first : first + MOST])
        elif record["kind"] == "alarm":
            self._alarms += 1
            self._client.set_tag(self._run_id, f"normgauge.alarm.{self._alarms}", alarm_text(record))

"""What MLflow keeps is what the run file says."""

from __future__ import annotations

import math
import warnings

import pytest

from normgauge.core.errors import InputError
from tests.monitor.adapters.training import check, trained

pytestmark = pytest.mark.adapters


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    from normgauge.monitor.adapters.mlflow import MlflowSink

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
        with pytest.raises(InputError, match="start_run"):
            MlflowSink()
        with mlflow.start_run() as run:
            path = trained(tmp_path / "run", [MlflowSink()], last_loss=math.nan)
        client = mlflow.MlflowClient()
        kept = client.get_run(run.info.run_id)
        names = kept.data.metrics
        found = {n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)] for n in names}
    check(path, found)
    assert kept.data.tags["normgauge.alarm.1"].startswith("step 4: nan")

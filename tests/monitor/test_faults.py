"""Planted faults are named by a real monitor; a slice of benchmarks/faults.py on seeds of its own."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from torch import Tensor

import normgauge as ng
from benchmarks.faulty import FAULTS, healthy, planted
from normgauge.core import store
from normgauge.monitor.signs.sign import Alarm

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install normgauge[data]")
pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype")  # RMSNorm under float16 autocast

STEPS = 130


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_fault_is_named_by_its_cause_or_its_layer(kind, tmp_path):
    training = planted(kind, 503)
    alarms: list[Alarm] = []
    with ng.Monitor(training.model, tmp_path, every=1, optimizer=training.optimizer, on_alarm=alarms.append) as monitor:

        def step(loss: Tensor) -> None:
            monitor.step(loss=loss)
            if training.right(alarms):
                raise StopIteration  # named: what comes later changes nothing

        with contextlib.suppress(StopIteration):
            training.run(STEPS, SimpleNamespace(step=step), 503)
    assert training.right(alarms), (training.sort, training.at, [(a.step, a.alarm, a.layer) for a in alarms])
    written = store.read(monitor.path).alarms
    assert [(line["step"], line["alarm"], line["layer"]) for line in written] == [
        (a.step, a.alarm, a.layer) for a in alarms
    ]


@pytest.mark.parametrize("seed", [521, 522, 523, 524])
def test_a_healthy_training_gets_no_alarm(seed, tmp_path):
    training = healthy(seed)
    alarms: list[Alarm] = []
    with ng.Monitor(training.model, tmp_path, every=1, optimizer=training.optimizer, on_alarm=alarms.append) as monitor:
        training.run(STEPS, monitor, seed)
    assert alarms == [], training.sort

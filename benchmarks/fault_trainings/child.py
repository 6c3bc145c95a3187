"""One training in a process of its own, forked from one that has imported everything."""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.fault_trainings.training import Training
from normgauge import Monitor
from normgauge.core import store


def observe(training: Training, budget: str) -> dict[str, Any]:
    """The alarms of a training as they were called out, and as they stand in the file."""
    said: list[dict[str, Any]] = []
    monitors: list[Monitor] = []
    every = {"every": 1} if budget == "every1" else {}
    with tempfile.TemporaryDirectory() as folder:

        def factory(model: nn.Module, optimizer: Any) -> Monitor:
            monitors.append(
                Monitor(
                    model,
                    folder,
                    optimizer=optimizer,
                    on_alarm=lambda alarm: said.append(dataclasses.asdict(alarm)),
                    **every,
                )
            )
            return monitors[-1]

        begun = time.process_time()
        outcome = training.train(factory)
        seconds = time.process_time() - begun
        for monitor in monitors:
            monitor.close()
        run = store.read(folder)
    return {
        "alarms": said,
        "written": [dict(record) for record in run.alarms],
        "notes": [str(note) for note in run.notes],
        "problems": [str(problem) for problem in run.problems],
        "lines": len(run.steps),
        "steps": len(outcome.losses),
        "last_loss": outcome.losses[-1],
        "score": outcome.score,
        "cpu_seconds": seconds,
    }


def write(package: str, name: str, budget: str, path: Path) -> None:
    """Run a training by its name and write what was said of it, or how it failed, as JSON."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("normgauge").setLevel(logging.CRITICAL)
    (training,) = (row for row in importlib.import_module(package).TRAININGS if row.name == name)
    try:
        found = observe(training, budget)
    except Exception:
        found = {"failed": traceback.format_exc()}
    path.write_text(json.dumps(found, default=str), encoding="utf-8")

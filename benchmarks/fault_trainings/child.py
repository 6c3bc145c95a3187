"""One training in a process of its own: `python -m benchmarks.fault_trainings.child PACKAGE NAME BUDGET`, JSON out."""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import sys
import tempfile
import time
import warnings
from typing import Any

import torch
from torch import nn

import normgauge as ng
from benchmarks.fault_trainings.training import Training
from normgauge.core import store


def observe(training: Training, budget: str) -> dict[str, Any]:
    """The alarms of a training as they were called out, and as they stand in the file."""
    said: list[dict[str, Any]] = []
    monitors: list[ng.Monitor] = []
    every = {"every": 1} if budget == "every1" else {}
    with tempfile.TemporaryDirectory() as folder:

        def factory(model: nn.Module, optimizer: Any) -> ng.Monitor:
            monitors.append(
                ng.Monitor(
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


def main() -> None:
    package, name, budget = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("normgauge").setLevel(logging.CRITICAL)
    (training,) = (row for row in importlib.import_module(package).TRAININGS if row.name == name)
    print(json.dumps(observe(training, budget), default=str))


if __name__ == "__main__":
    main()

"""One trial: it trains, or goes on from its checkpoint, gauges the trained network and writes result.json."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from normgauge.core import store
from normgauge.core.bound import Known
from normgauge.core.errors import LoadError, NormgaugeError
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import readings
from normgauge.lab.sweep.building import builder, imported_files, read_files, splits
from normgauge.lab.sweep.files import (
    CHECKPOINT,
    LOCK,
    RUN,
    Record,
    Result,
    exclusive_lock,
    read_record,
    write_imports,
    write_result,
)
from normgauge.lab.sweep.opened import files_opened
from normgauge.lab.training import evaluate_model, train
from normgauge.lab.zoo import Split
from normgauge.monitor.monitor import Monitor
from normgauge.render.numbers import NEAR
from normgauge.render.sweep import NOT_GAUGED
from normgauge.render.verdict import refutation_sentence

Values = dict[str, float | None]


def run_folder(place: Path) -> int:
    """Run the trial of a folder; returns the exit code, and tells a failure on standard error."""
    record = read_record(place)
    if record is None:
        print(f"{place}: expected a trial.json, got none that can be read", file=sys.stderr)
        return 1
    begun = time.monotonic()
    try:
        with exclusive_lock(place / LOCK):  # whoever was killed a moment ago may still hold the files
            found = run_trial(place, record)
            write_result(place, replace(found, seconds=round(time.monotonic() - begun, 3)))
    except NormgaugeError as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def run_trial(place: Path, record: Record) -> Result:
    """Train the network of a trial and measure it.

    Args:
        place: the trial's folder.
        record: its settings.

    Returns:
        What was found.

    Raises:
        LoadError: when the user's function gives no network.
    """
    settings, folder = record.settings, Path(record.folder)
    seed = int(settings["seed"])
    train_split, test_split = splits(settings, folder)
    random.seed(seed)
    np.random.seed(seed)  # a user's function may draw from it
    torch.manual_seed(seed)
    with files_opened() as opened:
        model = builder(settings, folder)()
    if not isinstance(model, nn.Module):
        raise LoadError(f"{settings['network.build']}: expected a torch.nn.Module, got {type(model).__name__}")
    loaded = {**imported_files(settings, folder), **read_files(opened, settings, folder, place)}
    write_imports(place, loaded)
    model.to(torch.device(str(settings["training.device"])))
    options = {
        key.removeprefix("training."): value
        for key, value in settings.items()
        if key.startswith("training.") and key != "training.device"
    }
    with Watched(model, place, settings) as watched:
        history = train(
            model,
            train_split,
            **options,
            seed=seed,
            checkpoint=place / CHECKPOINT,
            on_start=watched.on_start,
            on_step=watched.on_step,
        )
    values = _scores(model, train_split, test_split)
    found, notes, known = _measured(model, test_split, settings)
    write_imports(place, {**imported_files(settings, folder), **loaded})  # with what was loaded on the way
    alarms = alarm_count(place) if settings["monitor"] else None
    return Result({**values, **found, "alarms": alarms}, notes, history.losses, known=known)


class Watched:
    """The monitor of a trial, where asked for: begun when the training says where it begins, closed at the end."""

    def __init__(self, model: nn.Module, place: Path, settings: Mapping[str, Any]) -> None:
        self.model, self.place, self.settings = model, place, settings
        self._monitor: Monitor | None = None

    def on_start(self, step: int) -> None:
        """Open the run file: a new one for a fresh training, the old one for a resumed one."""
        if not self.settings["monitor"]:
            return
        if step == 0:
            (self.place / RUN).unlink(missing_ok=True)  # of an attempt that had not come to its first checkpoint
        note = {"settings": {key: str(value) for key, value in self.settings.items()}}
        self._monitor = Monitor(self.model, self.place / RUN, resume=step or False, note=note)

    def on_step(self, step: int, loss: torch.Tensor) -> None:
        """Tell the monitor about a step."""
        if self._monitor is not None:
            self._monitor.step(loss=loss, lr=float(self.settings["training.lr"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._monitor is not None:
            self._monitor.close()


def alarm_count(place: Path) -> int | None:
    """How many alarms the run file of a trial holds, each step, layer and kind once; None where it cannot be read."""
    try:
        alarms = store.read(place / RUN).alarms
    except NormgaugeError:
        return None
    return len({(alarm.get("step"), alarm.get("alarm"), alarm.get("layer")) for alarm in alarms})


def _scores(model: nn.Module, train_split: Split, test_split: Split) -> Values:
    train_scores, test_scores = (evaluate_model(model, split) for split in (train_split, test_split))
    return {
        "train_accuracy": train_scores.accuracy,
        "test_accuracy": test_scores.accuracy,
        "gap": train_scores.accuracy - test_scores.accuracy,
        "train_loss": train_scores.loss,
        "test_loss": test_scores.loss,
        "loss_gap": test_scores.loss - train_scores.loss,
    }


def _measured(
    model: nn.Module, data: Split, settings: Mapping[str, Any]
) -> tuple[Values, tuple[str, ...], dict[str, Known]]:
    """The numbers of the readings, notes, how bounds are known; a network that diverged has a note and no numbers."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    batch = data.inputs[: settings["measure.samples"]].to(device)
    asked: Any = {"search": settings["measure.search"], "balance": settings["measure.balance"], "pictures": False}
    try:
        found = readings(model, batch, settings["measure.scopes"], **asked)
    except NormgaugeError as error:
        return {}, (NOT_GAUGED + " ".join(str(error).split()),), {}
    ends = ("log10_upper", "log10_balanced", "log10_folded", "log10_lower")
    values: Values = {f"{reading.scope}.{end}": getattr(reading, end) for reading in found for end in ends}
    values |= {f"{r.scope}.log10_median": m.lo / LN10 for r in found if (m := r.log_median) and m.width <= NEAR}
    published = found[0].published
    if "log10_P_w" in published:
        values["log10_P_w"] = float(published["log10_P_w"])
    for reduction, value in published.get("log10_prod_inv_sigma", {}).items():
        values[f"log10_prod_inv_sigma_{reduction}"] = float(value)
    notes = [refutation_sentence(reading) for reading in found if reading.log_refuted is not None]
    notes += [f"{r.scope}: {item.name}: {item.why}" for r in found for item in (*r.unknown, *r.no_bound)]
    known = {str(r.scope): Known(r.evidence, r.path_dependent, r.failure_probability) for r in found}
    return values, tuple(notes), known

"""What can be refused before the first trial runs: networks, options, data, devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from normgauge.errors import InputError
from normgauge.loading.code import one_line
from normgauge.sweep.building import builder, splits
from normgauge.sweep.space import Trial
from normgauge.zoo import ZOO, Split

FEW = 2


def check_trials(trials: Iterable[Trial], folder: Path, *, here: bool) -> None:
    """Look at each network and each data set once, without training.

    Networks of the zoo are built without memory and tried on the data's shapes. A network given as code is found but
    not built: what it does is the trial's own affair, and a trial may fail.

    Args:
        trials: what is going to run.
        folder: where relative paths begin.
        here: whether the trials run on this machine, so that its devices matter.
    """
    seen: set[str] = set()
    data: dict[str, tuple[Split, Split]] = {}
    for trial in trials:
        parts = {part: _part(trial.settings, part) for part in ("data.", "network.")}
        if here and str(trial.settings["training.device"]) not in seen:
            seen.add(str(trial.settings["training.device"]))
            _check_device(str(trial.settings["training.device"]))
        if parts["data."] not in data:
            data[parts["data."]] = splits(trial.settings, folder, FEW)
        if parts["data."] + parts["network."] not in seen:
            seen.add(parts["data."] + parts["network."])
            _check_network(trial.settings, folder, data[parts["data."]][0])


def _part(settings: Mapping[str, Any], prefix: str) -> str:
    return json.dumps({key: value for key, value in settings.items() if key.startswith(prefix)}, default=str)


def _check_device(name: str) -> None:
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise InputError(f"training.device: expected cpu, cuda, cuda:1 or mps, got {name!r}") from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(kind, False):
        raise InputError(f"training.device: there is no {kind} here; use cpu, or a machine that has it")


def _check_network(settings: Mapping[str, Any], folder: Path, data: Split) -> None:
    name, build = str(settings["network.build"]), builder(settings, folder)
    if name not in ZOO:
        return
    with torch.device("meta"):
        try:
            model = build().eval()
        except (TypeError, ValueError, RuntimeError, LookupError) as error:
            raise InputError(f"network.options: {name} cannot be built: {one_line(error)}") from None
    try:
        with torch.no_grad():
            outputs = model(data.inputs.to("meta"))
    except RuntimeError as error:
        shape = list(data.inputs.shape[1:])
        raise InputError(
            f"network: {name} does not take inputs of shape {shape} ({settings['data.set']}): {one_line(error)}; "
            "see network.options and data.shape"
        ) from None
    if outputs.shape[-1] < len(data.classes):
        raise InputError(
            f"network: {name} has {outputs.shape[-1]} outputs, and {settings['data.set']} has {len(data.classes)} "
            "classes; see network.options"
        )

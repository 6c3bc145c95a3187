"""Network and data of one trial, from its settings, and checks that refuse mistakes before the first trial runs."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normgauge.core.errors import InputError, LoadError
from normgauge.core.user_code import locate_object, one_line
from normgauge.lab.sweep.files import file_digest
from normgauge.lab.sweep.keys import OPTIONS, nearest_name
from normgauge.lab.sweep.opened import own_files
from normgauge.lab.sweep.space import SweepTrial
from normgauge.lab.zoo import DATASETS, ZOO, Split

Settings = Mapping[str, Any]
FEW = 2
INSTALLED = {"site-packages", "dist-packages", "normgauge"}  # folders whose files are not the user's own


def code_file(settings: Settings, folder: Path) -> Path | None:
    """The user's file that builds the network; None for a network of the zoo or of a package."""
    place = str(settings["network.build"]).rpartition(":")[0]
    return folder / place if place.endswith(".py") else None


def imported_files(settings: Settings, folder: Path) -> dict[str, str]:
    """The files that the network's code was loaded from until now, by their path from ``folder``, each with a digest.

    They are those of the modules below the folder of the user's file, or of the package that was named, but for what is
    installed there.
    """
    place = str(settings["network.build"]).rpartition(":")[0]
    if not place:
        return {}
    own = code_file(settings, folder)
    main = own if own is not None else Path(str(getattr(sys.modules.get(place.partition(".")[0]), "__file__", "")))
    root = main.resolve().parent
    prefixes = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    apart = [prefix for prefix in prefixes if prefix != root and prefix.is_relative_to(root)]  # an environment in it
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {Path(name).resolve() for name in named if isinstance(name, str) and os.path.isabs(name)}
    inside = [file for file in files if file.is_relative_to(root)]
    own_ones = [file for file in inside if not any(file.is_relative_to(prefix) for prefix in apart)]
    kept = [file for file in own_ones if not INSTALLED.intersection(file.relative_to(root).parts)]
    return {os.path.relpath(file, folder.resolve()): file_digest(file) for file in sorted(kept)}


def read_files(opened: Iterable[str], settings: Settings, folder: Path, place: Path) -> dict[str, str]:
    """The user's files among those that were opened to build a network, with digests, by their path from ``folder``.

    Args:
        opened: absolute paths.
        settings: of the trial.
        folder: where relative paths begin.
        place: the trial's folder, whose files do not count.

    Returns:
        The digests; "" for a file that was looked for and is not there.
    """
    own = code_file(settings, folder)
    files = own_files(opened, folder if own is None else own.parent, place)
    return {_from_folder(file, folder): file_digest(file) for file in files}


def _from_folder(file: Path, folder: Path) -> str:
    with contextlib.suppress(ValueError):  # on another drive
        return os.path.relpath(file, folder.resolve())
    return str(file)


def builder(settings: Settings, folder: Path) -> Callable[[], nn.Module]:
    """The function that builds the network of a trial.

    Args:
        settings: of the trial.
        folder: where relative paths begin.

    Returns:
        A function without arguments.

    Raises:
        InputError: for a network or an option that is not known.
    """
    name = str(settings["network.build"])
    given = {key.removeprefix(OPTIONS): value for key, value in settings.items() if key.startswith(OPTIONS)}
    function = ZOO[name] if name in ZOO else _located(name, settings, folder)
    known = inspect.signature(function).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for option in given:
        if option not in known and not anything:
            raise InputError(f"network.options: {name} has no option {option!r}; {nearest_name(option, known)}")
    left = [
        p.name for p in known.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in given
    ]
    if left:
        raise InputError(f"network.options: {name} needs {', '.join(left)}")
    return partial(function, **{key: _without_none(value, known.get(key)) for key, value in given.items()})


def _located(name: str, settings: Settings, folder: Path) -> Callable[..., nn.Module]:
    if ":" not in name:
        raise InputError(f"network.build: no network called {name!r}; {nearest_name(name, ZOO)} (or file.py:function)")
    file = code_file(settings, folder)
    spec = name if file is None else f"{file}:{name.rpartition(':')[2]}"
    found = locate_object(spec, f"network.build: expected a network of the zoo or file.py:function, got {name!r}")
    if not callable(found) or isinstance(found, nn.Module):
        raise LoadError(f"network.build: {name} is no function; give one that returns the network")
    function: Callable[..., nn.Module] = found
    return function


def _without_none(value: Any, parameter: inspect.Parameter | None) -> Any:
    """The value as the option takes it: TOML has no null, so "none" is None where the option can be None."""
    if value != "none" or parameter is None:
        return value
    return None if parameter.default is None or "None" in str(parameter.annotation) else value


def splits(settings: Settings, folder: Path, most: int | None = None) -> tuple[Split, Split]:
    """Training and test examples.

    Args:
        settings: of the trial.
        folder: where relative paths begin.
        most: read at most this many of each, to see whether the data are there.

    Returns:
        Both halves.

    Raises:
        InputError: for a data set that is not known, or a shape that does not fit.
    """
    name = str(settings["data.set"])
    if name not in DATASETS:
        raise InputError(f"data.set: no data set called {name!r}; {nearest_name(name, DATASETS)}")
    where: dict[str, Any] = {}
    if settings["data.data_dir"] is not None and name != "digits":  # the digits come without files
        where["folder"] = folder / str(settings["data.data_dir"])
    limits = [settings["data.limit"], settings["data.test_limit"]]
    halves = [
        DATASETS[name](half, limit=most if most is not None else limit, **where)
        for half, limit in zip(("train", "test"), limits, strict=True)
    ]
    if settings["data.shape"] is not None:
        try:
            halves = [half.shaped(*settings["data.shape"]) for half in halves]
        except RuntimeError:
            size = halves[0].inputs[0].numel()
            raise InputError(
                f"data.shape: {settings['data.shape']} does not hold the {size} numbers of {name}"
            ) from None
    return halves[0], halves[1]


def check_trials(trials: Iterable[SweepTrial], folder: Path, *, here: bool) -> None:
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


def _part(settings: Settings, prefix: str) -> str:
    return json.dumps({key: value for key, value in settings.items() if key.startswith(prefix)}, default=str)


def _check_device(name: str) -> None:
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise InputError(f"training.device: expected cpu, cuda, cuda:1 or mps, got {name!r}") from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(kind, False):
        raise InputError(f"training.device: there is no {kind} here; use cpu, or a machine that has it")


def _check_network(settings: Settings, folder: Path, data: Split) -> None:
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

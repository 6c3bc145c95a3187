"""Reads the results of the experiments, one file a unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.generalization.place import read

FOLDER = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one unit."""

    experiment: str
    label: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    found: Mapping[str, Any]


def load(experiment: str, folder: Path = FOLDER) -> list[Result]:
    """The results of an experiment, in the order of their labels."""
    told = [read(path) for path in sorted(folder.glob(f"{experiment}__*.json"))]
    return [Result(t["experiment"], t["label"], t["settings"], t["environment"], t["found"]) for t in told]


def groups(found: list[Result], *axes: str) -> dict[tuple[Any, ...], list[Result]]:
    """Results that agree in some settings, together."""
    made: dict[tuple[Any, ...], list[Result]] = {}
    for result in found:
        made.setdefault(tuple(result.settings[axis] for axis in axes), []).append(result)
    return made

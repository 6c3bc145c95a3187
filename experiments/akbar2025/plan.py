"""The plan: config.toml into units, one a file of results."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from normgauge import NormgaugeError

CONFIG = Path(__file__).with_name("config.toml")
SCALES = ("full", "tiny")
FEW = 1  # units of an experiment at tiny scale
MORE = {"plane": 2, "edge": 6, "depth": 4}  # of those that need one of each kind
# CPU seconds for a thousand steps of ten seeds, about: what takes longest begins first
HEAVY = {"scales": 50.0, "edge": 10.0, "stable": 60.0, "regression": 4.0}


class PlanError(NormgaugeError):
    """The plan has no such unit."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One experiment at one setting, all seeds together.

    Attributes:
        experiment: the module that runs it.
        label: what is special about it, "base" for nothing.
        settings: all of them.
    """

    experiment: str
    label: str
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"{self.experiment}/{self.label}"

    @property
    def file(self) -> str:
        """Of its results."""
        return f"{self.experiment}__{self.label}.json"

    def run(self, seeds: int) -> dict[str, Any]:
        """Do it."""
        work: Callable[[Mapping[str, Any], int], dict[str, Any]] = import_module(
            f"experiments.akbar2025.{self.experiment}"
        ).run
        return work(self.settings, seeds)


def load(scale: str = "full", path: Path = CONFIG) -> list[Unit]:
    """Every unit, experiment by experiment.

    Raises:
        PlanError: for an unknown scale.
    """
    if scale not in SCALES:
        raise PlanError(f"akbar2025 has no scale {scale!r}; it has {', '.join(SCALES)}")
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    tiny = config.pop("tiny")
    units: list[Unit] = []
    for experiment, told in config.items():
        found = _units(experiment, told)
        if scale == "tiny":
            few = found[: MORE.get(experiment, FEW)]
            found = [Unit(experiment, u.label, {**u.settings, **tiny[experiment]}) for u in few]
        units += found
    return units


def _units(experiment: str, told: Mapping[str, Any]) -> list[Unit]:
    base = told["base"]
    if "runs" in told:
        return [Unit(experiment, label(changed), {**base, **changed}) for changed in told["runs"]]
    changes = [{key: value} for key, values in told["vary"].items() for value in values]
    return [Unit(experiment, "base", base), *(Unit(experiment, label(c), {**base, **c}) for c in changes)]


def label(changed: Mapping[str, Any]) -> str:
    """What is changed, as part of a file's name.

    >>> label({"norm": "batch", "lr": 0.05}), label({"hidden": [10, 10]}), label({"start": "right angle"})
    ('norm-batch-lr-0.05', 'hidden-10x10', 'start-right_angle')
    """
    return "-".join(f"{key}-{_word(value)}" for key, value in changed.items())


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_word, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "_")


def select(units: Sequence[Unit], wanted: Sequence[str]) -> list[Unit]:
    """The units of some experiments, or some units, by name; all where nothing is asked for.

    Raises:
        PlanError: for a name that is neither.
    """
    known = {u.name for u in units} | {u.experiment for u in units}
    for name in wanted:
        if name not in known:
            raise PlanError(
                f"no unit or experiment {name!r}; there is {', '.join(dict.fromkeys(u.experiment for u in units))}"
            )
    return [u for u in units if not wanted or u.name in wanted or u.experiment in wanted]


def heavy_first(units: Sequence[Unit]) -> list[Unit]:
    """In the order to be begun."""
    return sorted(units, key=lambda u: -HEAVY.get(u.experiment, 0.0) * u.settings.get("steps", 0))

"""The units of the experiments, from config.toml."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normgauge import NormgaugeError

CONFIG = Path(__file__).with_name("config.toml")
EXPERIMENTS = ("disagreement", "local", "samples", "adversarial", "tables")  # in the order to be begun


@dataclass(frozen=True, slots=True)
class Unit:
    """One run of an experiment.

    Attributes:
        experiment: the module that runs it.
        label: the values of the grid.
        settings: all of them.
        device: "auto" or "cpu".
    """

    experiment: str
    label: str
    settings: Mapping[str, Any]
    device: str = "auto"

    @property
    def name(self) -> str:
        """The name shown to people and taken by ``--only``."""
        return f"{self.experiment}/{self.label}"

    @property
    def slug(self) -> str:
        """The name its files begin with."""
        return f"{self.experiment}__{self.label}"


def load(*, quick: bool = False, path: Path = CONFIG) -> list[Unit]:
    """Every unit, those of the first experiment first."""
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    return [unit for name in EXPERIMENTS if name in told for unit in _units(name, told[name], quick)]


def _units(name: str, told: Mapping[str, Any], quick: bool) -> list[Unit]:
    small = told["quick"] if quick else {}
    grid: Mapping[str, list[Any]] = small.get("grid", told["grid"])
    units = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        cases = [told.get("case", {}).get(axis, {}).get(str(value), {}) for axis, value in point.items()]
        settings = told["set"] | point
        for overlay in (*cases, small.get("set", {})):
            settings |= overlay
        units.append(Unit(name, "-".join(map(str, values)), settings, told.get("device", "auto")))
    return units


def select(units: Sequence[Unit], wanted: Sequence[str]) -> list[Unit]:
    """Experiments, units, or those whose name begins so; all where nothing is asked for.

    Raises:
        NormgaugeError: for a name that is none of these.
    """
    for name in wanted:
        if not any(unit.name.startswith(name) for unit in units):
            known = ", ".join(dict.fromkeys(unit.experiment for unit in units))
            raise NormgaugeError(f"no unit or experiment begins with {name!r}; there is {known}; see --list")
    return [unit for unit in units if not wanted or any(unit.name.startswith(name) for name in wanted)]

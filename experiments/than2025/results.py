"""Committed results: one JSON a run, with helpers that give curves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.than2025 import store
from experiments.than2025.plan import Spec

FOLDER = Path(__file__).with_name("results")
Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One run as it was measured.

    Attributes:
        spec: its settings.
        data: the whole file.
        epochs: the records, without one of a loss that was no number.
        diverged: whether the loss stopped being a number.
    """

    spec: Spec
    data: dict[str, Any]
    epochs: tuple[dict[str, Any], ...]
    diverged: bool

    @property
    def last(self) -> dict[str, Any]:
        """The last record."""
        return self.epochs[-1]

    def total(self, key: str) -> Curve:
        """A total over the epochs."""
        return tuple((e["epoch"], number(e["totals"][key])) for e in self.epochs if e["totals"][key] is not None)

    def log_total(self, key: str) -> Curve:
        """The decimal log of a total over the epochs."""
        return tuple((x, math.log10(y)) for x, y in self.total(key) if y > 0)

    def score(self, half: str, which: int = 1) -> Curve:
        """Loss (0) or accuracy (1) on "train" or "test", in eval mode."""
        return tuple((e["epoch"], number(e[half][which])) for e in self.epochs)

    def gap(self) -> Curve:
        """Training accuracy minus test accuracy."""
        train, test = self.score("train"), self.score("test")
        return tuple((x, a - b) for (x, a), (_, b) in zip(train, test, strict=True))

    def column(self, key: str, row: int, part: int | None = None) -> Curve:
        """The decimal log of one layer's number over the epochs."""
        found = []
        for e in self.epochs:
            value = e["columns"][key][row]
            value = number(value if part is None else value[part])
            if value > 0:
                found.append((e["epoch"], math.log10(value)))
        return tuple(found)

    def reading(self, scope: str, key: str = "upper") -> Curve:
        """A number of the full readings, decimal log."""
        taken = sorted((int(k), v) for k, v in self.data.get("readings", {}).items())
        return tuple((epoch, number(v[scope][key])) for epoch, v in taken if scope in v)


def number(value: float | str) -> float:
    """A stored number; infinities are spelled out."""
    return float(value)


def load(folder: Path = FOLDER) -> dict[str, Result]:
    """Every result in a folder by the name of its run, in the order of the plan."""
    found = []
    for path in sorted(folder.glob("*.json")):
        data = store.read_json(path)
        epochs = tuple(e for e in data["epochs"] if "totals" in e)
        if epochs:
            found.append(Result(Spec.from_json(data["spec"]), data, epochs, len(epochs) < len(data["epochs"])))
    return {result.spec.name: result for result in sorted(found, key=lambda r: r.spec.order)}

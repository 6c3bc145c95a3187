"""Committed results: one JSON a run, with helpers that give curves."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.than2025 import store
from experiments.than2025.plan import Spec

FOLDER = Path(__file__).with_name("results")
# products the full readings hold as well, in float64
READ = ("log10_P_w", "log10_P_w_frobenius", "log10_prod_l2")
SIDE = 7  # largest side of a kernel in these networks
APART = 0.3  # decades between the two beyond which the epochs' own are not used
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

    @property
    def normalizers(self) -> int:
        """How many there are."""
        return len(self.data["names"]["normalizers"])

    def until(self, epoch: int) -> Result:
        """The run as it was at an earlier epoch."""
        readings = {k: v for k, v in self.data["readings"].items() if int(k) <= epoch}
        return replace(self, data={**self.data, "readings": readings}, epochs=self.epochs[: epoch + 1])

    def total(self, key: str) -> Curve:
        """A total over the epochs; of the readings alone from where a product is not to be trusted in between.

        The first runs took their norms by a power iteration in float32. It fails on a layer that has shrunk to nothing,
        or whose kept vector sits on a channel that has; the readings do not.
        """
        own = tuple((e["epoch"], number(e["totals"][key])) for e in self.epochs if e["totals"][key] is not None)
        at = dict(own)
        good = math.inf  # the last epoch up to which both agree
        for x, y in (read := self.published(key)):
            if x in at and not abs(at[x] - y) < APART:
                good = max((earlier for earlier, _ in read if earlier < x), default=-1)
                break
        return (*((x, y) for x, y in own if x <= good), *((x, y) for x, y in read if x > good))

    def published(self, key: str) -> Curve:
        """A product as the full readings have it; none where theirs is defined otherwise."""
        if key not in READ or (key == "log10_prod_l2" and self.spec.norm != "batch"):
            return ()
        return self._taken("point", lambda reading: reading["published"].get(key))

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

    def gap_at(self, level: float) -> float:
        """The gap where training accuracy first reaches a level, between epochs along a line; nan if it does not."""
        train, gap = self.score("train"), self.gap()
        for k, ((_, a), (_, b)) in enumerate(itertools.pairwise(train)):
            if a < level <= b:
                return gap[k][1] + (level - a) / (b - a) * (gap[k + 1][1] - gap[k][1])
        return math.nan

    def share_below_one(self) -> Curve:
        """The share of normalizers, or of sites where there is none, with σ < 1 (rms over channels)."""
        if self.normalizers:
            return tuple((x, y / self.normalizers) for x, y in self.total("below_one"))
        return tuple(
            (e["epoch"], statistics.fmean(float(three[1]) < 1 for three in e["columns"]["running"]))
            for e in self.epochs
        )

    def column(self, key: str, row: int, part: int | None = None) -> Curve:
        """The decimal log of one layer's number over the epochs, without zeros and estimates no layer can have."""
        found = []
        for e in self.epochs:
            value = e["columns"][key][row]
            value = number(value if part is None else value[part])
            # a convolution's norm is at most its kernel's side times the Frobenius norm of the kernel
            most = SIDE * number(e["columns"]["frobenius"][row]) if key == "norm" else math.inf
            if 0 < value <= most:
                found.append((e["epoch"], math.log10(value)))
        return tuple(found)

    def reading(self, scope: str, key: str = "upper") -> Curve:
        """A number of the full readings, decimal log."""
        return self._taken(scope, lambda reading: reading[key])

    def read_at(self, curve: Curve) -> bool:
        """Whether a curve has points at the epochs of full readings only."""
        epochs = {int(k) for k in self.data.get("readings", {})}
        return bool(curve) and all(x in epochs for x, _ in curve)

    def _taken(self, scope: str, value: Callable[[dict[str, Any]], float | str | None]) -> Curve:
        taken = sorted((int(k), v[scope]) for k, v in self.data.get("readings", {}).items() if scope in v)
        found = ((epoch, value(reading)) for epoch, reading in taken)
        return tuple((epoch, number(some)) for epoch, some in found if some is not None)


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

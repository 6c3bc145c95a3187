"""What all signs share: the layers, a look at each reading, levels to compare with, and alarms."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from normgauge.core.fields import Told
from normgauge.monitor.sheet import Row
from normgauge.monitor.thresholds import MEMORY, SETTLED


@dataclass(frozen=True, slots=True)
class Alarm:
    """The cause of an incident, said once."""

    step: Annotated[int, Told("when it was seen")]
    alarm: Annotated[str, Told("which cause")]
    layer: Annotated[str, Told("where; empty for the whole network")]
    sentence: Annotated[str, Told("what was seen, and what it means")]
    value: Annotated[float, Told("the number that gave it away")]
    threshold: Annotated[float, Told("the number it crossed")]
    advice: Annotated[str, Told("what to do", absent="")] = ""
    began: Annotated[int | None, Told("the step at which it began; `null`: when it was seen", absent=None)] = None


@dataclass(frozen=True, slots=True)
class Consequence:
    """What followed from a cause that is known: kept beneath it, and no alarm of its own."""

    step: Annotated[int, Told("when it was seen")]
    alarm: Annotated[str, Told("what it would have been called by itself")]
    layer: Annotated[str, Told("where; empty for the whole network")]
    sentence: Annotated[str, Told("what was seen, and what it means")]
    cause: Annotated[str, Told("`alarm` of the incident it belongs to")]
    cause_step: Annotated[int, Told("`step` of that alarm")]


@dataclass(frozen=True, slots=True)
class Place:
    """A layer as the watch knows it.

    Attributes:
        name: in the model.
        role: matrix, conv, embedding, norm or vector.
        shape: of its weight.
        size: Frobenius norm of the weight before the first step.
    """

    name: str
    role: str
    shape: tuple[int, ...] = ()
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One reading.

    Attributes:
        step: of the reading.
        losses: (step, loss) of every step since the reading before.
        rows: the numbers of each layer: the columns of a line, and eps, running, batch, rate, momentum, weight_decay.
        totals: of the reading.
        pairs: layer to the normalizer its output goes straight into.
        rate: the learning rate, where it is known.
        given: root mean square of the network's input, where it is a tensor of floats.
        half: whether the first product came out in float16.
    """

    step: int
    losses: Sequence[tuple[int, float]]
    rows: Sequence[Row]
    totals: Mapping[str, float | None]
    pairs: Mapping[int, int]
    rate: float | None = None
    given: float | None = None
    half: bool = False


class Level:
    """Geometric mean of a positive number over the last readings; what is not positive and finite is left out."""

    __slots__ = ("count", "mean")

    def __init__(self) -> None:
        self.count, self.mean = 0, 0.0

    def see(self, value: float | None) -> None:
        """Take one more number into account."""
        if value is None or not 0.0 < value < math.inf:
            return
        self.count += 1
        self.mean += (math.log(value) - self.mean) / min(self.count, MEMORY)

    @property
    def settled(self) -> bool:
        """Whether enough was seen to compare with."""
        return self.count >= SETTLED

    @property
    def value(self) -> float:
        """The level so far; 1 before the first number."""
        return math.exp(self.mean)

    def factor(self, value: float | None) -> float:
        """A number over the level; 1 where there is nothing to compare."""
        if value is None or not self.settled or math.isnan(value):
            return 1.0
        return value / self.value


class Sign:
    """Looks at every reading; yields an alarm at each one that shows the sign, new or not.

    Args:
        places: the layers, in the order of the rows.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._levels: dict[int, Level] = defaultdict(Level)  # of each layer, of whatever this sign compares

    @abstractmethod
    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Yield the alarms that this reading gives reason for."""

    def _rows(self, *roles: str) -> dict[int, Place]:
        """The layers of these roles, by row."""
        return {row: place for row, place in enumerate(self._places) if place.role in roles}


def median(values: Sequence[float]) -> float | None:
    """The median, or the lower of the two values in the middle; None for no values."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


def relative_updates(seen: Seen, places: Sequence[Place]) -> list[float]:
    """‖Δw‖/‖w‖ of every matrix and convolution: the angle a step turns scale-free weights by."""
    found = []
    for place, row in zip(places, seen.rows, strict=False):
        if place.role in ("matrix", "conv") and row.get("frobenius") and "update" in row:
            found.append(row["update"] / row["frobenius"])
    return [value for value in found if math.isfinite(value)]

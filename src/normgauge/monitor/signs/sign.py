"""What all signs share: the layers, a look at each reading, levels to compare with, and alarms."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from normgauge.core.fields import Told
from normgauge.monitor.facts import Facts
from normgauge.monitor.sheet import Column, Row
from normgauge.monitor.signs.story import Story
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
    set_at: Annotated[
        int | None,
        Told("of a setting, the step at which it was set: it did not follow, and is a suspect beside", absent=None),
    ] = None


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
class Broken:
    """Samples that are not finite.

    Attributes:
        what: ``input``; what the first layer is given (``entered``); ``output``; the gradient there (``slope``); or
            ``target`` of the loss.
        at: the first of them, counted from 0.
        count: how many.
        of: samples in the batch.
    """

    what: str
    at: int
    count: int
    of: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One reading.

    Attributes:
        step: of the reading.
        losses: (step, loss) of every step since the reading before.
        rows: the numbers of each layer: the columns of a line, and eps, half, entered, running, batch, rate, momentum,
            weight_decay.
        totals: of the reading.
        pairs: layer to the normalizer its output goes straight into.
        rate: the learning rate, where it is known.
        given: root mean square of the data as the first layers take it, where it is made of floats.
        half: whether a product came out in float16.
        facts: what is known without measuring.
        story: of the losses and settings of every step so far; the watch puts in its own.
        broken: the samples that are not finite, where only some are.
        order: the rows in the order of the forward pass, where it was heard; the backward pass goes the other way.
        scaled: for layers of queries, what the attention logits are multiplied with over 1/√d, where that is known.
        slope: whether the gradient of the loss by the last output is finite, where it was seen and that output is.
    """

    step: int
    losses: Sequence[tuple[int, float]]
    rows: Sequence[Row]
    totals: Mapping[str, float | None]
    pairs: Mapping[int, int]
    rate: float | None = None
    given: float | None = None
    half: bool = False
    facts: Facts = field(default_factory=Facts)
    story: Story = field(default_factory=Story)
    broken: Broken | None = None
    order: Sequence[int] = ()
    scaled: Mapping[int, float] = field(default_factory=dict)
    slope: bool | None = None


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


class Streak:
    """How many readings in a row showed something, and since which step, for each of several things."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int]] = {}
        self._runs: dict[int, tuple[int, int, int]] = {}  # last step, steps in a row up to it, most of them

    def see(self, shown: bool, step: int, row: int = 0) -> tuple[int, int]:
        """Take in one reading; returns the readings in a row and the step of the first."""
        if not shown:
            self._rows.pop(row, None)
            self._runs.pop(row, None)
            return 0, step
        count, began = self._rows.get(row, (0, step))
        self._rows[row] = count + 1, began
        last, run, most = self._runs.get(row, (step, 0, 0))
        run = run + 1 if step <= last + 1 else 1
        self._runs[row] = step, run, max(run, most)
        return count + 1, began

    def now(self, row: int = 0) -> tuple[int, int]:
        """The readings in a row so far and the step of the first; 0 where it does not show."""
        return self._rows.get(row, (0, 0))

    def longest(self, row: int = 0) -> int:
        """The most steps one after the other that all showed it: what is done at every second step only, shows so."""
        return self._runs.get(row, (0, 0, 0))[2]


class Sign:
    """Looks at every reading; yields an alarm at each one that shows the sign, new or not.

    Args:
        places: the layers, in the order of the rows.

    Attributes:
        rank: a ``setting`` is read off data or settings and never follows from anything else; a ``cause`` is inferred
            and may follow from a known one; a ``symptom`` besides counts only while the loss is off its best.
        each: whether it compares readings of steps close together, and so is asked at every one.
    """

    rank: ClassVar[Literal["setting", "cause", "symptom"]] = "cause"
    each: ClassVar[bool] = False

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._known: dict[tuple[str, ...], dict[int, Place]] = {}
        self._levels: dict[int, Level] = defaultdict(Level)  # of each layer, of whatever this sign compares

    @abstractmethod
    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Yield the alarms that this reading gives reason for."""

    def _rows(self, *roles: str) -> dict[int, Place]:
        """The layers of these roles, by row."""
        known = self._known.get(roles)
        if known is None:
            known = {row: place for row, place in enumerate(self._places) if place.role in roles}
            self._known[roles] = known
        return known


def median(values: Sequence[float]) -> float | None:
    """The median, or the lower of the two values in the middle; None for no values."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


def relative_updates(seen: Seen, places: Sequence[Place]) -> list[float]:
    """‖Δw‖/‖w‖ of every matrix and convolution that learns: the angle a step turns scale-free weights by.

    Layers that began at exactly 0 are left out: their first steps are as long as they are.
    """
    found = []
    for k, (place, row) in enumerate(zip(places, seen.rows, strict=False)):
        learns = seen.facts.of(k).learns and place.size > 0.0
        if learns and place.role in ("matrix", "conv") and row.get("frobenius") and "update" in row:
            found.append(row["update"] / row["frobenius"])
    return [value for value in found if math.isfinite(value)]


def is_cold(seen: Seen) -> bool:
    """Whether a transformer trains under Adam, and its learning rate was never well below its largest."""
    return bool(seen.facts.attends and seen.facts.adaptive) and not seen.story.warmed


def broken_sample(network: Row) -> Broken | None:
    """The samples that are not finite, of the input, the target or, where only some are, of what is made of them."""
    for what, at, bad, of in _BATCHES:
        count, total = round(network.get(bad, 0.0)), round(network.get(of, 0.0))
        if count and (what in ("input", "target") or count <= total // 2):
            return Broken(what, round(network[at]), count, total)
    return None


def finite_slope(network: Row) -> bool | None:
    """Whether the gradient of the loss by the output is finite; None where it was not seen, or the output is not."""
    known = "slope_bad" in network and not network.get("output_bad")
    return network["slope_bad"] == 0.0 if known else None


def data_size(network: Row) -> float | None:
    """Root mean square of what the first layers take; of the input, where that is not finite."""
    given = network.get("input")
    return given if given is not None and not math.isfinite(given) else network.get("taken")


_BATCHES: tuple[tuple[str, Column, Column, Column], ...] = (
    ("input", "input_at", "input_bad", "input_of"),
    ("target", "target_at", "target_bad", "target_of"),
    ("entered", "entered_at", "entered_bad", "entered_of"),
    ("output", "output_at", "output_bad", "output_of"),
    ("slope", "slope_at", "slope_bad", "slope_of"),
)

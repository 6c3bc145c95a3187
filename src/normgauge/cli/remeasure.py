"""What `verify --model` does: measure again what saved readings are about, and name what comes out otherwise."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from normgauge.cli.one_sided import unconfirmed_places
from normgauge.core.checker import CUT
from normgauge.core.compare import NO_WEIGHTS
from normgauge.core.errors import NormgaugeError, ReadingError
from normgauge.core.multipliers import MOST_KEPT, are_kept
from normgauge.core.reading import Reading
from normgauge.loading import find_batch, load_model

if TYPE_CHECKING:
    from torch import nn

EVERYWHERE = "everywhere"  # a ball's bound that is proved over all inputs
MULTIPLIED = ("open units", "loop", EVERYWHERE)  # methods whose bounds rest on multipliers
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Network:
    """The network readings are held against, and what it is measured on; without a batch its weights alone count."""

    model: nn.Module
    batch: Any
    measured: bool

    @classmethod
    def load(cls, model: str, batch: str | None) -> Network:
        """Build what the two names stand for; both may run the user's code, which may print."""
        with contextlib.redirect_stdout(sys.stderr):
            given = None if batch is None else find_batch(batch)
            built = load_model(model)
            return cls(built, None if given is None else given(), given is not None)

    def check(self, items: Sequence[Any]) -> list[list[str]]:
        """What is wrong with each of the readings of a file, as they are stored."""
        from normgauge.instrument.fingerprint import weights_digest
        from normgauge.instrument.trace import unwrap

        weights, found = weights_digest(unwrap(self.model)), [list[str]() for _ in items]
        alike: dict[str, list[tuple[int, Reading]]] = {}
        for place, item in enumerate(items):
            try:
                reading = Reading.from_json(item)
            except ReadingError:
                continue  # the check of the stored numbers says what is wrong
            found[place] += other_weights(reading.weights, weights, self.measured)
            alike.setdefault(f"{reading.mode} {sorted(reading.options.items())}", []).append((place, reading))
        for group in alike.values() if self.measured else ():
            for (place, _), sentences in zip(group, self.again([reading for _, reading in group]), strict=True):
                found[place] += sentences
        return found

    def again(self, stored: Sequence[Reading]) -> Iterator[list[str]]:
        """Measure in the scopes, mode and options of the readings, and compare."""
        from normgauge.instrument.measure import measured
        from normgauge.instrument.session import Options

        options = {key: value for key, value in stored[0].options.items() if value is not None}
        try:
            given = {proved_radius(r): stored_logs(r) for r in stored if are_kept(r.multipliers)}
            weights = {radius: logs for r in stored for radius, logs in stored_weights(r)}
            with contextlib.redirect_stdout(sys.stderr):
                asked = Options(mode=stored[0].mode, multipliers=given, channel_weights=weights, **options)
                found = measured(self.model, self.batch, [r.scope for r in stored], asked)
        except NormgaugeError as error:
            yield from [[f"measured again: {error}"]] * len(stored)
            return
        for old, new in zip(stored, found, strict=True):
            yield remeasured_differences(old, new)


def proved_radius(reading: Reading) -> float:
    """The radius of the scope that the multipliers of a reading belong to."""
    return math.inf if reading.method == EVERYWHERE else reading.scope.radius


def stored_logs(reading: Reading) -> dict[int, tuple[float, ...]]:
    """The multipliers of a reading by sample."""
    return {item.sample: item.logs() for item in reading.multipliers}


def other_weights(stored: str, now: str, measured: bool) -> Iterator[str]:
    """Whether the weights are those that were measured; where there are none, that only a measurement can tell."""
    if not stored or not now:
        yield f"weights_digest: {'the model has' if stored else 'the reading stores'} none, so they cannot be compared"
    elif stored != now:
        yield "weights_digest: the weights are not those that were measured"
    elif now == NO_WEIGHTS and not measured:
        yield "weights_digest: the model has no parameters or buffers to compare; give --batch, to measure it again"


def stored_weights(reading: Reading) -> Iterator[tuple[float, tuple[float, ...]]]:
    """The free log weights of the channels that a reading was proved with, by radius: 0 for those of its radii."""
    if are_kept(reading.channel_weights):
        yield from ((0.0 if item.sample else reading.scope.radius, item.logs()) for item in reading.channel_weights)


def missing_multipliers(stored: Reading, again: Reading) -> Iterator[str]:
    """Whether a bound that rests on multipliers came without them though there are few enough to be kept."""
    if stored.method not in MULTIPLIED or are_kept(stored.multipliers):
        return
    counts = [sum(item.count for item in reading.multipliers) for reading in (stored, again)]
    if not stored.multipliers or min(counts) <= MOST_KEPT:
        yield f"multipliers: a bound by {stored.method} rests on them, up to {MOST_KEPT:,} are kept, and none are there"


def remeasured_differences(stored: Reading, again: Reading) -> list[str]:
    """What came out otherwise, a sentence each."""
    told = [*missing_multipliers(stored, again), *unconfirmed_places(stored, again)]
    if again.log10_lower > stored.log10_upper + CUT:
        told.insert(0, f"log10_upper: a slope of 10^{again.log10_lower:.6g} was found above it")
    strange = sorted({record.rule for record in stored.layers if record.rule.startswith("user.")})
    if told and strange:
        told.insert(0, f"rules: {', '.join(strange)} are rules of the user's that the command does not have")
    rest = len(told) - SHOWN
    return told if rest <= 0 else [*told[:SHOWN], f"and {rest} more numbers that come out otherwise"]

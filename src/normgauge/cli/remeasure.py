"""What `verify --model` does: measure again what saved readings are about, and name what comes out otherwise."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from normgauge.core.errors import NormgaugeError, ReadingError
from normgauge.core.fields import declared_fields
from normgauge.core.multipliers import are_kept
from normgauge.core.proof import ProofStep
from normgauge.core.reading import LayerRecord, Reading, Sample
from normgauge.loading import find_batch, load_model

if TYPE_CHECKING:
    from torch import nn

# These differ from run to run, or with the machine: the search has a budget, and of the balanced bound only the total
# is unique. The proof and the totals recomposed from it hold them all the same.
FIELDS = [field for cls in (Reading, LayerRecord, Sample, ProofStep) for field in declared_fields(cls)]
LEFT_OUT = {field.key for field in FIELDS if field.told.varies}
MINIMISED = {field.key for field in FIELDS if field.told.minimised}
CLOSE, BALANCED = 1e-5, 1e-3  # decades; of a number that is no logarithm, a part of it
PROVED = 5e-9  # decades: what sums in another order may differ by
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
            found[place] += other_weights(reading.weights, weights)
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
            given = {r.scope.radius: stored_logs(r) for r in stored if are_kept(r.multipliers)}
            with contextlib.redirect_stdout(sys.stderr):
                asked = Options(mode=stored[0].mode, multipliers=given, **options)
                found = measured(self.model, self.batch, [r.scope for r in stored], asked)
        except NormgaugeError as error:
            yield from [[f"measured again: {error}"]] * len(stored)
            return
        for old, new in zip(stored, found, strict=True):
            yield remeasured_differences(old, new)


def stored_logs(reading: Reading) -> dict[int, tuple[float, ...]]:
    """The multipliers of a reading by sample."""
    return {item.sample: item.logs() for item in reading.multipliers}


def larger_bounds(stored: Reading, again: Reading) -> Iterator[str]:
    """Where the stored multipliers prove less than was stored with them: here nothing was searched for."""
    if not are_kept(stored.multipliers):
        return
    pairs = [("log10_upper", stored.log10_upper, again.log10_upper)]
    if len(stored.samples) == len(again.samples):
        for old, new in zip(stored.samples, again.samples, strict=True):
            if old.get("log10_upper") is not None and new.get("log10_upper") is not None:
                pairs.append((f"samples[{old['index']}].log10_upper", old["log10_upper"], new["log10_upper"]))
    for place, told, proved in pairs:
        if told < proved - PROVED * max(1.0, abs(proved)):
            yield f"{place}: stored {told:.12g}, its multipliers prove {proved:.12g}"


def other_weights(stored: str, now: str) -> Iterator[str]:
    """Whether the weights are those that were measured."""
    if not stored or not now:
        yield f"weights_digest: {'the model has' if stored else 'the reading stores'} none, so they cannot be compared"
    elif stored != now:
        yield "weights_digest: the weights are not those that were measured"


def remeasured_differences(stored: Reading, again: Reading) -> list[str]:
    """What came out otherwise, a sentence each."""
    told = [*larger_bounds(stored, again), *differing_places(stored.to_json(), again.to_json())]
    if again.log_lower > stored.log_upper + math.log(1 + BALANCED):
        told.insert(0, f"log10_upper: a slope of 10^{again.log10_lower:.6g} was found above it")
    strange = sorted({record.rule for record in stored.layers if record.rule.startswith("user.")})
    if told and strange:
        told.insert(0, f"rules: {', '.join(strange)} are rules of the user's that the command does not have")
    rest = len(told) - SHOWN
    return told if rest <= 0 else [*told[:SHOWN], f"and {rest} more numbers that come out otherwise"]


def differing_places(stored: Any, again: Any, place: str = "", close: float = CLOSE) -> Iterator[str]:
    """The places where two stored readings differ by more than the machine they were made on."""
    if isinstance(stored, Mapping) and isinstance(again, Mapping):
        for key in dict.fromkeys((*stored, *again)):
            if key not in LEFT_OUT:
                within = BALANCED if key in MINIMISED else close
                inner = f"{place}.{key}" if place else str(key)
                yield from differing_places(stored.get(key), again.get(key), inner, within)
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for index, (old, new) in enumerate(zip(stored, again, strict=True)):
            name = new.get("name", index) if isinstance(new, Mapping) else index
            yield from differing_places(old, new, f"{place}[{name}]", close)
    elif not _same(stored, again, "log10" in place, close):
        yield f"{place}: stored {_shown(stored)}, measured again {_shown(again)}"


def _same(stored: Any, again: Any, logarithm: bool, close: float) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (stored, again))
    if not numbers:
        return bool(stored == again)
    return math.isclose(stored, again, rel_tol=close, abs_tol=close if logarithm else 0.0)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} of them"
    return f"{value:.9g}" if isinstance(value, float) else f"{value!r:.40}"

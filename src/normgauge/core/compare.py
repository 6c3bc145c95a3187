"""What changed between two readings, by layer; and whose change it is, where that can be said."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

from normgauge.core.attribution import attribute
from normgauge.core.bound import Evidence
from normgauge.core.fields import SIDES, Log, Stored, Told
from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10, spell_number, to_log10

ADDED, REMOVED, REPLACED, KEPT = "added", "removed", "kind changed", "kept"
SAME = 0.01 * LN10  # a hundredth of a decade: below it two bounds are nearly the same
NO_WEIGHTS = f"sha256:{hashlib.sha256().hexdigest()}"  # the digest of a model without parameters and buffers
GAUGE = 0.5 * LN10  # how far a product of norms must move before its gauge is blamed


@dataclass(frozen=True, slots=True)
class Change(Stored):
    """A logarithm in A and in B; None on a side that does not have it. Those that are ``apart`` are not compared."""

    a: Annotated[Log | None, Told("in A")]
    b: Annotated[Log | None, Told("in B")]
    apart: bool = False

    @property
    @Told("B − A; `null` where a side is missing or the samples are not the same", key="change")
    def by(self) -> Log | None:
        """B − A; 0 between equal infinities, None where a side is missing or both are apart."""
        if self.a is None or self.b is None or self.apart:
            return None
        return 0.0 if self.a == self.b else self.b - self.a


@dataclass(frozen=True, slots=True)
class LayerChange(Stored):
    """One layer in both readings, matched by name."""

    name: Annotated[str, Told("module path")]
    kinds: Annotated[
        tuple[str, str],
        SIDES,
        Told("class or function name in A and in B; empty on the side that lacks it", key="kind"),
    ]
    status: Annotated[str, Told("`added`, `removed`, `kind changed` or `kept`")]
    gain: Annotated[Change, Told("the layer's own constant", key="log10_gain")]
    folded: Annotated[Change, Told("its share after folding", key="log10_folded")]
    balanced: Annotated[Change, Told("its share in the balanced bound", key="log10_balanced")]
    sigma: Annotated[Change, Told("a normalizer's smallest √(variance + ε) at the samples", key="log10_sigma_min")]
    share: Annotated[
        Log | None,
        Told("its part in the change of the balanced bound; `null` where that cannot be said", key="log10_share"),
    ] = None

    @property
    def size(self) -> float:
        """How much changed: its part in the bound first, its own numbers where there is none."""
        moves = [self.share] if self.share is not None else [c.by for c in (self.gain, self.folded, self.balanced)]
        size = max((abs(m) for m in moves if m is not None), default=0.0)
        return max(size, abs(self.gain.b or self.gain.a or 0.0)) if self.status in (ADDED, REMOVED) else size


@dataclass(frozen=True, slots=True)
class Difference:
    """Two readings in one scope.

    Attributes:
        a, b: the readings.
        upper, folded, lower: the totals.
        published: the gauge-dependent products, natural logs, by name.
        layers: all of them, the largest change first.
        rest: what the shares leave of the change of the balanced bound; None without shares.
    """

    a: Reading
    b: Reading
    upper: Change
    folded: Change
    lower: Change
    published: dict[str, Change]
    layers: tuple[LayerChange, ...]
    rest: float | None

    @property
    def apart(self) -> bool:
        """Whether A and B were read at different samples, in a scope where that matters: nothing is compared then."""
        return apart_readings((self.a, self.b))

    @property
    def growth(self) -> float:
        """log of how much more B may amplify than A; 0 where they are apart."""
        return self.upper.by or 0.0

    @property
    def other_code(self) -> bool:
        """Whether something else than the weights is known to have changed in what the network computes.

        Layers that came, went or were wired in another way; with the same weights, samples and settings a gain.
        """
        a, b = self.a, self.b
        if any(layer.status != KEPT for layer in self.layers) or wiring(a) != wiring(b):
            return True
        alike = same_weights(a.weights, b.weights) and a.batch == b.batch != "" and not self.other_settings
        return bool(alike) and any(abs(layer.gain.by or 0.0) > SAME for layer in self.layers)

    @property
    def other_settings(self) -> bool:
        """Whether A and B were measured with other options or another version."""
        ways = [(dict(r.options), r.mode, r.together, r.input_name, r.version) for r in (self.a, self.b)]
        return ways[0] != ways[1]

    @property
    def other_gauge(self) -> bool:
        """Whether the products of norms moved while the bound, which is the same in every gauge, did not."""
        moved = [self.published[key].by or 0.0 for key in ("P_w", "prod_inv_sigma, rms") if key in self.published]
        return abs(self.growth) < SAME and any(GAUGE < abs(m) < math.inf for m in moved)

    @property
    def parts(self) -> list[tuple[str, float]]:
        """Shares, the largest first. A linear map and the normalizer behind it are one: either may hold the scale.

        Where B has a layer of another kind, both kinds are named. Empty where the change cannot be divided.
        """
        labels, found = _part_names(self), dict[str, float]()
        for layer in self.layers:
            if layer.share is not None:
                found[labels[layer.name]] = found.get(labels[layer.name], 0.0) + layer.share
        return sorted(found.items(), key=lambda item: -abs(item[1]))

    @property
    def weaker(self) -> bool:
        """Whether B's bound is worth less than A's: less well known, on one path only, or with a chance to fail."""
        order = list(Evidence)
        worth = [(order.index(r.evidence), r.path_dependent, r.failure_probability) for r in (self.a, self.b)]
        return worth[1] > worth[0]

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON, with decimal logarithms."""
        return {
            "scope": str(self.a.scope),
            "normgauge": {"a": self.a.version, "b": self.b.version},
            "log10_upper": self.upper.to_json(),
            "log10_folded": self.folded.to_json(),
            "log10_lower": self.lower.to_json(),
            "gap": {"a": spell_number(self.a.gap), "b": spell_number(self.b.gap)},
            "comparable": not self.apart,
            "evidence": {"a": str(self.a.evidence), "b": str(self.b.evidence)},
            "path_dependent": {"a": self.a.path_dependent, "b": self.b.path_dependent},
            "log10_refuted": {"a": to_log10(self.a.log_refuted), "b": to_log10(self.b.log_refuted)},
            "other_gauge": self.other_gauge,
            "published": {f"log10_{name}": change.to_json() for name, change in self.published.items()},
            "layers": [layer.to_json() for layer in self.layers],
            "log10_rest": to_log10(self.rest),
        }


def compare_readings(a: Reading, b: Reading) -> Difference:
    """What changed from ``a`` to ``b``; both in the same scope."""
    apart = apart_readings((a, b))
    change = partial(Change, apart=apart)
    shares = None if apart else attribute(a, b)
    capacity = Change(a.log_capacity, b.log_capacity)
    rest = None if shares is None else (capacity.by or 0.0) - math.fsum(shares.values())
    first, second = ({k: None if log is None else log * LN10 for k, log in side.products.items()} for side in (a, b))
    return Difference(
        a=a,
        b=b,
        upper=change(a.log_upper, b.log_upper),
        folded=change(a.log_folded, b.log_folded),
        lower=change(a.log_lower, b.log_lower),
        published={name: change(first.get(name), second.get(name)) for name in {**first, **second}},
        layers=tuple(sorted(_layers(a, b, shares), key=lambda layer: -layer.size)),
        rest=rest,
    )


def same_weights(a: str, b: str) -> bool | None:
    """Whether two digests are of the same parameters and buffers; None where one has none, or there are none in it."""
    return None if {a, b} & {"", NO_WEIGHTS} else a == b


def wiring(reading: Reading) -> list[tuple[Any, ...]]:
    """Which step reads which; empty where a reading has no proof."""
    return [] if reading.proof is None else [(step.layer, step.inputs, step.output) for step in reading.proof.steps]


def apart_readings(readings: Sequence[Reading]) -> bool:
    """Whether some of the readings were made on different samples, in a scope where that matters.

    Those that carry no digest are known to differ where they are not as many.
    """
    near = [reading for reading in readings if reading.scope.kind != "global"]
    digests = {reading.batch for reading in near} - {""}
    counts = {len(reading.samples) for reading in near if not reading.together} - {0}
    return len(digests) > 1 or len(counts) > 1


def match_scopes(a: Sequence[Reading], b: Sequence[Reading]) -> tuple[list[Difference], list[str]]:
    """The differences in every scope both sides have, and the scopes only one of them has."""
    first, second = ({str(r.scope): r for r in side} for side in (a, b))
    return [compare_readings(first[scope], second[scope]) for scope in first if scope in second], sorted(
        set(first) ^ set(second)
    )


def _units(reading: Reading) -> dict[str, str]:
    """By name, what a linear map and the normalizer behind it are called together."""
    pairs = [(w, n) for w, n in pairwise(reading.layers) if w.log_spectral is not None and n.sigma is not None]
    return {record.name: f"{w.name} with {n.name}" for w, n in pairs for record in (w, n)}


def _part_names(difference: Difference) -> dict[str, str]:
    """By layer name, what its part is called: with the normalizer it goes with, and both kinds where B has another."""
    units = {**_units(difference.b), **_units(difference.a)}
    labels = {layer.name: units.get(layer.name, layer.name) for layer in difference.layers}
    kinds = dict[str, list[str]]()
    for layer in difference.layers:
        if layer.status == REPLACED:
            kinds.setdefault(labels[layer.name], []).append(" → ".join(layer.kinds))
    return {name: f"{label}: {', '.join(kinds[label])}" if label in kinds else label for name, label in labels.items()}


def _layers(a: Reading, b: Reading, shares: dict[str, float] | None) -> list[LayerChange]:
    first, second = ({record.name: record for record in reading.layers} for reading in (a, b))
    change = partial(Change, apart=apart_readings((a, b)))
    return [
        _layer(name, first.get(name), second.get(name), None if shares is None else shares.get(name, 0.0), change)
        for name in {**first, **second}
    ]


def _layer(
    name: str, a: LayerRecord | None, b: LayerRecord | None, share: float | None, change: Callable[..., Change]
) -> LayerChange:
    kinds = ("" if a is None else a.kind, "" if b is None else b.kind)
    status = ADDED if a is None else REMOVED if b is None else KEPT if kinds[0] == kinds[1] else REPLACED
    return LayerChange(
        name=name,
        kinds=kinds,
        status=status,
        gain=change(None if a is None else a.gain.hi, None if b is None else b.gain.hi),
        folded=change(None if a is None else a.log_folded, None if b is None else b.log_folded),
        balanced=change(None if a is None else a.log_balanced, None if b is None else b.log_balanced),
        sigma=change(_sigma(a), _sigma(b)),
        share=share,
    )


def _sigma(record: LayerRecord | None) -> float | None:
    if record is None or record.sigma is None:
        return None
    size = record.sigma["min"]
    return math.log(size) if size > 0 else -math.inf

"""A certificate: what can be promised about unseen data, one row a bound or score, in plain numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from normgauge.core.claim import Curve
from normgauge.core.spelled import spell, unspell
from normgauge.errors import InputError, ReadingError

SCHEMA = 2
NETWORK = "this network"
GROUPS = "hold-out groups"  # a fact
GUESSING = "error of always naming the most frequent class"  # a fact


class Kind(StrEnum):
    """What a row may be called."""

    BOUND = "bound"  # the true quantity is at most this, with the stated confidence
    ESTIMATE = "estimate"  # a term was estimated, so nothing is promised
    SCORE = "score"  # ranks networks; its scale says nothing
    VACUOUS = "vacuous"  # a bound that says no more than the range of the loss
    NOT_APPLICABLE = "not applicable"  # its conditions do not hold here


class Consumed(StrEnum):
    """What a row was paid with."""

    TRAIN_INPUTS = "train inputs"
    TRAIN_LABELS = "train labels"
    HOLDOUT_LABELS = "hold-out labels"
    UNLABELED = "unlabeled data"
    SURROGATE_LABELS = "labelled samples of the surrogate"
    OTHER = "other data, for the encoder"
    TRAINING = "extra training"
    WEIGHTS = "weights only"


@dataclass(frozen=True, slots=True)
class Row:
    """One bound or score.

    Attributes:
        key: a stable name for scripts, such as ``theorem20.variation``.
        name: for people.
        family: rows of one family stand together: ``hold-out``, ``cells``, ``feature cells``, ``capacity``,
            ``PAC-Bayes``, ``compression``, ``disagreement``, ``score``.
        kind: what it may be called.
        value: the number; None where there is none.
        confidence: 1 − δ of the whole row; None for scores.
        consumed: what it was paid with.
        terms: its parts by name, in the order a waterfall shows them.
        additive: whether the terms add up to the value.
        limit: the range of what is bounded: at or above it a bound says nothing.
        quantity: what is bounded, such as ``error``.
        about: which predictor it speaks about; a bound for a noisy or compressed network says nothing of this one.
        condition: what must hold and cannot be checked from here; no bound is without one.
        reason: why it is no bound, or vacuous, or not applicable; what to do about it.
        needed: training samples (or hold-out samples) with which it would say something; None where unknown or none.
        source: paper or theorem.
        formula: in Unicode, readable raw.
    """

    key: str
    name: str
    family: str
    kind: Kind
    value: float | None = None
    confidence: float | None = None
    consumed: tuple[Consumed, ...] = ()
    terms: tuple[tuple[str, float], ...] = ()
    additive: bool = False
    limit: float = 1.0
    quantity: str = "error"
    about: str = NETWORK
    condition: str = ""
    reason: str = ""
    needed: int | None = None
    source: str = ""
    formula: str = ""

    def __post_init__(self) -> None:
        if self.kind is Kind.NOT_APPLICABLE and not self.reason:
            raise InputError(f"row {self.key}: a row that does not apply says why")
        if self.kind not in (Kind.NOT_APPLICABLE, Kind.VACUOUS) and (self.value is None or math.isnan(self.value)):
            raise InputError(f"row {self.key}: a {self.kind} has a value, got {self.value}")
        if self.kind is Kind.BOUND and not self.condition:
            raise InputError(f"row {self.key}: a bound says what it rests on (condition)")
        if self.kind is Kind.BOUND and not (self.value is not None and self.value < self.limit):
            raise InputError(f"row {self.key}: a bound of {self.value} on what is at most {self.limit} is vacuous")

    @property
    def heaviest(self) -> str:
        """The largest term: what makes a vacuous row vacuous."""
        return max(self.terms, key=lambda term: term[1])[0] if self.terms else ""

    def to_json(self) -> dict[str, Any]:
        """This row as strict JSON."""
        return {
            "key": self.key,
            "name": self.name,
            "family": self.family,
            "kind": str(self.kind),
            "value": spell(self.value),
            "confidence": self.confidence,
            "consumed": [str(c) for c in self.consumed],
            "terms": {name: spell(value) for name, value in self.terms},
            "additive": self.additive,
            "limit": spell(self.limit),
            "quantity": self.quantity,
            "about": self.about,
            "condition": self.condition,
            "reason": self.reason,
            "needed": self.needed,
            "source": self.source,
            "formula": self.formula,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """The inverse of `to_json`."""
        plain = {**data, "kind": Kind(data["kind"]), "value": unspell(data["value"]), "limit": _number(data["limit"])}
        plain["consumed"] = tuple(Consumed(c) for c in data["consumed"])
        plain["terms"] = tuple((name, _number(value)) for name, value in data["terms"].items())
        return cls(**plain)


def promised(row: Row, **changes: Any) -> Row:
    """The row, with these fields changed, as a bound, or as vacuous where it says no more than the range.

    The one door through which a row becomes a bound.
    """
    given = changes.pop("value", row.value)
    value = math.inf if given is None or math.isnan(given) else given
    reason = changes.pop("reason", row.reason)
    if value < changes.get("limit", row.limit):
        return dataclasses.replace(row, kind=Kind.BOUND, value=value, reason=reason, **changes)
    changed = dataclasses.replace(row, kind=Kind.VACUOUS, value=value, reason=reason, **changes)
    if reason:
        return changed
    reason = f"{value:.3g}, and the {changed.quantity} is at most {changed.limit:g} anyway"
    if changed.heaviest:
        reason += f"; largest term: {changed.heaviest}"
    return dataclasses.replace(changed, reason=reason)


@dataclass(frozen=True, slots=True)
class Certificate:
    """All rows for one network.

    Attributes:
        model: class name of the network.
        delta: the share of failure every row allows.
        samples: training samples; ``holdout`` and ``unlabeled`` likewise, 0 where none were given.
        classes: of the labels.
        rows: bounds first, as computed; the renderers order them.
        facts: numbers measured on the way, by name: error on D, quantiles of the margin, Lipschitz constants.
        warnings: what a reader must know before trusting any row.
        notes: what was done, such as the mode measured in.
        curves: small plots, such as a local constant against its radius.
        tries: how many networks or settings were compared on these samples: every row's share of failure is δ over it.
    """

    model: str
    delta: float
    samples: int
    holdout: int
    unlabeled: int
    classes: int
    rows: tuple[Row, ...]
    facts: Mapping[str, float | int | str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    tries: int = 1

    def row(self, key: str) -> Row:
        """The row of this key.

        Raises:
            InputError: where there is none.
        """
        for row in self.rows:
            if row.key == key:
                return row
        raise InputError(f"no row {key!r}; there are {', '.join(row.key for row in self.rows)}")

    def to_json(self) -> dict[str, Any]:
        """This certificate as strict JSON."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "delta": self.delta,
            "tries": self.tries,
            "samples": self.samples,
            "holdout": self.holdout,
            "unlabeled": self.unlabeled,
            "classes": self.classes,
            "rows": [row.to_json() for row in self.rows],
            "facts": {name: value if isinstance(value, str) else spell(value) for name, value in self.facts.items()},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "curves": [curve.to_json() for curve in self.curves],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        """The inverse of `to_json`; facts that are words stay words.

        Raises:
            ReadingError: for another schema or missing fields.
        """
        if data.get("schema") != SCHEMA:
            raise ReadingError(f"expected a certificate of schema {SCHEMA}, got {data.get('schema')!r}")
        try:
            plain = {
                key: data[key] for key in ("model", "delta", "tries", "samples", "holdout", "unlabeled", "classes")
            }
            return cls(
                **plain,
                rows=tuple(Row.from_json(row) for row in data["rows"]),
                facts={k: _number(v) if v in ("inf", "-inf") else v for k, v in data["facts"].items()},
                warnings=tuple(data["warnings"]),
                notes=tuple(data["notes"]),
                curves=tuple(_curve(curve) for curve in data["curves"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ReadingError(f"this is no certificate: {type(error).__name__} {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), allow_nan=False, indent=1), encoding="utf-8")

    def text(self, *, every: bool = False) -> str:
        """What a terminal shows: one line a family, or every row."""
        from normgauge.render.certificate import text

        return text(self, every=every)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The table a notebook shows."""
        from normgauge.render.certificate import notebook

        return notebook(self)


def _number(value: float | str) -> float:
    return float(value)


def _curve(data: Mapping[str, Any]) -> Curve:
    lines = tuple((line["name"], tuple(_number(v) for v in line["y"])) for line in data["lines"])
    x = tuple(_number(v) for v in data["x"])
    return Curve(data["title"], data["x_label"], data["y_label"], x, lines, data["log_x"], data["log_y"])

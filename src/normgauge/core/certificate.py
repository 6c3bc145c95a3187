"""A certificate: what can be promised about unseen data, one row a bound or score, in plain numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from normgauge.core.claim import Curve
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.fields import Stored, Told, plain_form
from normgauge.core.spelled import spell_number

SCHEMA = 2
NETWORK = "this network"
GROUPS = "hold-out groups"  # a fact
GUESSING = "error of always naming the most frequent class"  # a fact


class RowKind(StrEnum):
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


Fact = Annotated[
    float | int | str,
    plain_form(
        "a number or a text",
        lambda value: isinstance(value, str | int | float),
        lambda value: value if isinstance(value, str) else spell_number(value),
        lambda value: float(value) if value in ("inf", "-inf") else value,
        "number or text",
    ),
]


@dataclass(frozen=True, slots=True)
class Row(Stored):
    """One bound or score."""

    key: Annotated[str, Told("a stable name for scripts, such as `theorem20.variation`")]
    name: Annotated[str, Told("for people")]
    family: Annotated[
        str,
        Told(
            "rows of one family stand together: `hold-out`, `cells`, `feature cells`, `capacity`, `PAC-Bayes`, "
            "`compression`, `disagreement`, `score`"
        ),
    ]
    kind: Annotated[RowKind, Told("what it may be called: `bound`, `estimate`, `score`, `vacuous` or `not applicable`")]
    value: Annotated[float | None, Told("the number; `null` where there is none")] = None
    confidence: Annotated[float | None, Told("1 − δ of the whole row; `null` for scores")] = None
    consumed: Annotated[tuple[Consumed, ...], Told("what it was paid with")] = ()
    terms: Annotated[tuple[tuple[str, float], ...], Told("its parts by name, in the order a waterfall shows them")] = ()
    additive: Annotated[bool, Told("whether the terms add up to the value")] = False
    limit: Annotated[float, Told("the range of what is bounded: at or above it a bound says nothing")] = 1.0
    quantity: Annotated[str, Told("what is bounded, such as `error`")] = "error"
    about: Annotated[
        str,
        Told("which predictor it speaks about; a bound for a noisy or compressed network says nothing of this one"),
    ] = NETWORK
    condition: Annotated[
        str,
        Told("what must hold and cannot be checked from here, parts divided by `; `; no bound is without one"),
    ] = ""
    reason: Annotated[str, Told("why it is no bound, or vacuous, or not applicable; what to do about it")] = ""
    needed: Annotated[
        int | None,
        Told("training samples (or hold-out samples) with which it would say something; `null` where unknown or none"),
    ] = None
    source: Annotated[str, Told("paper or theorem")] = ""
    formula: Annotated[str, Told("in Unicode, readable raw")] = ""

    def __post_init__(self) -> None:
        if self.kind is RowKind.NOT_APPLICABLE and not self.reason:
            raise InputError(f"row {self.key}: a row that does not apply says why")
        if self.kind not in (RowKind.NOT_APPLICABLE, RowKind.VACUOUS) and (
            self.value is None or math.isnan(self.value)
        ):
            raise InputError(f"row {self.key}: a {self.kind} has a value, got {self.value}")
        if self.kind is RowKind.BOUND and not self.condition:
            raise InputError(f"row {self.key}: a bound says what it rests on (condition)")
        if self.kind is RowKind.BOUND and not (self.value is not None and self.value < self.limit):
            raise InputError(f"row {self.key}: a bound of {self.value} on what is at most {self.limit} is vacuous")

    @property
    def heaviest(self) -> str:
        """The largest term: what makes a vacuous row vacuous."""
        return max(self.terms, key=lambda term: term[1])[0] if self.terms else ""


def promised_row(row: Row, **changes: Any) -> Row:
    """The row, with these fields changed, as a bound, or as vacuous where it says no more than the range.

    The one door through which a row becomes a bound.
    """
    given = changes.pop("value", row.value)
    value = math.inf if given is None or math.isnan(given) else given
    reason = changes.pop("reason", row.reason)
    if value < changes.get("limit", row.limit):
        return dataclasses.replace(row, kind=RowKind.BOUND, value=value, reason=reason, **changes)
    changed = dataclasses.replace(row, kind=RowKind.VACUOUS, value=value, reason=reason, **changes)
    if reason:
        return changed
    reason = f"{value:.3g}, and the {changed.quantity} is at most {changed.limit:g} anyway"
    if changed.heaviest:
        reason += f"; largest term: {changed.heaviest}"
    return dataclasses.replace(changed, reason=reason)


@dataclass(frozen=True, slots=True)
class Certificate(Stored):
    """All rows for one network, and what they were computed from."""

    schema: ClassVar[Annotated[int, Told(f"{SCHEMA}")]] = SCHEMA
    model: Annotated[str, Told("class name of the network")]
    delta: Annotated[float, Told("the share of failure every row allows")]
    tries: Annotated[
        int,
        Told("how many networks or settings were compared on these samples: every row's share of failure is δ over it"),
    ] = field(default=1, kw_only=True)
    samples: Annotated[int, Told("training samples")]
    holdout: Annotated[int, Told("hold-out samples, 0 where none were given")]
    unlabeled: Annotated[int, Told("samples without labels, 0 where none were given")]
    classes: Annotated[int, Told("of the labels")]
    rows: Annotated[tuple[Row, ...], Told("bounds first, as computed; the renderers order them; see below")]
    facts: Annotated[
        Mapping[str, Fact],
        Told("numbers measured on the way, by name: error on D, quantiles of the margin, Lipschitz constants"),
    ] = field(default_factory=dict)
    warnings: Annotated[tuple[str, ...], Told("what a reader must know before trusting any row")] = ()
    notes: Annotated[tuple[str, ...], Told("what was done, such as the mode measured in")] = ()
    curves: Annotated[tuple[Curve, ...], Told("small plots, such as a local constant against its radius")] = ()

    def row(self, key: str) -> Row:
        """Return the row with this key.

        Raises:
            InputError: where there is none.
        """
        for row in self.rows:
            if row.key == key:
                return row
        raise InputError(f"no row {key!r}; there are {', '.join(row.key for row in self.rows)}")

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        """The inverse of `to_json`; facts that are words stay words.

        Raises:
            ReadingError: for another schema, and for a field that is missing or of the wrong kind, which is named.
        """
        if data.get("schema") != SCHEMA:
            raise ReadingError(f"expected a certificate of schema {SCHEMA}, got {data.get('schema')!r}")
        return super(Certificate, cls).from_json(data)

    def text(self, *, every: bool = False) -> str:
        """What a terminal shows: one line a family, or every row."""
        from normgauge.render.certificate import certificate_text

        return certificate_text(self, every=every)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        from normgauge.render.certificate_page import certificate_notebook

        return certificate_notebook(self)

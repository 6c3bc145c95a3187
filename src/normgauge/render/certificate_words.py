"""A certificate in words: its numbers rounded to the safe side, the sentences it opens with, its rows in order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from normgauge.core.certificate import GROUPS, GUESSING, NETWORK, Certificate, Consumed, Row, RowKind
from normgauge.render.certificate_families import in_order, leading_rows, speaking_row
from normgauge.render.numbers import ABSENT, plural

MEANINGS = {
    RowKind.BOUND: "At most this on unseen data, with the confidence beside it, for the predictor it is about.",
    RowKind.VACUOUS: "A true bound that says nothing: no smaller than the worst possible value.",
    RowKind.ESTIMATE: "A part was estimated, so the number may be too small: nothing is promised.",
    RowKind.SCORE: "For comparing networks: larger predicts worse. Its size says nothing by itself.",
    RowKind.NOT_APPLICABLE: "Its conditions do not hold here; the reason says which, and what to do.",
}
PLAIN = 10.0  # from here on an error is a power of ten, not a percentage
DIGITS = 3
MANY = 10**9  # samples from here on are a power of ten
ALL = Decimal(100)  # percent
FINE = Decimal("0.001")  # smaller numbers have an exponent
OWN = frozenset(
    {Consumed.TRAIN_INPUTS, Consumed.TRAIN_LABELS, Consumed.TRAINING, Consumed.WEIGHTS}
)  # nothing but the training data
ONE_AT_A_TIME = (
    "Rows hold one at a time: choose the row to report before looking, or divide delta by the number of rows compared."
)


def format_amount(value: float | None, quantity: str = "error", *, up: bool = False, down: bool = False) -> str:
    """A value as people read it: an error in percent, large ones as powers of ten.

    Args:
        value: the number.
        quantity: what it is a number of.
        up: round upwards, so that what is printed is a bound as well.
        down: round downwards, so that the number is at least what is printed.

    >>> format_amount(0.02241, up=True), format_amount(0.02241), format_amount(1.38)
    ('2.25 %', '2.24 %', '138 %')
    >>> format_amount(6e5, up=True), format_amount(0.5, "loss")
    ('10^5.78', '0.5')
    """
    if value is None or not math.isfinite(value):
        return bare_number(value)
    if value >= PLAIN:
        log = 100 * math.log10(value)
        return f"10^{(math.ceil(log) if up else math.floor(log) if down else round(log)) / 100:.2f}"
    mode = ROUND_CEILING if up else ROUND_FLOOR if down else ROUND_HALF_EVEN
    share = quantity_is_share(quantity)
    exact = Decimal(repr(value)) * (100 if share else 1)
    rounded = Context(prec=DIGITS, rounding=mode).plus(exact)
    if up and share and exact < ALL <= rounded:  # 99.97 % says something, 100 % does not
        rounded = Context(prec=DIGITS + 2, rounding=mode).plus(exact)
        if rounded >= ALL:
            return "below 100 %"
    told = f"{rounded:f}" if abs(rounded) >= FINE else f"{float(rounded):g}"
    return told + (" %" if share else "")


def quantity_is_share(quantity: str) -> bool:
    """Whether a quantity is a share of all inputs, told in percent: an error of any kind."""
    return "error" in quantity.split()


def row_value(row: Row) -> str:
    """The value of a row; bounds are rounded upwards, and one that was left unfinished is at least so much."""
    if row.kind is RowKind.SCORE:
        return bare_number(row.value)
    if is_left_unfinished(row):
        return f"≥ {format_amount(row.value, row.quantity, down=True)}"
    return format_amount(row.value, row.quantity, up=row.kind in (RowKind.BOUND, RowKind.VACUOUS))


def is_left_unfinished(row: Row) -> bool:
    """Whether a row was not worked out to its end, as it says nothing anyway: its value is what it is at least."""
    return row.kind is RowKind.VACUOUS and row.reason.startswith("at least this")


def format_term(row: Row, value: float) -> str:
    """One of the terms: in the unit of the value where the terms add up to it, a bare number otherwise."""
    return format_amount(value, row.quantity) if adds_up(row) else bare_number(value)


def adds_up(row: Row) -> bool:
    """Whether the terms are parts of the value, said so or not."""
    total = math.fsum(value for _, value in row.terms)
    return bool(row.terms) and (row.additive or (row.value is not None and math.isclose(total, row.value)))


def row_limit(row: Row) -> str:
    """The limit of a row: the worst its quantity can be."""
    return format_amount(row.limit) if quantity_is_share(row.quantity) else f"{row.limit:g}"


def bare_number(value: float | None) -> str:
    """Return a number without a unit, in four digits."""
    if value is None or math.isnan(value):
        return ABSENT
    return f"{value:.4g}" if math.isfinite(value) else "infinite" if value > 0 else "-infinite"


def row_confidence(row: Row) -> str:
    """Return the confidence of a row in percent.

    >>> from normgauge.core.certificate import Row, RowKind
    >>> shares = (0.95, 1 - 0.07, 1 - 1e-12, None)
    >>> [row_confidence(Row("k", "n", "f", RowKind.BOUND, 0.1, share, condition="it is true")) for share in shares]
    ['95 %', '93 %', 'above 99.999 %', '·']
    """
    if row.confidence is None or row.kind is RowKind.NOT_APPLICABLE:
        return ABSENT
    told = f"{100 * row.confidence:.6g}"
    return "above 99.999 %" if told == "100" and row.confidence < 1 else f"{told} %"


def row_payment(row: Row) -> str:
    """Return the data a row was computed from."""
    return ABSENT if row.kind is RowKind.NOT_APPLICABLE else ", ".join(row.consumed) or ABSENT


def row_name(row: Row) -> str:
    """Name of a row with its family, where the name does not say it."""
    return row.name if row.family.lower() in row.name.lower() else f"{row.family}, {row.name}"


def row_reason(row: Row, every: bool = False, numbers: Mapping[str, int] | None = None) -> str:
    """What a reader asks next: the largest term where terms add up, else the reason.

    Args:
        row: asked about.
        every: both of them.
        numbers: of the conditions, where they are listed beside; in words where not.

    Returns:
        The words, parts of them divided by semicolons.
    """
    told = []
    if row.quantity != "error" and row.kind in (RowKind.BOUND, RowKind.VACUOUS, RowKind.ESTIMATE):
        told.append(f"of the {row.quantity}, which is at most {row_limit(row)}")
    parts = adds_up(row) and row.kind in (RowKind.BOUND, RowKind.VACUOUS)
    if parts:
        told.append(f"largest term: {row.heaviest}, {format_term(row, dict(row.terms)[row.heaviest])}")
    if row.condition and row.kind is RowKind.BOUND:
        told.append(f"holds only if {row.condition if numbers is None else condition_marks(row, numbers)}")
    if row.reason and (every or not parts):
        told.append(row.reason)
    if row.needed is not None:
        told.append(enough_samples(row.needed))
    return "; ".join(told)


def clauses(row: Row) -> list[str]:
    """The parts of a condition; many rows share some of them."""
    return [clause for clause in row.condition.split("; ") if clause]


def numbered_conditions(rows: Sequence[Row]) -> dict[str, int]:
    """Every condition the bounds among these rows rest on, each once, with a number; those of the first rows first."""
    told = dict.fromkeys(clause for row in rows if row.kind is RowKind.BOUND for clause in clauses(row))
    return {clause: number for number, clause in enumerate(told, 1)}


def condition_marks(row: Row, numbers: Mapping[str, int]) -> str:
    """The numbers of a row's conditions.

    >>> from normgauge.core.certificate import Row
    >>> condition_marks(Row("k", "n", "f", RowKind.SCORE, 1.0, condition="a; b"), {"a": 1, "c": 2, "b": 3})
    '(1), (3)'
    """
    return ", ".join(f"({number})" for number in sorted(numbers[clause] for clause in clauses(row)))


def enough_samples(needed: int) -> str:
    """From how many samples on a row would say something.

    >>> enough_samples(12_000_000), enough_samples(6_338_499_313_664)
    ('says something from 12,000,000 samples on', 'says something from 10^12.81 samples on')
    """
    size = f"{needed:,}" if needed < MANY else format_amount(needed, "samples", up=True)
    return f"says something from {size} samples on"


def certificate_head(c: Certificate) -> str:
    """Say which network and how many samples the certificate is about."""
    groups = c.facts.get(GROUPS)
    held = f"{c.holdout:,} hold-out samples" if c.holdout else "no hold-out"
    held += f" in {groups:,} groups" if groups is not None else ""
    free = f", {c.unlabeled:,} unlabeled" if c.unlabeled else ""
    tried = f" for {c.tries:,} tries together" if c.tries > 1 else ""
    return f"{c.model}, {c.samples:,} training samples, {held}{free}, {c.classes} classes, delta {c.delta:g}{tried}"


def certificate_sentences(c: Certificate) -> list[str]:
    """What can be promised about this network, in words a newcomer understands, and what cannot."""
    return [*promises(c), *remarks(c)]


def promises(c: Certificate) -> list[str]:
    """The promise itself with its conditions, and what is left of it with less data."""
    return [*_opening(c), *_without(c)]


def quoted_rows(c: Certificate) -> tuple[Row | None, Row | None, Row | None]:
    """The row that speaks about this network; the one without hold-out labels; the one from training data alone."""
    mine = [row for row in c.rows if row.about == NETWORK and row.quantity == "error"]
    free = [row for row in mine if Consumed.HOLDOUT_LABELS not in row.consumed]
    return speaking_row(mine), speaking_row(free), speaking_row([row for row in free if OWN.issuperset(row.consumed)])


def certificate_conditions(c: Certificate) -> dict[str, int]:
    """What the bounds rest on, each condition once, with a number; those of the rows quoted and leading first."""
    return numbered_conditions(
        [*(row for row in quoted_rows(c) if row is not None), *leading_rows(c.rows), *in_order(c.rows)]
    )


def _opening(c: Certificate) -> Iterator[str]:
    """What the row that speaks says; which row that is was fixed before the data were seen."""
    first, _, _ = quoted_rows(c)
    if first is None:
        yield "Nothing can be promised: no row bounds the error of this network on unseen data."
    elif first.kind is not RowKind.BOUND:
        yield f"Nothing can be promised: {row_name(first)}, the row that speaks here, is vacuous."
    else:
        numbers = certificate_conditions(c)
        told = "; ".join(f"({numbers[clause]}) {clause}" for clause in clauses(first))
        provided = f", provided {told}; this cannot be checked here" if told else ""
        yield (
            f"Promise: on unseen data from the same source this network errs at most {row_value(first)} of the time, "
            f"with {row_confidence(first)} confidence: {row_name(first)}{provided}."
        )
        guessing = c.facts.get(GUESSING)
        if isinstance(guessing, float) and (first.value or 0.0) >= guessing:
            always = f"always naming the most frequent class errs {format_amount(guessing)}"
            yield f"That is no better than guessing: {always}."
        if c.warnings:
            yield "The warnings below may take that promise away: read them first."
    if not c.holdout:
        yield "No labelled hold-out was given; with one, its row is nearly always the smallest."


def _without(c: Certificate) -> Iterator[str]:
    """What is left without hold-out labels, and from the training data alone."""
    _, free, alone = quoted_rows(c)
    numbers = certificate_conditions(c)
    if free is not None and free is not alone and free.kind is RowKind.BOUND:
        yield f"Without hold-out labels: {_said(free, numbers)}."
    if alone is None or alone.kind is not RowKind.BOUND:
        yield "From the training data alone: no promise about this network."
    else:
        yield f"From the training data alone: {_said(alone, numbers)}."


def _said(row: Row, numbers: Mapping[str, int]) -> str:
    provided = f", provided {condition_marks(row, numbers)}" if row.condition else ""
    paid_with = " and ".join(row.consumed) or "nothing"
    promise = f"at most {row_value(row)}, with {row_confidence(row)} confidence"
    return f"{promise}: {row_name(row)}, paid with {paid_with}{provided}"


def remarks(c: Certificate) -> Iterator[str]:
    """Bounds about something else, and the price of choosing among several."""
    bounds = [row for row in c.rows if row.kind is RowKind.BOUND]
    aside = sum(row.about != NETWORK for row in bounds)
    if aside:
        verb = "speaks" if aside == 1 else "speak"
        yield f"{plural(aside, 'bound')} {verb} about another predictor made from this network, not about it."
    if len(bounds) - aside > 1:
        yield ONE_AT_A_TIME

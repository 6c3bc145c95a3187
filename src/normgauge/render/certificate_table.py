"""The tables of a certificate for a terminal: a line a family, all rows by family, what the best are made of."""

from __future__ import annotations

from collections.abc import Sequence

from normgauge.core.certificate import NETWORK, Certificate, Kind, Row
from normgauge.render.certificate_families import families, speaker
from normgauge.render.certificate_steps import TOTAL, Step, Track, steps, track
from normgauge.render.certificate_words import (
    amount,
    condition,
    confidence,
    head,
    paid,
    shared,
    shown,
    term,
    why,
    worst,
)
from normgauge.render.numbers import ABSENT, plural
from normgauge.render.table import Grid

LINE = 47  # letters of what a family says, so that all fits on a line of 80
BAR = 44  # characters
LIMIT = "│"
PER_CLASS = "holdout.per_class"


def face(c: Certificate) -> Grid:
    """One line a family: the row that speaks for it, or why it says nothing."""
    lines = [(family, *said(rows)) for family, rows in families(c.rows).items() if family != "score"]
    lines[1:1] = [("worst class", shown(row), cut(row.reason, LINE)) for row in _per_class(c)]
    count = sum(row.kind is Kind.SCORE for row in c.rows)
    scores = f", {plural(count, 'score')} among them" if count else ""
    footer = f"vacuous: true, and says nothing. All {len(c.rows)} rows{scores}: --all or text(every=True)"
    return Grid(head(c), ("family", "at most", "by which row, or why not"), tuple(lines), frozenset({1}), footer)


def said(rows: Sequence[Row]) -> tuple[str, str]:
    """What a family says: a number, and the row it stands in, or why there is none."""
    first = speaker(rows)
    if first is None:
        return ABSENT if rows[0].kind is Kind.NOT_APPLICABLE else str(rows[0].kind), cut(rows[0].reason, LINE)
    if first.kind is Kind.VACUOUS:
        return str(first.kind), cut(why(first), LINE)
    if first.about != NETWORK:
        return shown(first), cut(f"not this network: {first.about}", LINE)
    return shown(first), cut(first.name if first.quantity == "error" else f"{first.quantity}: {first.name}", LINE)


def _per_class(c: Certificate) -> list[Row]:
    return [row for row in c.rows if row.key == PER_CLASS and row.terms]


def conditions(c: Certificate) -> list[str]:
    """What the bounds on the face rest on beside what all rest on, each said once."""
    known = shared(c.rows)
    found: dict[str, list[str]] = {}
    for family, rows in families(c.rows).items():
        first = speaker(rows)
        if first is not None and first.kind is Kind.BOUND and condition(first, known):
            found.setdefault(condition(first, known), []).append(family)
    return [f"{', '.join(names)}: holds only if {own}." for own, names in found.items()]


def family_grids(c: Certificate) -> list[Grid]:
    """One table a family, with every row."""
    known = shared(c.rows)
    return [_family(family, rows, known) for family, rows in families(c.rows).items()]


def _family(family: str, rows: Sequence[Row], known: Sequence[str]) -> Grid:
    headers = ["row", "kind", "value", "confidence", "paid with", "why"]
    cells = [[row.name, kind(row), shown(row), confidence(row), paid(row), why(row, True, known)] for row in rows]
    if any(row.about != NETWORK for row in rows):
        headers.insert(5, "about")
        for line, row in zip(cells, rows, strict=True):
            line.insert(5, "" if row.about == NETWORK else row.about)
    return Grid(family[:1].upper() + family[1:], tuple(headers), tuple(map(tuple, cells)), frozenset({2, 3}))


def by_class(c: Certificate) -> list[Grid]:
    """The bound of each class, where there is one for all of them together."""
    return [
        Grid(
            f"{row.name}: all of them at once, with {confidence(row)} confidence",
            ("class", "at most"),
            tuple((name, amount(value, row.quantity, up=True)) for name, value in row.terms),
            frozenset({1}),
        )
        for row in _per_class(c)
    ]


def kind(row: Row) -> str:
    """The kind as a word that stands out without colour: only what is promised is in capitals."""
    return row.kind.upper() if row.kind is Kind.BOUND else str(row.kind)


def cut(words: str, most: int) -> str:
    """The words on one line of so many letters.

    >>> cut("a reason that is too long", 12)
    'a reason th…'
    """
    line = " ".join(words.split())
    return line if len(line) <= most else line[: most - 1].rstrip(" ,;:") + "…"


def waterfall(row: Row) -> Grid:
    """What a row is made of, term by term, with the limit as an upright line."""
    axis = track(row)
    lines = tuple((step.name, _value(row, step), bar(step, axis)) for step in steps(row))
    footer = f"far from {worst(row)}, the worst possible"
    if axis.limited:
        footer = f"{LIMIT} is {worst(row)}: from there on a row says nothing"
    footer += "" if axis.even else "; logarithmic, each term from the left"
    return Grid(f"Where {shown(row)} comes from: {row.name}", ("term", "adds", ""), lines, frozenset({1}), footer)


def _value(row: Row, step: Step) -> str:
    return shown(row) if step.name == TOTAL else term(row, step.value)


def bar(step: Step, axis: Track) -> str:
    """A bar of characters; the limit is drawn through it."""
    low, high = sorted(round(BAR * axis.at(share)) for share in (step.start, step.end))
    high = max(high, low + 1) if step.value else high  # a term that is there is seen
    drawn = ["█" if low <= place < high else " " for place in range(BAR + 1)]
    if axis.limited:
        drawn[round(BAR * axis.at(1.0))] = LIMIT
    return "".join(drawn).rstrip()

"""The tables of a certificate for a terminal: rows by family, and what the best of them are made of."""

from __future__ import annotations

from collections.abc import Sequence

from normgauge.core.certificate import NETWORK, Certificate, Kind, Row
from normgauge.render.certificate_steps import TOTAL, Step, Track, steps, track
from normgauge.render.certificate_words import confidence, families, ordered, paid, shown, term, why, worst
from normgauge.render.table import Grid

NAME, REASON = 36, 78  # letters of a row that gets one line of a usual terminal
BAR = 44  # characters
LIMIT = "│"
ALL_OF_THEM = "--all shows them in full"


def family_grids(c: Certificate, every: bool = False) -> list[Grid]:
    """One table a family; scores and rows that do not apply only if ``every``."""
    found = []
    for family, rows in families(c.rows).items():
        kept = [row for row in rows if every or row.kind not in (Kind.NOT_APPLICABLE, Kind.SCORE)]
        if kept:
            found.append(_family(family, kept, every))
    return found


def _family(family: str, rows: Sequence[Row], every: bool) -> Grid:
    headers = ["row", "kind", "value", "confidence", "paid with", "why"]
    cells = [[row.name, kind(row), shown(row), confidence(row), paid(row), why(row, every)] for row in rows]
    if any(row.about != NETWORK for row in rows):
        headers.insert(5, "about")
        for line, row in zip(cells, rows, strict=True):
            line.insert(5, "" if row.about == NETWORK else row.about)
    return Grid(family[:1].upper() + family[1:], tuple(headers), tuple(map(tuple, cells)), frozenset({2, 3}))


def kind(row: Row) -> str:
    """The kind as a word that stands out without colour: only what is promised is in capitals."""
    return row.kind.upper() if row.kind is Kind.BOUND else str(row.kind)


def left_out(c: Certificate) -> Grid:
    """What does not apply, a line each."""
    rows = [row for row in ordered(c.rows) if row.kind is Kind.NOT_APPLICABLE]
    cells = tuple((cut(row.name, NAME), cut(row.reason, REASON)) for row in rows)
    return Grid(f"Not applicable here: {len(rows)}", ("row", "why"), cells, footer=ALL_OF_THEM)


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

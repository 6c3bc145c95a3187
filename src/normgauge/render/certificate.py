"""A certificate as text for a terminal: a line a family, or all rows by family and what the best are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normgauge.core.certificate import NETWORK, Certificate, Row, RowKind
from normgauge.render.certificate_families import HOLDOUT, leading_rows, rows_by_family, speaking_row
from normgauge.render.certificate_plot import TermBar, bar_value, shows_limit, stackable_rows, term_axis, term_bars
from normgauge.render.certificate_words import (
    MEANINGS,
    certificate_conditions,
    certificate_head,
    certificate_sentences,
    condition_marks,
    format_amount,
    numbered_conditions,
    quoted_rows,
    row_confidence,
    row_limit,
    row_payment,
    row_reason,
    row_value,
)
from normgauge.render.console import Block, as_text
from normgauge.render.numbers import ABSENT, plural
from normgauge.render.svg import Axis
from normgauge.render.table import Grid
from normgauge.render.terminal import GAP

BEST = 3  # rows whose terms are drawn, of different families
LINE = 80  # letters of a line of the face
BAR = 44  # characters
LIMIT = "│"
PER_CLASS = "holdout.per_class"


def certificate_text(c: Certificate, *, every: bool = False) -> str:
    """What ``print`` shows; ``every``: all rows."""
    return as_text(certificate_blocks(c, every))


def certificate_blocks(c: Certificate, every: bool = False) -> list[Block]:
    """Sentences and warnings, then one line a family, or every row and what the best are made of."""
    parts: list[Block] = [*certificate_sentences(c), *(f"Warning: {words}" for words in c.warnings)]
    parts += _all(c) if every else [family_summary(c)]
    parts += listed_conditions(c, every)
    parts += [words[:1].upper() + words[1:].rstrip(".") + "." for words in c.notes]
    return parts


def _all(c: Certificate) -> list[Block]:
    kinds = {row.kind for row in c.rows}
    parts: list[Block] = [
        "",
        certificate_head(c),
        *family_grids(c),
        *by_class(c),
        *map(term_waterfall, _telling(c)),
        "",
    ]
    return parts + [f"{kind}: {words}" for kind, words in MEANINGS.items() if kind in kinds]


def _telling(c: Certificate) -> list[Row]:
    """The first row of each family whose terms add up and that is about this network, a few of them."""
    first: dict[str, Row] = {}
    for row in stackable_rows([row for row in c.rows if row.about == NETWORK]):
        first.setdefault(row.family, row)
    return list(first.values())[:BEST]


def family_summary(c: Certificate) -> Grid:
    """One line a family: the row that speaks for it, or why it says nothing."""
    numbers = certificate_conditions(c)
    lines = [
        (family, *family_statement(rows, numbers))
        for family, rows in rows_by_family(c.rows).items()
        if family != "score"
    ]
    lines[1:1] = [("worst class", *family_statement([row], numbers)[:2], row.reason) for row in _per_class(c)]
    headers = ("family", "at most", "if", "by which row, or why not")
    room = LINE - sum(max(len(line[i]) for line in (headers, *lines)) + GAP for i in range(3))
    count = sum(row.kind is RowKind.SCORE for row in c.rows)
    scores = f" ({plural(count, 'score')})" if count else ""
    footer = f"vacuous: true, says nothing. All {len(c.rows)} rows{scores}: --all, text(every=True)"
    return Grid(
        certificate_head(c), headers, tuple((*line[:3], cut(line[3], room)) for line in lines), frozenset({1}), footer
    )


def family_statement(rows: Sequence[Row], numbers: Mapping[str, int]) -> tuple[str, str, str]:
    """What a family says: a number, the conditions it rests on, and the row it stands in, or why there is none."""
    first = speaking_row(rows)
    if first is None:
        return ABSENT if rows[0].kind is RowKind.NOT_APPLICABLE else str(rows[0].kind), "", rows[0].reason
    if first.kind is RowKind.VACUOUS:
        return str(first.kind), "", row_reason(first)
    said_already = first.quantity == "error" or first.name.lower().startswith(first.quantity)
    told = first.name if said_already else f"{first.quantity}: {first.name}"
    told = f"{told}: {first.reason}" if first.family == HOLDOUT and first.reason else told
    told = told if first.about == NETWORK else f"not this network: {first.about}"
    return row_value(first), condition_marks(first, numbers).replace(", ", ""), told


def listed_conditions(c: Certificate, every: bool = False) -> list[str]:
    """The conditions by their numbers: those of the lines of the face that the promise does not tell, or all."""
    face_rows = [row for row in (*quoted_rows(c), *leading_rows(c.rows), *_per_class(c)) if row is not None]
    used = numbered_conditions(c.rows if every else face_rows)
    told = numbered_conditions([row for row in quoted_rows(c)[:1] if row is not None])
    return [
        f"({number}) only if {clause}"
        for clause, number in certificate_conditions(c).items()
        if clause in used and (every or clause not in told)
    ]


def _per_class(c: Certificate) -> list[Row]:
    return [row for row in c.rows if row.key == PER_CLASS and row.terms]


def family_grids(c: Certificate) -> list[Grid]:
    """One table a family, with every row."""
    numbers = certificate_conditions(c)
    return [_family(family, rows, numbers) for family, rows in rows_by_family(c.rows).items()]


def _family(family: str, rows: Sequence[Row], numbers: Mapping[str, int]) -> Grid:
    headers = ["row", "kind", "value", "confidence", "paid with", "why"]
    cells = [
        [row.name, kind(row), row_value(row), row_confidence(row), row_payment(row), row_reason(row, True, numbers)]
        for row in rows
    ]
    if any(row.about != NETWORK for row in rows):
        headers.insert(5, "about")
        for line, row in zip(cells, rows, strict=True):
            line.insert(5, "" if row.about == NETWORK else row.about)
    return Grid(family[:1].upper() + family[1:], tuple(headers), tuple(map(tuple, cells)), frozenset({2, 3}))


def by_class(c: Certificate) -> list[Grid]:
    """The bound of each class, where there is one for all of them together."""
    return [
        Grid(
            f"{row.name}: all of them at once, with {row_confidence(row)} confidence",
            ("class", "at most"),
            tuple((name, format_amount(value, row.quantity, up=True)) for name, value in row.terms),
            frozenset({1}),
        )
        for row in _per_class(c)
    ]


def kind(row: Row) -> str:
    """The kind as a word that stands out without colour: only what is promised is in capitals."""
    return row.kind.upper() if row.kind is RowKind.BOUND else str(row.kind)


def cut(words: str, most: int) -> str:
    """The words on one line of so many letters.

    >>> cut("a reason that is too long", 12)
    'a reason th…'
    """
    line = " ".join(words.split())
    return line if len(line) <= most else line[: most - 1].rstrip(" ,;:") + "…"


def term_waterfall(row: Row) -> Grid:
    """What a row is made of, term by term, with the limit as an upright line."""
    axis, limit = term_axis(row), shows_limit(row)
    lines = tuple((step.name, bar_value(row, step), bar(step, axis, limit)) for step in term_bars(row))
    footer = f"far from {row_limit(row)}, the worst possible"
    if limit:
        footer = f"{LIMIT} is {row_limit(row)}: from there on a row says nothing"
    footer += "; logarithmic, each term from the left" if axis.logarithmic else ""
    return Grid(f"Where {row_value(row)} comes from: {row.name}", ("term", "adds", ""), lines, frozenset({1}), footer)


def bar(step: TermBar, axis: Axis, limit: bool) -> str:
    """A bar of characters; the limit is drawn through it."""
    low, high = sorted(round(BAR * axis.at(share)) for share in (step.start, step.end))
    high = max(high, low + 1) if step.value else high  # a term that is there is seen
    drawn = ["█" if low <= place < high else " " for place in range(BAR + 1)]
    if limit:
        drawn[round(BAR * axis.at(1.0))] = LIMIT
    return "".join(drawn).rstrip()

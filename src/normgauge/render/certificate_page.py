"""A certificate as one self-contained page: what is promised, each family explained, all rows behind a fold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from normgauge.core.certificate import Certificate, Row, RowKind
from normgauge.render import svg
from normgauge.render.certificate import by_class, family_statement, family_summary, listed_conditions
from normgauge.render.certificate_families import EXPLAINED, RANK, in_order, rows_by_family
from normgauge.render.certificate_plot import certificate_overview, stackable_rows, term_stack
from normgauge.render.certificate_words import (
    MEANINGS,
    adds_up,
    bare_number,
    certificate_conditions,
    certificate_head,
    certificate_sentences,
    enough_samples,
    format_term,
    promises,
    remarks,
    row_confidence,
    row_payment,
    row_reason,
    row_value,
)
from normgauge.render.document import document, fact_list, fragment, listing, paragraphs, section
from normgauge.render.markup import Content, Markup, markup, sentence_markup, tag
from normgauge.render.numbers import ABSENT, plural
from normgauge.render.table import Grid, bare_table, html_table
from normgauge.render.theory_plots import curve_plot

ASSETS = ("page", "theory", "certificate")
COLUMNS = ("row", "kind", "value", "confidence", "paid with", "about", "family", "why")
AXIS = (
    "Bars end at the bound, so the truth lies somewhere in the bar. Left of the dashed line, which is the worst "
    "possible value, a row says something; both sides are logarithmic, each with its own scale. Behind ≥ stands what a "
    "bound would be at least: it was not worked out, as it says nothing."
)
STACKS = (
    "Blue: a term that leaves room. Red: a term that alone says nothing any more, or the largest of a row that does "
    "not. Grey: the row itself."
)


def certificate_html(c: Certificate, title: str = "Certificate") -> str:
    """Return the page as HTML."""
    first, *rest = promises(c)
    drawn = svg.captioned_figure(
        "Every bound, as a share of the worst possible value",
        svg.both_shapes(lambda shape: certificate_overview(c.rows, shape)),
    )
    body = markup(
        paragraphs([first], "verdict"),
        paragraphs([" ".join(rest)]),
        paragraphs(c.warnings, "warn"),
        (drawn, tag("p", AXIS)) if drawn else None,
        paragraphs([" ".join(remarks(c))]),
        _tally(c.rows),
        section("What the bounds rest on", listing(listed_conditions(c, every=True))),
        section(
            "Family by family", (_family(*item, certificate_conditions(c)) for item in rows_by_family(c.rows).items())
        ),
        (section("By class", html_table(grid)) for grid in by_class(c)),
        _folded(c),
        section("Curves", _minis([curve_plot(curve) for curve in c.curves])),
        section("Measured on the way", _measured(c)),
    )
    return document(title, certificate_head(c), body, ASSETS)


def certificate_notebook(c: Certificate) -> Markup:
    """The certificate as HTML that may stand among other output."""
    numbers, first = certificate_conditions(c), family_summary(c)
    every = tuple(
        (r.name, str(r.kind), row_value(r), r.about, row_reason(r, numbers=numbers)) for r in in_order(c.rows)
    )
    rows = Grid("", ("row", "kind", "value", "about", "why"), every)
    return fragment(
        (tag("p", sentence) for sentence in certificate_sentences(c)),
        (tag("p", tag("b", f"Warning: {warning}")) for warning in c.warnings),
        (tag("p", tag("b", first.title)), bare_table(first)),
        (tag("p", sentence) for sentence in listed_conditions(c, every=True)),
        certificate_overview(c.rows),
        tag("details", tag("summary", f"All {len(c.rows)} rows"), bare_table(rows)),
    )


def _family(name: str, rows: Sequence[Row], numbers: Mapping[str, int]) -> Content:
    """A family: what it is, what it needs, and what it says here."""
    number, only_if, which = (
        ("", "", plural(sum(row.kind is RowKind.SCORE for row in rows), "score"))
        if name == "score"
        else family_statement(rows, numbers)
    )
    here = ": ".join(part for part in (number, which) if part and part != ABSENT) + (only_if and f", if {only_if}")
    return tag("h3", name[:1].upper() + name[1:]), paragraphs([EXPLAINED.get(name, ""), f"Here: {here}"])


def _folded(c: Certificate) -> Markup:
    """Return every row, behind a fold that a reader opens."""
    if not c.rows:
        return tag("p", "There are no rows.")
    inside = (
        certificate_table(c),
        section("What they are made of", _minis([term_stack(row) for row in stackable_rows(c.rows)], tag("p", STACKS))),
        section("Every row in full", map(details, in_order(c.rows))),
    )
    return section("All rows", tag("details", tag("summary", f"{len(c.rows)} rows"), inside, class_="all"))


def _tally(rows: Sequence[Row]) -> Markup:
    """Each kind with its count and what it means."""
    counts = Counter(row.kind for row in rows)
    items = [
        tag("li", kind_badge(kind), " ", tag("b", str(counts[kind])), " ", tag("span", meaning))
        for kind, meaning in MEANINGS.items()
        if counts[kind]
    ]
    return tag("ul", items, class_="tally") if items else Markup()


def kind_badge(kind: RowKind, **more: int) -> Markup:
    """The kind as a coloured word."""
    return tag("span", str(kind), class_=f"badge k-{kind.name.lower()}", **more)


def anchor(row: Row) -> str:
    """The id of a row on the page."""
    return "row-" + re.sub(r"[^\w.-]+", "-", row.key)


def certificate_table(c: Certificate) -> Markup:
    """All rows; the script adds sorting and filters."""
    numbers, rows = certificate_conditions(c), in_order(c.rows)
    title = "By family, the best first; a name leads to the row in full"
    return html_table(
        Grid(title, COLUMNS, tuple(_line(row, numbers) for row in rows), frozenset({2, 3})),
        label="All rows",
        rows=[{"data-kind": str(row.kind), "data-row": anchor(row)} for row in rows],
        class_="rows",
    )


def _line(row: Row, numbers: Mapping[str, int]) -> tuple[str, ...]:
    size = None if row.value is None else repr(row.value)
    return (
        tag("a", row.name, href=f"#{anchor(row)}"),
        kind_badge(row.kind, data_sort=RANK[row.kind]),
        tag("span", sentence_markup(row_value(row)), data_sort=size),
        row_confidence(row),
        row_payment(row),
        row.about,
        row.family,
        row_reason(row, numbers=numbers),
    )


def _minis(figures: Sequence[str], before: Content = None) -> Content:
    return (before, tag("div", figures, class_="minis")) if any(figures) else None


def details(row: Row) -> Markup:
    """One row: a line to see, the rest to open."""
    terms = tuple((name, format_term(row, value)) for name, value in row.terms)
    how = "they add up to the value" if adds_up(row) else "the formula puts them together"
    grid = Grid(f"Terms of {row.name}; {how}", ("term", "value"), terms, frozenset({1}))
    said_short = tag("span", sentence_markup(row_value(row)), class_="said")
    return tag(
        "details",
        tag("summary", tag("h3", row.name), " ", kind_badge(row.kind), " ", said_short),
        tag("div", fact_list(_facts(row)), html_table(grid) if terms else None, class_="inside"),
        class_="row",
        id=anchor(row),
        data_kind=str(row.kind),
    )


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    yield (
        "what it bounds" if row.kind in (RowKind.BOUND, RowKind.VACUOUS) else "what it is",
        f"{row.quantity} of {row.about}",
    )
    absent = row.kind is RowKind.NOT_APPLICABLE
    yield "confidence", "" if row.confidence is None or absent else row_confidence(row)
    yield "would be paid with" if absent else "paid with", ", ".join(row.consumed)
    yield "holds only if", row.condition
    yield "why", row.reason
    yield "samples needed", "" if row.needed is None else enough_samples(row.needed)
    yield "formula", tag("span", sentence_markup(row.formula), class_="formula") if row.formula else ""
    yield "source", row.source
    yield "key", row.key


def _measured(c: Certificate) -> Content:
    rows = tuple((name, value if isinstance(value, str) else bare_number(value)) for name, value in c.facts.items())
    return html_table(Grid("Facts", ("fact", "value"), rows, frozenset({1}))) if rows else None, listing(c.notes)

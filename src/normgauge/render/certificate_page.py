"""A certificate as one self-contained page: what is promised, each family explained, all rows behind a fold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from normgauge.core.certificate import Certificate, Kind, Row
from normgauge.render.certificate_families import EXPLAINED, RANK, families, in_order
from normgauge.render.certificate_plot import drawn_rows, overview, stack
from normgauge.render.certificate_steps import stacked
from normgauge.render.certificate_table import by_class, face, listed, said
from normgauge.render.certificate_words import (
    MEANINGS,
    adds_up,
    conditions,
    confidence,
    enough,
    head,
    paid,
    plain,
    promises,
    remarks,
    sentences,
    shown,
    term,
    why,
)
from normgauge.render.numbers import ABSENT, plural
from normgauge.render.page import document
from normgauge.render.parts import html_table, words
from normgauge.render.svg import NARROW, WIDE
from normgauge.render.table import Grid
from normgauge.render.theme import NOTEBOOK, asset, figure_css
from normgauge.render.theory_plots import curve_plot

ASSETS = ("page", "theory", "certificate")
SCOPE = ".normgauge-reading"
COLUMNS = ("row", "kind", "value", "confidence", "paid with", "about", "family", "why")
AXIS = (
    "Bars end at the bound, so the truth lies somewhere in the bar. Left of the dashed line, which is the worst "
    "possible value, a row says something; both sides are logarithmic, each with its own scale."
)
STACKS = (
    "Blue: a term that leaves room. Red: a term that alone says nothing any more, or the largest of a row that does "
    "not. Grey: the row itself."
)


def html(c: Certificate, title: str = "Certificate") -> str:
    """The page as a string."""
    first, *rest = promises(c)
    body = (
        f'<p class="verdict">{words(first)}</p><p>{words(" ".join(rest))}</p>'
        + "".join(f'<p class="warn">{words(warning)}</p>' for warning in c.warnings)
        + _picture(c)
        + f"<p>{words(' '.join(remarks(c)))}</p>"
        + _tally(c.rows)
        + _section("What the bounds rest on", _list(listed(c, every=True)))
        + _section("Family by family", "".join(_family(*item, conditions(c)) for item in families(c.rows).items()))
        + "".join(f"<section><h2>By class</h2>{html_table(grid)}</section>" for grid in by_class(c))
        + _folded(c)
        + _section("Curves", _minis([curve_plot(curve) for curve in c.curves]))
        + _section("Measured on the way", _measured(c))
    )
    return document(title, head(c), body, ASSETS)


def notebook(c: Certificate) -> str:
    """The certificate as HTML that may stand among other output: no script, no style that reaches beyond it."""
    style = figure_css(NOTEBOOK, SCOPE) + asset("notebook.css")
    told, rest = (
        "".join(f"<p>{escape(one)}</p>" for one in several) for several in (sentences(c), listed(c, every=True))
    )
    warned = "".join(f"<p><b>Warning: {escape(warning)}</b></p>" for warning in c.warnings)
    numbers = conditions(c)
    every = tuple((r.name, str(r.kind), shown(r), r.about, why(r, numbers=numbers)) for r in in_order(c.rows))
    return (
        f'<div class="{SCOPE[1:]}"><style>{style}</style>{told}{warned}{_bare(face(c))}{rest}{overview(c.rows)}'
        f"<details><summary>All {len(c.rows)} rows</summary>"
        f"{_bare(Grid('', ('row', 'kind', 'value', 'about', 'why'), every))}</details></div>"
    )


def _bare(grid: Grid) -> str:
    """A table without anything a page would have to know of."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in grid.headers)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in grid.rows)
    title = f"<p><b>{escape(grid.title)}</b></p>" if grid.title else ""
    return f"{title}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _family(name: str, rows: Sequence[Row], numbers: Mapping[str, int]) -> str:
    """A family: what it is, what it needs, and what it says here."""
    number, only_if, which = (
        ("", "", plural(sum(row.kind is Kind.SCORE for row in rows), "score"))
        if name == "score"
        else said(rows, numbers)
    )
    here = ": ".join(part for part in (number, which) if part and part != ABSENT) + (only_if and f", if {only_if}")
    explained = EXPLAINED.get(name, "")
    return f"<h3>{escape(name[:1].upper() + name[1:])}</h3><p>{words(explained)}</p><p>Here: {words(here)}</p>"


def _list(items: Sequence[str]) -> str:
    listed_items = "".join(f"<li>{words(item)}</li>" for item in items)
    return f"<ul>{listed_items}</ul>" if items else ""


def _folded(c: Certificate) -> str:
    """Every row, to open."""
    if not c.rows:
        return "<p>There are no rows.</p>"
    inside = (
        table(c)
        + _section("What they are made of", _stacks(c.rows))
        + _section("Every row in full", "".join(details(row) for row in in_order(c.rows)))
    )
    return _section("All rows", f'<details class="all"><summary>{len(c.rows)} rows</summary>{inside}</details>')


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _picture(c: Certificate) -> str:
    if not drawn_rows(c.rows):
        return ""
    drawn = "".join(overview(c.rows, shape) for shape in (WIDE, NARROW))
    caption = "Every bound, as a share of the worst possible value"
    return f"<figure><figcaption>{caption}</figcaption>{drawn}</figure><p>{AXIS}</p>"


def _tally(rows: Sequence[Row]) -> str:
    """Each kind with its count and what it means."""
    counts = Counter(row.kind for row in rows)
    items = "".join(
        f"<li>{badge(kind)} <b>{counts[kind]}</b> <span>{escape(meaning)}</span></li>"
        for kind, meaning in MEANINGS.items()
        if counts[kind]
    )
    return f'<ul class="tally">{items}</ul>' if items else ""


def badge(kind: Kind) -> str:
    """The kind as a coloured word."""
    return f'<span class="badge k-{kind.name.lower()}">{kind}</span>'


def anchor(row: Row) -> str:
    """The id of a row on the page."""
    return "row-" + re.sub(r"[^\w.-]+", "-", row.key)


def table(c: Certificate) -> str:
    """All rows; the script adds sorting and filters."""
    heads = "".join(f'<th scope="col"{" class=n" if i in (2, 3) else ""}>{h}</th>' for i, h in enumerate(COLUMNS))
    numbers = conditions(c)
    lines = "".join(_line(row, numbers) for row in in_order(c.rows))
    return (
        '<div class="scroll" role="region" aria-label="All rows" tabindex="0"><table class="rows"><caption>By family, '
        "the best first; a name leads to the row in full</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _line(row: Row, numbers: Mapping[str, int]) -> str:
    value = "" if row.value is None else f' data-sort="{row.value!r}"'
    return (
        f'<tr data-kind="{row.kind}" data-row="{anchor(row)}">'
        f'<th scope="row"><a href="#{anchor(row)}">{escape(row.name)}</a></th>'
        f'<td data-sort="{RANK[row.kind]}">{badge(row.kind)}</td><td class="n"{value}>{words(shown(row))}</td>'
        f'<td class="n">{escape(confidence(row))}</td><td>{escape(paid(row))}</td><td>{escape(row.about)}</td>'
        f"<td>{escape(row.family)}</td><td>{words(why(row, numbers=numbers))}</td></tr>"
    )


def _stacks(rows: Sequence[Row]) -> str:
    return _minis([stack(row) for row in stacked(rows)], f"<p>{STACKS}</p>")


def _minis(figures: Sequence[str], before: str = "") -> str:
    return f'{before}<div class="minis">{"".join(figures)}</div>' if any(figures) else ""


def details(row: Row) -> str:
    """One row: a line to see, the rest to open."""
    facts = "".join(
        f"<div><dt>{term}</dt><dd{' class=formula' if term == 'formula' else ''}>{words(told)}</dd></div>"
        for term, told in _facts(row)
        if told
    )
    terms = tuple((name, term(row, value)) for name, value in row.terms)
    how = "they add up to the value" if adds_up(row) else "the formula puts them together"
    inside = html_table(Grid(f"Terms of {row.name}; {how}", ("term", "value"), terms, frozenset({1}))) if terms else ""
    return (
        f'<details class="row" id="{anchor(row)}" data-kind="{row.kind}"><summary><h3>{escape(row.name)}</h3> '
        f'{badge(row.kind)} <span class="said">{words(shown(row))}</span></summary>'
        f'<div class="inside"><dl class="facts">{facts}</dl>{inside}</div></details>'
    )


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    yield "what it bounds" if row.kind in (Kind.BOUND, Kind.VACUOUS) else "what it is", f"{row.quantity} of {row.about}"
    absent = row.kind is Kind.NOT_APPLICABLE
    yield "confidence", "" if row.confidence is None or absent else confidence(row)
    yield "would be paid with" if absent else "paid with", ", ".join(row.consumed)
    yield "holds only if", row.condition
    yield "why", row.reason
    yield "samples needed", "" if row.needed is None else enough(row.needed)
    yield "formula", row.formula
    yield "source", row.source
    yield "key", row.key


def _measured(c: Certificate) -> str:
    rows = tuple((name, value if isinstance(value, str) else plain(value)) for name, value in c.facts.items())
    facts = html_table(Grid("Facts", ("fact", "value"), rows, frozenset({1}))) if rows else ""
    return facts + _list(c.notes)

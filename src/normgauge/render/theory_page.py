"""Checked claims as one self-contained page: the errors in full, then every claim, folded by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.claim import Entry, Ledger, Outcome, Verdict
from normgauge.render import theory
from normgauge.render.numbers import plural
from normgauge.render.page import document
from normgauge.render.parts import html_table
from normgauge.render.parts import words as raised
from normgauge.render.theory_plots import curve_plot

ASSETS = ("page", "theory")
TERMS = (
    ("published", "What the source says the number is. In a row that moves: the number before the rescaling."),
    ("predicted", "What the true statement says it is, or is at most: the claim itself where it holds."),
    ("measured", "The number found on the instance by brute force: Jacobians, singular values, simulation."),
    ("difference", "Relative distance of measured from predicted, or from published where that is refuted. "
     "For a bound: how far above it, so that a negative number is room."),
    ("instance", "Small random networks, layers or data, drawn anew for every seed."),
)  # fmt: skip


def theory_page(ledger: Ledger, title: str = "The theory, checked") -> str:
    """The page as a string."""
    lost = "".join(f'<p class="warn">{escape(line)}</p>' for line in theory.failures(ledger))
    several = len(ledger.outcomes) > 1
    body = (
        f'<p class="verdict">{words(theory.counted(ledger))}</p><p>{words(theory.checked(ledger))}</p>{lost}'
        f"{_tally(theory.published(ledger.outcomes)) + _errors(ledger) if several else ''}"
        f'<div id="claims">{"".join(_sources(ledger.outcomes))}</div>'
        f"<section><h2>Claims by source and verdict</h2>{html_table(theory.counts_grid(ledger))}</section>"
        f"<section><h2>Words</h2>{_list(TERMS)}</section>"
    )
    seconds = sum(outcome.seconds for outcome in ledger.outcomes)
    return document(title, f"checked in {seconds:.3g} CPU seconds", body, ASSETS)


def words(text: str) -> str:
    """A sentence as HTML with powers of ten raised, also those with a true minus sign."""
    return raised(text.replace("10^−", "10^-"))


def _tally(outcomes: Sequence[Outcome]) -> str:
    """Each verdict with its count."""
    counts = Counter(outcome.claim.verdict for outcome in outcomes)
    items = "".join(f"<li>{badge(verdict)} <b>{counts[verdict]}</b></li>" for verdict in Verdict if counts[verdict])
    return f'<ul class="tally">{items}</ul>'


def badge(verdict: Verdict) -> str:
    """The verdict as a coloured word."""
    return f'<span class="badge v-{verdict.name.lower()}">{verdict}</span>'


def _errors(ledger: Ledger) -> str:
    """Those that matter in a sentence each, then every root in full."""
    if not ledger.errors:
        return ""
    first = "".join(f"<li>{_link(entry)} {words(theory.sentence(entry))}</li>" for entry in theory.foremost(ledger))
    rest = "".join(
        f"<article><h3>{' '.join(map(_link, entries))} {words(f'{entries[0].source}, {entries[0].at}')}</h3>"
        f"{_list(theory.error_facts(entries[0]))}</article>"
        for entries in ledger.errors.values()
    )
    head = plural(len(ledger.errors), "independent error")
    return f'<section class="errors"><h2>{head}</h2><ol>{first}</ol>{rest}</section>'


def _link(entry: Entry) -> str:
    return f'<a href="#{escape(_anchor(entry))}">{escape(entry.id)}</a>'


def _anchor(entry: Entry) -> str:
    return entry.id.replace(" ", "-")


def _sources(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Folded, since hundreds of claims are no page to read; a single claim is open."""
    opened = " open" if len(outcomes) == 1 else ""
    for name, group in theory.by_source(outcomes).items():
        claims = "".join(claim(outcome, opened) for outcome in group)
        head = f"<summary><h2>{escape(theory.heading(name, len(group)))}</h2></summary>"
        yield f'<details class="paper"{opened}>{head}{claims}</details>'


def claim(outcome: Outcome, opened: str = "") -> str:
    """One claim: a line to see, the rest to open."""
    entry, kind = outcome.claim, "good" if outcome.passed else "bad" if outcome.ran else "read"
    summary = (
        f"<h3>{escape(entry.id)}</h3> {badge(entry.verdict)} "
        f'<span class="said">{words(entry.reading)}</span> '
        f'<span class="state {kind}">{escape(theory.state(outcome).partition(":")[0])}</span>'
    )
    plots = "".join(curve_plot(curve) for curve in outcome.curves)
    table = html_table(theory.findings_grid(outcome)) if outcome.findings else ""
    inside = _list([("source", f"{entry.source}, {entry.at}"), *theory.facts(outcome)])
    inside += (f'<div class="minis">{plots}</div>' if plots else "") + table
    return (
        f'<details class="claim" id="{escape(_anchor(entry))}" data-verdict="{entry.verdict}" '
        f'data-paper="{escape(entry.source)}"{opened}><summary>{summary}</summary>'
        f'<div class="inside">{inside}</div></details>'
    )


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(term)}</dt><dd>{words(told)}</dd></div>" for term, told in pairs)
    return f'<dl class="facts">{rows}</dl>'

"""Checked claims as one self-contained page: the errors in full, then every claim, folded by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from normgauge.core.claim import Entry, Ledger, Outcome, Verdict
from normgauge.render import theory
from normgauge.render.document import document, fact_list, section
from normgauge.render.markup import Markup, markup, sentence_markup, tag
from normgauge.render.numbers import plural
from normgauge.render.table import html_table
from normgauge.render.theory_plots import curve_plot

ASSETS = ("page", "theory")
OPENED = 8  # more claims than this are folded


def theory_page(ledger: Ledger, title: str = "The theory, checked") -> str:
    """Return the page as HTML."""
    body = markup(
        tag("p", sentence_markup(theory.verdict_summary(ledger)), class_="verdict"),
        tag("p", sentence_markup(theory.check_summary(ledger))),
        (tag("p", line, class_="warn") for line in theory.check_failures(ledger)),
        (_tally(ledger), _errors(ledger)) if len(ledger.outcomes) > 1 else None,
        tag("div", _sources(ledger), id="claims"),
        section("Claims by source and verdict", html_table(theory.counts_grid(ledger))),
        section("Words", fact_list(theory.TERMS)),
    )
    seconds = sum(outcome.seconds for outcome in ledger.outcomes)
    return document(title, f"checked in {seconds:.3g} CPU seconds", body, ASSETS)


def _tally(ledger: Ledger) -> Markup:
    """Return each verdict with how many claims have it."""
    counts = Counter(outcome.claim.verdict for outcome in theory.published_claims(ledger.outcomes))
    items = (
        tag("li", verdict_badge(verdict), " ", tag("b", str(counts[verdict]))) for verdict in Verdict if counts[verdict]
    )
    return tag("ul", items, class_="tally")


def verdict_badge(verdict: Verdict) -> Markup:
    """The verdict as a coloured word."""
    return tag("span", str(verdict), class_=f"badge v-{verdict.name.lower()}")


def _errors(ledger: Ledger) -> Markup:
    """Those that matter in a sentence each, then every root in full."""
    if not ledger.errors:
        return Markup()
    foremost = theory.foremost_errors(ledger)
    first = (tag("li", _link(entry), " ", sentence_markup(theory.error_sentence(entry))) for entry in foremost)
    order = {entry.id: place for place, entry in enumerate(foremost)}  # the cards as the list, then the rest
    roots = sorted(ledger.errors.values(), key=lambda entries: order.get(entries[0].id, len(order)))
    rest = (
        tag(
            "article",
            tag(
                "h3",
                ((_link(entry), " ") for entry in entries),
                sentence_markup(f"{entries[0].source}, {entries[0].at}"),
            ),
            fact_list(theory.error_facts(entries[0])),
        )
        for entries in roots
    )
    reach = (tag("p", "Those that reach furthest, then each in full:"), tag("ul", first)) if foremost else None
    return section(plural(len(ledger.errors), "independent error"), reach, rest, class_="errors")


def _link(entry: Entry) -> Markup:
    return tag("a", entry.id, href=f"#{_anchor(entry)}")


def _anchor(entry: Entry) -> str:
    return entry.id.replace(" ", "-")


def _sources(ledger: Ledger) -> Iterator[Markup]:
    """Folded, since hundreds of claims are no page to read; a few are open."""
    opened = len(ledger.outcomes) <= OPENED
    for name, group in theory.by_source(ledger.outcomes).items():
        head = tag("summary", tag("h2", theory.source_heading(name, len(group))))
        yield tag("details", head, (claim(outcome, opened) for outcome in group), class_="paper", open=opened)


def claim(outcome: Outcome, opened: bool = False) -> Markup:
    """One claim: a line to see, the rest to open."""
    entry, kind = outcome.claim, "good" if outcome.passed else "bad" if outcome.ran else "read"
    plots = markup(curve_plot(curve) for curve in outcome.curves)
    inside = (
        fact_list([("source", f"{entry.source}, {entry.at}"), *theory.claim_facts(outcome)]),
        tag("div", plots, class_="minis") if plots else None,
        html_table(theory.findings_grid(outcome)) if outcome.findings else None,
    )
    summary = tag(
        "summary",
        (
            tag("h3", entry.id),
            " ",
            verdict_badge(entry.verdict),
            " ",
            tag("span", sentence_markup(entry.reading), class_="said"),
            " ",
        ),
        tag("span", theory.check_state(outcome).partition(":")[0], class_=f"state {kind}"),
    )
    told = {"id": _anchor(entry), "data-verdict": str(entry.verdict), "data-paper": entry.source}
    return tag("details", summary, tag("div", inside, class_="inside"), class_="claim", **told, open=opened)

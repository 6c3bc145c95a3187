"""Checked claims as one self-contained page: the counts in a sentence, then every claim with what its check found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.claim import Ledger, Outcome, Verdict
from normgauge.render.numbers import plural
from normgauge.render.page import document
from normgauge.render.parts import html_table
from normgauge.render.parts import words as raised
from normgauge.render.theory import by_paper, counts_grid, failures, findings_grid, paper, sentences, state
from normgauge.render.theory_plots import curve_plot, dots

ASSETS = ("page", "theory")
MEANINGS = {
    Verdict.HOLDS: "True as printed; the check confirms it.",
    Verdict.LOOSE: "True, but a sharper form is known; the check confirms both.",
    Verdict.WRONG: "A counterexample is shown, and what is true instead is confirmed.",
    Verdict.GAUGE: "The number moves under a rescaling that leaves the network's function alone: it says how the "
    "weights are written down, not what the network does.",
    Verdict.UNSUPPORTED: "No proof is given, or none is possible; what can be computed is shown.",
}
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
    first, *rest = sentences(ledger)
    lost = "".join(f'<p class="warn">{escape(line)}</p>' for line in failures(ledger))
    body = (
        f'<p class="verdict">{words(first)}</p><p>{words(" ".join(rest))}</p>{lost}{_tally(ledger.outcomes)}'
        f'<div id="claims">{"".join(_papers(ledger.outcomes))}</div>'
        f"<section><h2>Claims by source and verdict</h2>{html_table(counts_grid(ledger.outcomes))}</section>"
        f"<section><h2>Words</h2>{_facts(TERMS)}</section>"
    )
    seconds = sum(outcome.seconds for outcome in ledger.outcomes)
    return document(title, f"{plural(len(ledger.outcomes), 'claim')}, {seconds:.3g} CPU seconds", body, ASSETS)


def words(sentence: str) -> str:
    """A sentence as HTML with powers of ten raised, also those with a true minus sign."""
    return raised(sentence.replace("10^−", "10^-"))


def _tally(outcomes: Sequence[Outcome]) -> str:
    """Each verdict with its count and what it means."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    items = "".join(
        f"<li>{badge(verdict)} <b>{counts[verdict]}</b> <span>{escape(MEANINGS[verdict])}</span></li>"
        for verdict in Verdict
        if counts[verdict]
    )
    return f'<ul class="tally">{items}</ul>'


def badge(verdict: Verdict) -> str:
    """The verdict as a coloured word."""
    return f'<span class="badge v-{verdict.name.lower()}">{verdict}</span>'


def _papers(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for name, group in by_paper(outcomes).items():
        opened = " open" if len(outcomes) == 1 else ""
        claims = "".join(claim(outcome, opened) for outcome in group)
        heading = f"{name[:1].upper()}{name[1:]}"
        yield (
            f'<section class="paper"><h2>{escape(heading)} <small>{plural(len(group), "claim")}</small></h2>'
            f"{claims}</section>"
        )


def claim(outcome: Outcome, opened: str = "") -> str:
    """One claim: a line to see, the rest to open."""
    kind = "bad" if not outcome.passed else "good" if outcome.checked == "here" else "read"
    anchor = escape(outcome.id.replace(" ", "-"))
    summary = (
        f"<h3>{escape(outcome.id)}</h3> {badge(outcome.verdict)} "
        f'<span class="said">{words(outcome.statement)}</span> '
        f'<span class="state {kind}">{escape(state(outcome))}</span>'
    )
    return (
        f'<details class="claim" id="{anchor}" data-verdict="{outcome.verdict}" data-paper="{escape(paper(outcome))}"'
        f'{opened}><summary>{summary}</summary><div class="inside">{_inside(outcome)}</div></details>'
    )


def _inside(outcome: Outcome) -> str:
    instead = "true instead" if outcome.verdict is Verdict.WRONG else "remark"
    how = state(outcome) + (f", seed {outcome.seed}, {1000 * outcome.seconds:.0f} ms" if outcome.findings else "")
    facts = (
        ("source", outcome.source),
        (instead, outcome.correction),
        ("rests on it", ", ".join(outcome.backs)),
        ("check", how),
        ("problem", outcome.problem),
    )
    plots = dots(outcome) + "".join(curve_plot(curve) for curve in outcome.curves)
    table = html_table(findings_grid(outcome)) if outcome.findings else ""
    return _facts(facts) + (f'<div class="minis">{plots}</div>' if plots else "") + table


def _facts(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(term)}</dt><dd>{words(told)}</dd></div>" for term, told in pairs if told)
    return f'<dl class="facts">{rows}</dl>'

"""Checked claims as text: the errors that matter and the counts, one row a claim, or everything about a few."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from normgauge.core.claim import OWN, Comparison, ComparisonKind, Entry, Ledger, Outcome, Verdict
from normgauge.core.fields import declared_fields
from normgauge.core.reading import Published
from normgauge.render.console import Block
from normgauge.render.numbers import ABSENT, format_number, plural
from normgauge.render.table import Grid, markdown_table, markdown_words

IN_FULL = 9  # more claims than this are shown as a table
APART = 1e-3  # a printed number farther from what was measured, as a share of the larger, is another number
MISSED = "✗"
DECIDES = "◂"  # marks the comparison that a verdict rests on
CLAIM, LISTED = 112, 320  # letters of a claim in the table of numbers, and in the list; `--claim` shows all of it
NETS = {"corollary11": "layer_net", "lemma3": "group_net"}  # whose normalizers a published quantity is about
FOREMOST = (  # the roots of the errors that open
    "batchnorm-euclidean-norm", "truncated-h", "weight-norm-rescaling", "radial-eigenvalue", "decay-factor-two",
)  # fmt: skip
SHORT = {Verdict.WITHDRAWN: "withdrawn"}  # where a column is narrow
WORDS = {
    Verdict.HOLDS: ("holds as printed", "hold as printed"),
    Verdict.LOOSE: ("is true but can be sharpened (loose)", "are true but can be sharpened (loose)"),
    Verdict.WRONG: ("is wrong as printed", "are wrong as printed"),
    Verdict.GAUGE: (
        "changes under a mere rescaling (gauge-dependent)",
        "change under a mere rescaling (gauge-dependent)",
    ),
    Verdict.UNSUPPORTED: ("has no proof behind it (unsupported)", "have no proof behind them (unsupported)"),
    Verdict.NOT_REPRODUCED: ("came out otherwise for us (not reproduced)",) * 2,
    Verdict.WITHDRAWN: ("is withdrawn by the author", "are withdrawn by the author"),
}
CAME_OUT = {
    ComparisonKind.EQUAL: ("equal", "NOT EQUAL"),
    ComparisonKind.BELOW: ("below", "ABOVE"),
    ComparisonKind.REFUTES: ("refuted", "NOT REFUTED"),
    ComparisonKind.MOVES: ("moves", "DOES NOT MOVE"),
    ComparisonKind.SHOWN: ("seen", "NOT SEEN"),
}


TERMS = (
    ("published", "What the printed statement says the number is here, put in by us; of what moves: before it did. "
     f"In a row that confirms what is predicted, > or < behind it: than measured; {MISSED}: not measured, the claim is "
     "wrong."),
    ("predicted", "What the true statement says it is, or is at most: the claim itself where it holds."),
    ("measured", "The number found on the instance by brute force: Jacobians, singular values, simulation. In a row "
     "“a, against b” it is a, also where that is a formula's, and b is predicted."),
    ("difference", "Of measured from predicted, or from published where that is refuted or moves, as a share of the "
     "larger of the two; of the size of what cancels, where 0 is predicted. Negative: room under a bound."),
    (DECIDES, "A comparison that the verdict rests on."),
    ("instance", "Small random networks, layers or data, drawn anew for every seed, as the recipe, a function of this "
     "package, says; --json has the numbers drawn."),
)  # fmt: skip


def by_source(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each source, in order."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.claim.source, []).append(outcome)
    return found


def source_heading(source: str, count: int, about: Sequence[str] = ()) -> str:
    """A source, what ``about`` says of it, and how many claims are shown; our own results are no claims."""
    if source == OWN:
        return f"Our own results: {count}"
    more = next((f" ({words.partition(': ')[2]})" for words in about if words.startswith(f"{source}: ")), "")
    return f"{source[:1].upper()}{source[1:]}{more}: {plural(count, 'claim')}"


def published_claims(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Claims of the sources, without our own results."""
    return [outcome for outcome in outcomes if outcome.claim.source != OWN]


def corrected(outcome: Outcome) -> float | None:
    """What the true form says of the number in the headline: its own prediction, or one made of the same number."""
    first = outcome.headline
    if first is None or first.kind is ComparisonKind.SHOWN:
        return None
    same = [
        f.predicted for f in outcome.findings if f.measured == first.measured and f.kind is not ComparisonKind.SHOWN
    ]
    return next((value for value in (first.predicted, *same) if value is not None), None)


def check_state(outcome: Outcome) -> str:
    """Whether the check came out, or why it was not run."""
    return (
        f"not run: {outcome.absent}"
        if outcome.read
        else f"not checked here: {outcome.absent}"
        if not outcome.ran
        else "passed: the verdict is confirmed"
        if outcome.passed
        else "FAILED"
    )


def verdict_summary(ledger: Ledger) -> str:
    """The verdicts in words a newcomer understands: errors by their roots, our own results apart."""
    outcomes = published_claims(ledger.outcomes)
    own = len(ledger.outcomes) - len(outcomes)
    if len(ledger.outcomes) == 1:
        (only,) = ledger.outcomes
        here = "" if only.ran or only.read else "; its check did not run here"
        return f"This {'result' if own else 'claim'} {WORDS[only.claim.verdict][0]}{here}."
    counts = Counter(outcome.claim.verdict for outcome in outcomes)
    told = {v: f"{counts[v]} {WORDS[v][counts[v] > 1]}" for v in Verdict if counts[v]}
    if ledger.errors:
        told[Verdict.WRONG] += f", {plural(len(ledger.errors), 'independent error')}"
    head = f"Of {len(outcomes)} published claims {'; '.join(told.values())}." if outcomes else ""
    return " ".join(filter(None, [head, f"Counted apart: {plural(own, 'result')} of our own." if own else ""]))


def check_summary(ledger: Ledger) -> str:
    """How many checks were run and came out; what was not run never counts as passed.

    A claim without a check was read; one whose results are not here was not run, which is said apart.
    """
    ran = [outcome for outcome in ledger.outcomes if outcome.ran]
    seeds = ", ".join(map(str, sorted({outcome.seed for outcome in ran})))
    came = f"{plural(len(ledger.failed), 'check')} FAILED of" if ledger.failed else "Every check that was run passed:"
    told = [f"{came} {len(ran)} (seed {seeds})."] if ran else []
    why = Counter((outcome.read, outcome.absent) for outcome in ledger.outcomes if not outcome.ran)
    missing = [words for read, words in why if not read]
    told += [f"Read, not run: {count} ({words})." for (read, words), count in why.items() if read]
    if missing:
        alike = missing[0] if len(missing) == 1 else f"such as: {missing[0]}"
        told.append(f"Verdicts not checked here: {sum(why[False, words] for words in missing)} ({alike}).")
    return " ".join(told)


def check_failures(ledger: Ledger) -> list[str]:
    """A line for each check that failed: what came out otherwise, or why it broke off."""
    lines = []
    for outcome in ledger.failed:
        wrong = [f"{f.what}: {CAME_OUT[f.kind][1].lower()}, {_sides(f)}" for f in outcome.findings if not f.passed]
        told = [outcome.problem] if outcome.problem else wrong or ["it compared nothing"]
        lines += [f"failed: {outcome.claim.id} (seed {outcome.seed}): {words}" for words in told]
    return lines


def _sides(finding: Comparison) -> str:
    named = (("measured", finding.measured), ("predicted", finding.predicted), ("published", finding.published))
    return ", ".join(f"{name} {format_number(value)}" for name, value in named if value is not None)


def foremost_errors(ledger: Ledger) -> list[Entry]:
    """The errors to open with, in their order, each by its first entry."""
    return [ledger.errors[root][0] for root in FOREMOST if root in ledger.errors]


def error_sentence(entry: Entry) -> str:
    """An error in short: the place, the words, a counterexample and what first of all survives."""
    survives = re.split(r"; |\. (?=[A-Z])", entry.survives)[0]
    parts = (
        f"{entry.source}, {entry.at.partition(';')[0]}: {entry.words}",
        f"Not so: {entry.within}",
        f"Survives: {survives}",
    )
    return " ".join(f"{part.rstrip('.')}." for part in parts)


def theory_opening(ledger: Ledger) -> list[Block]:
    """The first screen: the errors that matter, then what holds, by source."""
    told = [f"{plural(len(ledger.errors), 'independent error')} in {len(published_claims(ledger.outcomes))} published "
            "claims. Those that reach furthest:"] if foremost_errors(ledger) else []  # fmt: skip
    told += [f"* {entry.id}: {error_sentence(entry)}" for entry in foremost_errors(ledger)]
    return [*told, counts_grid(ledger), *([f"{'; '.join(ledger.sources)}."] if ledger.sources else [])]


def counts_grid(ledger: Ledger) -> Grid:
    """How many published claims of each source have which verdict, and how many errors that is."""
    groups = by_source(published_claims(ledger.outcomes))
    counts = {name: Counter(o.claim.verdict for o in group) for name, group in groups.items()}
    roots = Counter(entries[0].source for entries in ledger.errors.values())
    rows = {WORDS[v][1]: [counts[name][v] for name in groups] for v in Verdict if any(c[v] for c in counts.values())}
    rows["claims"] = [len(group) for group in groups.values()]
    if roots:
        rows["independent errors"] = [roots[name] for name in groups]
    headers = ("published claims", *(name.partition(" of ")[0] for name in groups), "all")
    cells = tuple((name, *(str(n or ABSENT) for n in (*given, sum(given)))) for name, given in rows.items())
    return Grid("What holds, by source", headers, cells, frozenset(range(1, len(headers))))


def claims_grid(title: str, outcomes: Sequence[Outcome]) -> Grid:
    """Return a table with one row for each claim."""
    rows = tuple(_row(outcome) for outcome in outcomes)
    headers = ("id", "verdict", "claim", "published", "predicted", "measured", "check")
    return Grid(title, headers, rows, frozenset({3, 4, 5, 6}))


def _opening_cells(claim: Entry, most: int = CLAIM) -> tuple[str, str, str]:
    """Id, verdict and what fits of place and reading."""
    words = f"{claim.at.partition(';')[0]}: {claim.reading}"
    short = words if len(words) <= most else words[:most].rsplit(" ", 1)[0] + " …"
    return claim.id, SHORT.get(claim.verdict, str(claim.verdict)), short


def _row(outcome: Outcome) -> tuple[str, ...]:
    first = outcome.headline
    first = first if first and first.kind is not ComparisonKind.SHOWN else None
    return (
        *_opening_cells(outcome.claim),
        format_number(first.published if first else None, 4),
        format_number(corrected(outcome), 4),
        format_number(first.measured if first else None, 4),
        f"✓ {1000 * outcome.seconds:.0f} ms" if outcome.passed else check_state(outcome).partition(":")[0],
    )


def claims_index(title: str, outcomes: Sequence[Outcome]) -> Grid:
    """Return a table to find claims in: a few lines each, since what a claim asserts may stand at its end."""
    rows = tuple(_opening_cells(outcome.claim, LISTED) for outcome in outcomes)
    return Grid(title, ("id", "verdict", "claim"), rows)


def claims_list(title: str, outcomes: Sequence[Outcome]) -> Grid:
    """Return a table of claims with their statements in full, without numbers."""
    rows = tuple(
        (o.claim.id, o.claim.at, str(o.claim.verdict), o.claim.reading, o.claim.instead * (o.claim.verdict != "holds"))
        for o in outcomes
    )
    return Grid(title, ("id", "place", "verdict", "what it says", "what is true, where it does not hold"), rows)


def printed_number(finding: Comparison, verdict: Verdict) -> str:
    """What is printed, and beside a true number that was confirmed whether it is another one; a wrong one is missed."""
    if finding.kind is ComparisonKind.SHOWN or finding.published is None:
        return ABSENT
    told, apart = format_number(finding.published), finding.published - finding.measured
    near = abs(apart) <= APART * max(abs(finding.published), abs(finding.measured))
    if near or finding.kind is not ComparisonKind.EQUAL:
        return told
    return f"{told} {MISSED if verdict is Verdict.WRONG else '>' if apart > 0 else '<'}"


def findings_grid(outcome: Outcome) -> Grid:
    """Return a table of every comparison that one check made."""
    rows = tuple(
        (
            f.what,
            printed_number(f, outcome.claim.verdict),
            ABSENT if f.kind is ComparisonKind.SHOWN else format_number(f.predicted),
            ABSENT if f.kind is ComparisonKind.SHOWN else format_number(f.measured),
            ABSENT if f.kind is ComparisonKind.SHOWN or math.isnan(f.error) else f"{f.error:.1e}",
            CAME_OUT[f.kind][not f.passed] + f" {DECIDES}" * (f is outcome.decisive and len(outcome.findings) > 1),
        )
        for f in outcome.findings
    )
    headers = ("compared", "published", "predicted", "measured", "difference", "came out")
    return Grid(f"What the check of {outcome.claim.id} found", headers, rows, frozenset({1, 2, 3, 4}))


def quoted(claim: Entry) -> str:
    """The words of a source; whether they hedge, and whether something between them was left out."""
    remarks = [
        text for text, so in (("hedged", claim.hedged), ("joined: … leaves words out", " … " in claim.words)) if so
    ]
    return (f"“{claim.words}”" + (f" ({'; '.join(remarks)})" if remarks else "")) if claim.words else ""


def error_facts(claim: Entry) -> list[tuple[str, str]]:
    """The words of a source and what is left of them; what is empty is left out."""
    told = (
        ("words", quoted(claim)),
        ("reading", claim.reading),
        ("counterexample", claim.within),
        ("instead" if claim.verdict is Verdict.WRONG else "remark", claim.instead),
        ("survives", claim.survives),
        ("note", claim.note),
    )
    return [(name, words) for name, words in told if words]


def claim_facts(outcome: Outcome) -> list[tuple[str, str]]:
    """Everything about one claim, and how it was checked."""
    claim, spent = outcome.claim, f", seed {outcome.seed}, {1000 * outcome.seconds:.0f} ms" if outcome.ran else ""
    told = (
        ("verdict", f"it {WORDS[claim.verdict][0]}"),
        *error_facts(claim),
        (
            "one error",
            f"{claim.error}: normgauge theory {claim.error} shows all that is wrong by it" * bool(claim.error),
        ),
        ("on a network", gauge_rows(claim)),
        ("our code for it", ", ".join(claim.backs)),
        ("trained by", f"normgauge reproduce {claim.experiment}" if claim.experiment else ""),
        ("check", f"{check_state(outcome)}{spent}"),
        ("recipe", outcome.recipe),
        ("drawn", _drawn(outcome)),
        ("problem", outcome.problem),
    )
    return [(name, words) for name, words in told if words]


def gauge_rows(claim: Entry) -> str:
    """How to have the number of a claim for a network of one's own; "" where it is none of the published quantities."""
    place = re.compile(re.escape(claim.at.partition(";")[0]) + r"(?!\w)")  # "Lemma 3" is in "Lemma 3's sum"
    stated = {field.key: field.told.source or ("", "") for field in declared_fields(Published)}
    keys = [key for key, (paper, number) in stated.items() if paper == claim.source and place.match(number)]
    if not keys:
        return claim.shown_by
    net = next((net for part, net in NETS.items() if part in keys[0]), "batch_net")
    nets = "normgauge.theory.nets"
    return (
        f"normgauge gauge {nets}:{net} --batch {nets}:samples --all (its “Published quantities”; in --json: "
        f"{', '.join(keys)}); one of yours: FILE.py:build --batch FILE.py:batch"
    )


def _drawn(outcome: Outcome) -> str:
    """How many draws of each kind and size."""
    told = Counter("whole number" if one.kind == "integer" else str(one) for one in outcome.drawn)
    kinds = (f"{count} × {kind}" if count > 1 else kind for kind, count in told.items())
    return f"{', '.join(kinds)} (--json: the numbers)" if told else ""


def in_full(outcome: Outcome) -> list[Block]:
    """Return everything about one claim, as tables."""
    claim, plots = outcome.claim, "; ".join(curve.title for curve in outcome.curves)
    rows = [*claim_facts(outcome), *([("plots", f"{plots} (--html)")] if plots else [])]
    told = Grid(f"{claim.id}: {claim.source}, {claim.at}", rows[0], tuple(rows[1:]))
    return [told, findings_grid(outcome)] if outcome.findings else [told]


def _terms(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """The words that what is shown needs."""
    found = [finding for outcome in outcomes for finding in outcome.findings]
    there = {
        "published": any(finding.published is not None for finding in found),
        "predicted": any(
            finding.predicted is not None and finding.kind is not ComparisonKind.SHOWN for finding in found
        ),
        DECIDES: any(len(outcome.findings) > 1 for outcome in outcomes),
        "instance": any(outcome.drawn for outcome in outcomes),
    }
    return [(name, words) for name, words in TERMS if there.get(name, True)]


def theory_blocks(ledger: Ledger, every: bool = True) -> list[Block]:
    """What the terminal shows: a few claims in full; many as the opening, with ``every`` also as one table a source."""
    if len(ledger.outcomes) <= IN_FULL:
        body = [part for outcome in ledger.outcomes for part in in_full(outcome)]
        compared = any(outcome.findings for outcome in ledger.outcomes)
        words = [f"  {name}: {sentence}" for name, sentence in _terms(ledger.outcomes)] if compared else []
        shown = {f"{outcome.claim.source}:" for outcome in ledger.outcomes}
        papers = [f"{about}." for about in ledger.sources if about.startswith(tuple(shown))]
        return [*body, "", *words, *papers, verdict_summary(ledger), check_summary(ledger)]
    groups = by_source(ledger.outcomes).items() if every else ()
    tables = [claims_grid(source_heading(name, len(group)), group) for name, group in groups]
    own = len(ledger.outcomes) - len(published_claims(ledger.outcomes))
    apart = f"Counted apart: {plural(own, 'result')} of our own. " if own else ""
    return [*theory_opening(ledger), *tables, f"{apart}{check_summary(ledger)}"]


def theory_markdown(ledger: Ledger) -> str:
    """The claims as a page of the documentation: no measured numbers, so that it changes only with the claims."""
    lines = [
        "# Claims of the theory",
        "",
        "Generated by `make docs`. `normgauge theory` checks the claims on fresh random instances and on committed",
        "results, `--claim T.L1` shows one in full, `--html theory.html` writes a page with all comparisons and plots.",
        "[Section by section](sources.md) says what was run for each part of the sources. *Loose*: true, and a sharper",
        "form is known or a condition any reader supplies is missing; `normgauge theory --help` defines every verdict.",
        "",
        verdict_summary(ledger),
        "",
        *markdown_table(counts_grid(ledger)),
        "",
        *(f"* {markdown_words(source)}" for source in ledger.sources),
        "",
        "## Errors that reach furthest",
        "",
        *(f"* **{entry.id}** {markdown_words(error_sentence(entry))}" for entry in foremost_errors(ledger)),
        "",
        "## Every independent error",
        "",
    ]
    for entries in ledger.errors.values():
        lines += _error(entries)
    for name, group in by_source(ledger.outcomes).items():
        grid = claims_list(source_heading(name, len(group)), group)
        folded = [
            "<details><summary>All, each with what is true</summary>",
            "",
            *markdown_table(grid),
            "",
            "</details>",
        ]
        lines += [f"## {grid.title}", "", *folded, ""]
    return "\n".join(lines)


def _error(entries: Sequence[Entry]) -> list[str]:
    """One root with all that is wrong by it."""
    places = [f"{entry.id}: {entry.source}, {entry.at}" for entry in entries]
    told = [("the same error", "; ".join(places[1:]))] if len(places) > 1 else []
    return [
        f"### {markdown_words(places[0])}",
        "",
        *(f"* {name}: {markdown_words(words)}" for name, words in [*error_facts(entries[0]), *told]),
        "",
    ]

"""Checked claims as text for a terminal: counts, one row a claim, or everything about a few."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from normgauge.core.claim import Finding, Kind, Ledger, Outcome, Verdict
from normgauge.render.console import Block
from normgauge.render.numbers import ABSENT, plural
from normgauge.render.table import Grid

IN_FULL = 8  # more claims than this are shown as a table
CLAIM = 112  # letters of a claim in the table; `--claim` shows all of it
SHORT = {Verdict.GAUGE: "gauge"}  # where a column is narrow
WORDS = {
    Verdict.HOLDS: ("holds as printed", "hold as printed"),
    Verdict.LOOSE: ("is true but can be sharpened", "are true but can be sharpened"),
    Verdict.WRONG: ("is wrong as printed and corrected here", "are wrong as printed and corrected here"),
    Verdict.GAUGE: (
        "is about a number that moves under a rescaling the network does not notice",
        "are about numbers that move under a rescaling the network does not notice",
    ),
    Verdict.UNSUPPORTED: ("has no proof behind it", "have no proof behind them"),
}
CAME_OUT = {
    Kind.EQUAL: ("equal", "NOT EQUAL"),
    Kind.BELOW: ("below", "ABOVE"),
    Kind.REFUTES: ("refuted", "NOT REFUTED"),
    Kind.MOVES: ("moves", "DOES NOT MOVE"),
    Kind.SHOWN: ("seen", "NOT SEEN"),
}


def number(value: float | None, digits: int = 5) -> str:
    """A number with so many digits at most; "·" where there is none.

    >>> number(2.2912878), number(None), number(0.0), number(1e50), number(float("inf"))
    ('2.2913', '·', '0', '1e+50', 'inf')
    """
    return ABSENT if value is None else f"{value:.{digits}g}"


def paper(outcome: Outcome) -> str:
    """The source without the place in it."""
    return outcome.source.partition(", ")[0]


def place(outcome: Outcome) -> str:
    """The place in the source."""
    return outcome.source.partition(", ")[2]


def by_paper(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each source, in order."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(paper(outcome), []).append(outcome)
    return found


def corrected(outcome: Outcome) -> float | None:
    """What the true form says of the number in the headline: its own prediction, or one made of the same number."""
    first = outcome.headline
    if first is None or first.kind is Kind.SHOWN:
        return None
    same = [f.predicted for f in outcome.findings if f.measured == first.measured and f.kind is not Kind.SHOWN]
    return next((value for value in (first.predicted, *same) if value is not None), None)


def state(outcome: Outcome) -> str:
    """How a claim was checked, and whether that came out."""
    if outcome.checked != "here":
        return "by reading" if outcome.checked == "reading" else f"by {outcome.checked}"
    return "passed" if outcome.passed else "FAILED"


def sentences(ledger: Ledger) -> list[str]:
    """The verdicts in words a newcomer understands, and how far they were checked."""
    outcomes = ledger.outcomes
    counts = Counter(outcome.verdict for outcome in outcomes)
    told = [f"{counts[v]} {_meant(v, counts[v] > 1)}" for v in Verdict if counts[v]]
    here = [outcome for outcome in outcomes if outcome.checked == "here"]
    read = sum(outcome.checked == "reading" for outcome in outcomes)
    trained = len(outcomes) - len(here) - read
    lost = sum(not outcome.passed for outcome in here)
    ways = [f"{len(here)} on fresh random instances" if here else "", f"{trained} by training" if trained else ""]
    ways.append(f"{read} only by reading, since nothing in them can be computed" if read else "")
    seeds = sorted({outcome.seed for outcome in here})
    drawn = f" (seed {', '.join(map(str, seeds))})" if here else ""
    came = f"{plural(lost, 'check')} FAILED." if lost else "Every check passed." if here else ""
    head = f"Of {len(outcomes)} claims, {'; '.join(told)}."
    if len(outcomes) == 1:
        head = f"This claim {_meant(outcomes[0].verdict)}."
    return [head, f"Checked: {', '.join(filter(None, ways))}{drawn}. {came}".strip()]


def _meant(verdict: Verdict, several: bool = False) -> str:
    words = WORDS[verdict][several]
    return words if verdict in (Verdict.HOLDS, Verdict.WRONG) else f"{words} ({verdict})"


def failures(ledger: Ledger) -> list[str]:
    """A line for each check that failed: what came out otherwise, or why it could not run."""
    lines = []
    for outcome in ledger.outcomes:
        wrong = [f"{f.what}: {CAME_OUT[f.kind][1].lower()}, {_sides(f)}" for f in outcome.findings if not f.passed]
        told = [outcome.problem] if outcome.problem else wrong
        lines += [f"failed: {outcome.id} (seed {outcome.seed}): {words}" for words in told]
    return lines


def _sides(finding: Finding) -> str:
    named = (("measured", finding.measured), ("predicted", finding.predicted), ("published", finding.published))
    return ", ".join(f"{name} {number(value)}" for name, value in named if value is not None)


def counts_grid(outcomes: Sequence[Outcome]) -> Grid:
    """How many claims of each source have which verdict."""
    groups = {**by_paper(outcomes), "all": list(outcomes)}
    rows = tuple(
        (name, *(str(sum(o.verdict is v for o in group) or ABSENT) for v in Verdict), str(len(group)))
        for name, group in groups.items()
    )
    headers = ("source", *map(str, Verdict), "claims")
    return Grid("Claims by source and verdict", headers, rows, frozenset(range(1, len(headers))))


def claims_grid(title: str, outcomes: Sequence[Outcome]) -> Grid:
    """One row a claim."""
    rows = tuple(_row(outcome) for outcome in outcomes)
    headers = ("id", "verdict", "claim", "published", "predicted", "measured", "check")
    return Grid(title, headers, rows, frozenset({3, 4, 5, 6}))


def _row(outcome: Outcome) -> tuple[str, ...]:
    first = outcome.headline if outcome.headline and outcome.headline.kind is not Kind.SHOWN else None
    words = f"{place(outcome)}: {outcome.statement}"
    return (
        outcome.id,
        SHORT.get(outcome.verdict, str(outcome.verdict)),
        words if len(words) <= CLAIM else words[:CLAIM].rsplit(" ", 1)[0] + " …",
        number(first.published if first else None, 4),
        number(corrected(outcome), 4),
        number(first.measured if first else None, 4),
        _mark(outcome),
    )


def _mark(outcome: Outcome) -> str:
    if outcome.checked != "here":
        return "read" if outcome.checked == "reading" else "trained"
    return f"✓ {1000 * outcome.seconds:.0f} ms" if outcome.passed else "FAILED"


def claims_list(title: str, outcomes: Sequence[Outcome]) -> Grid:
    """What there is to check, with statements in full."""
    rows = tuple((o.id, place(o), str(o.verdict), o.statement, o.checked) for o in outcomes)
    return Grid(f"{title}: {plural(len(rows), 'claim')}", ("id", "place", "verdict", "statement", "checked"), rows)


def findings_grid(outcome: Outcome) -> Grid:
    """Every comparison of one check."""
    rows = tuple(
        (
            f.what,
            ABSENT if f.kind is Kind.SHOWN else number(f.published),
            ABSENT if f.kind is Kind.SHOWN else number(f.predicted),
            ABSENT if f.kind is Kind.SHOWN else number(f.measured),
            ABSENT if f.kind is Kind.SHOWN or math.isnan(f.error) else f"{f.error:.1e}",
            CAME_OUT[f.kind][not f.passed],
        )
        for f in outcome.findings
    )
    headers = ("compared", "published", "predicted", "measured", "difference", "came out")
    return Grid(f"What the check of {outcome.id} found", headers, rows, frozenset({1, 2, 3, 4}))


def in_full(outcome: Outcome) -> list[Block]:
    """Everything about one claim."""
    here = outcome.checked == "here"
    told = (
        ("verdict", f"it {_meant(outcome.verdict)}"),
        ("instead" if outcome.verdict is Verdict.WRONG else "remark", outcome.correction),
        ("rests on it", ", ".join(outcome.backs)),
        ("check", f"{state(outcome)}, {1000 * outcome.seconds:.0f} ms" if here else state(outcome)),
        ("problem", outcome.problem),
        ("plots", "; ".join(curve.title for curve in outcome.curves) + (" (--html)" if outcome.curves else "")),
    )
    rows = tuple((name, words) for name, words in told if words)
    facts = Grid(f"{outcome.id}: {outcome.source}", ("claim", outcome.statement), rows)
    return [facts, findings_grid(outcome)] if outcome.findings else [facts]


def blocks(ledger: Ledger) -> list[Block]:
    """What the terminal shows: a few claims in full, many as one table a source."""
    if len(ledger.outcomes) <= IN_FULL:
        body = [part for outcome in ledger.outcomes for part in in_full(outcome)]
    else:
        groups = by_paper(ledger.outcomes)
        body = [claims_grid(f"{name}: {plural(len(group), 'claim')}", group) for name, group in groups.items()]
        body.append(counts_grid(ledger.outcomes))
    return [*body, "", *sentences(ledger)]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The claims as a page of the documentation: no numbers, so that it changes only with the claims."""
    lines = [
        "# Claims of the theory",
        "",
        "Generated by `make docs` from the ledger. `normgauge theory` checks every claim on fresh random instances,",
        "`normgauge theory --claim T.L1` shows one in full, `normgauge theory --html theory.html` writes a page with",
        "every comparison and plots.",
        "",
        *_table(counts_grid(outcomes).headers, counts_grid(outcomes).rows),
    ]
    for name, group in by_paper(outcomes).items():
        rows = [(o.id, place(o), str(o.verdict), o.statement, o.correction, _checked(o)) for o in group]
        heads = ("id", "place", "verdict", "statement", "what is true, and why", "checked")
        lines += ["", f"## {name[:1].upper()}{name[1:]}", "", *_table(heads, rows)]
    return "\n".join(lines) + "\n"


def _checked(outcome: Outcome) -> str:
    return outcome.checked if outcome.checked in ("here", "reading") else f"`{outcome.checked}`"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    drawn = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in (headers, *rows)]
    return [drawn[0], "|" + " --- |" * len(headers), *drawn[1:]]


def _cell(text: str) -> str:
    """Plain words: signs that Markdown would read are escaped."""
    shown = " ".join(text.split())
    for sign in ("\\", "|", "*", "_", "<", "[", "]", "~"):
        shown = shown.replace(sign, f"\\{sign}")
    return shown

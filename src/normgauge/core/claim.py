"""What a check of a published claim found: plain numbers and words, ready for a table, a page or a file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, TypedDict

from normgauge.core.fields import FieldForm, Seconds, Stored, Told, form_of
from normgauge.core.spelled import spell_number

OWN = "normgauge"  # as a source: our own results
READ = "against the text, or the work it cites"  # why a claim without a check was not run


class Verdict(StrEnum):
    """What is left of a claim once it is checked."""

    HOLDS = "holds"
    LOOSE = "loose"
    WRONG = "wrong"
    GAUGE = "gauge-dependent"
    UNSUPPORTED = "unsupported"
    NOT_REPRODUCED = "not reproduced"  # an experiment came out otherwise
    WITHDRAWN = "withdrawn by the author"  # in the same text


class ComparisonKind(StrEnum):
    """What a finding says about its numbers."""

    EQUAL = "equal"  # measured = predicted: a statement, or its correction, is confirmed
    BELOW = "below"  # measured <= predicted: a bound is confirmed
    REFUTES = "refutes"  # published is not what was measured: a counterexample
    MOVES = "moves"  # the published number changes though nothing it is about does: gauge
    SHOWN = "shown"  # a yes-or-no fact that was observed


def _measured(value: float) -> float | str | None:
    """A check that broke down may find NaN, which is no number."""
    return None if math.isnan(value) else spell_number(value)


class CurveLine(TypedDict):
    """What one line of a plot holds in a file."""

    name: Annotated[str, Told("what it shows")]
    y: Annotated[tuple[float, ...], Told("its values")]


LINES = form_of(tuple[CurveLine, ...])
CURVE_LINES = FieldForm(
    "[object]",
    lambda lines: LINES.out([{"name": name, "y": y} for name, y in lines]),
    lambda lines: tuple((line["name"], line["y"]) for line in LINES.into(lines)),
)
Measured = Annotated[float, FieldForm("number", _measured, float)]


@dataclass(frozen=True, slots=True)
class Comparison(Stored):
    """One comparison a check made."""

    kind: Annotated[ComparisonKind, Told("what the numbers are compared for")]
    what: Annotated[str, Told("a few words on what was measured")]
    measured: Annotated[Measured, Told("the number found on this instance")]
    predicted: Annotated[Measured | None, Told("what the statement (or its correction) says it is, or is at most")]
    published: Annotated[Measured | None, Told("what the claim as printed says it is here, put in by us")]
    passed: Annotated[bool, Told("whether the comparison came out as the verdict says")]
    error: Annotated[
        Measured,
        Told("measured less predicted (or published), as a share of the larger of the two; of a bound with its sign"),
    ]


@dataclass(frozen=True, slots=True)
class Curve(Stored):
    """A small plot a check offers: a few lines over a common axis."""

    title: Annotated[str, Told("what it shows")]
    x_label: Annotated[str, Told("of the common axis")]
    y_label: Annotated[str, Told("of the other")]
    x: Annotated[tuple[float, ...], Told("where the lines are known")]
    lines: Annotated[
        tuple[tuple[str, tuple[float, ...]], ...],
        CURVE_LINES,
        Told("each with its `name` and its values `y`"),
    ]
    log_x: Annotated[bool, Told("whether the axis is logarithmic", key="log_x")] = False
    log_y: Annotated[bool, Told("likewise", key="log_y")] = False


@dataclass(frozen=True, slots=True)
class Drawn(Stored):
    """What a check drew for its instance, as its recipe asks for it."""

    kind: Annotated[str, Told("`normal`, `uniform` or `integer`")]
    shape: Annotated[tuple[int, ...], Told("how many; empty for one whole number")]
    values: Annotated[tuple[float, ...], Told("the numbers, row by row; empty where there are more than 50")] = ()

    def __str__(self) -> str:
        """A whole number by itself, otherwise kind and size."""
        return f"{self.kind} {'×'.join(map(str, self.shape)) or f'{self.values[0]:g}'}"


@dataclass(frozen=True, slots=True)
class Entry(Stored):
    """A statement of a source as the ledger has it."""

    id: Annotated[str, Told("such as `T.L1`; the letter is the source")]
    source: Annotated[str, Told('what it is called; "normgauge" for our own results, which are no published claims')]
    at: Annotated[str, Told("the place there, to the equation or sentence")]
    reading: Annotated[str, Told("what is stated, in our words, with the meaning of its symbols")]
    verdict: Annotated[Verdict, Told("what is left of it")]
    words: Annotated[str, Told("the printed formula or the decisive words")] = ""
    hedged: Annotated[bool, Told('the source says "can", "might", "suggests"')] = False
    within: Annotated[str, Told("a counterexample inside the source's own assumptions")] = ""
    instead: Annotated[str, Told("what is true, or the exact form, or why nothing more can be said")] = ""
    survives: Annotated[str, Told("what a wrong statement leaves standing")] = ""
    error: Annotated[str, Told("the root of what is wrong; entries that share it are one error")] = ""
    published: Annotated[tuple[str, ...], Told("numbers as printed at that place")] = ()
    note: Annotated[str, Told("what else a reader should know")] = ""
    decides: Annotated[
        str,
        Told(
            "how the comparison begins that the verdict rests on; empty: the first of the kind that the verdict needs"
        ),
    ] = ""
    shown_by: Annotated[str, Told("a command that shows its number for a network, with the name of the number")] = ""
    experiment: Annotated[str, Told("the training that decides it, as `normgauge reproduce` knows it")] = ""
    backs: Annotated[tuple[str, ...], Told("rules and functions of this package that rest on it, by name")] = ()


@dataclass(frozen=True, slots=True)
class Outcome(Stored):
    """A claim and what its check found."""

    claim: Entry
    seed: Annotated[int, Told("the instances were drawn from it")] = 0
    seconds: Annotated[Seconds, Told("CPU time of the check")] = 0.0
    problem: Annotated[str, Told("what went wrong where the check broke off")] = ""
    absent: Annotated[str, Told("why it was not run; empty where it was")] = ""
    findings: Annotated[tuple[Comparison, ...], Told("the comparisons, see below")] = ()
    curves: Annotated[tuple[Curve, ...], Told("small plots, see below")] = ()
    recipe: Annotated[str, Told("the function that draws and compares, by its name")] = ""
    drawn: Annotated[tuple[Drawn, ...], Told("what it drew, its first 50 draws in order, see below")] = ()

    @property
    def read(self) -> bool:
        """Whether it has no check: it was read against the text."""
        return self.absent == READ

    @property
    def ran(self) -> bool:
        """Whether something was compared, or broke off."""
        return not self.absent

    @property
    def passed(self) -> bool:
        """Whether the check ran and every comparison came out as the verdict says; never without a comparison."""
        return self.ran and not self.problem and bool(self.findings) and all(f.passed for f in self.findings)

    @property
    def headline(self) -> Comparison | None:
        """The comparison to show in a table: the one named, a counterexample or a prediction."""
        telling = [f for f in self.findings if self.claim.decides and f.what.startswith(self.claim.decides)]
        telling += [f for f in self.findings if f.published is not None]
        telling += [f for f in self.findings if f.predicted is not None]
        return next(iter(telling + list(self.findings)), None)

    @property
    def decisive(self) -> Comparison | None:
        """The comparison that the verdict rests on: the one named, else the first of the kind it needs, else any."""
        if self.claim.decides:
            return self.headline
        needed = {Verdict.WRONG: ComparisonKind.REFUTES, Verdict.GAUGE: ComparisonKind.MOVES}.get(self.claim.verdict)
        return next((finding for finding in self.findings if finding.kind is needed), self.headline)

    def to_json(self) -> dict[str, Any]:
        """This outcome as strict JSON; ``measured`` and ``predicted`` are those of the headline."""
        first = self.headline.to_json() if self.headline else {}
        return {
            **self.claim.to_json(),
            "ran": self.ran,
            "passed": self.passed if self.ran else None,
            "predicted": first.get("predicted"),
            "measured": first.get("measured"),
            **Stored.to_json(self),
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """Outcomes of one run of the checks, and what the sources are."""

    outcomes: tuple[Outcome, ...] = field(default=())
    sources: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Checks that ran and came out otherwise, or broke off."""
        return tuple(outcome for outcome in self.outcomes if outcome.ran and not outcome.passed)

    @property
    def errors(self) -> dict[str, list[Entry]]:
        """Independent errors of the sources: the entries of each root."""
        found: dict[str, list[Entry]] = {}
        for outcome in self.outcomes:
            if outcome.claim.verdict is Verdict.WRONG and outcome.claim.source != OWN:
                found.setdefault(outcome.claim.error, []).append(outcome.claim)
        return found

    def to_json(self) -> dict[str, Any]:
        """The whole run as strict JSON."""
        told = [outcome.to_json() for outcome in self.outcomes]
        return {"schema": 2, "passed": not self.failed, "independent_errors": len(self.errors), "claims": told}

"""What a check of a published claim found: plain numbers and words, ready for a table, a page or a file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from normgauge.core.spelled import spell

OWN = "normgauge"  # as a source: our own results


class Verdict(StrEnum):
    """What is left of a claim once it is checked."""

    HOLDS = "holds"
    LOOSE = "loose"
    WRONG = "wrong"
    GAUGE = "gauge-dependent"
    UNSUPPORTED = "unsupported"
    NOT_REPRODUCED = "not reproduced"  # an experiment came out otherwise
    WITHDRAWN = "withdrawn by the author"  # in the same text


class Kind(StrEnum):
    """What a finding says about its numbers."""

    EQUAL = "equal"  # measured = predicted: a statement, or its correction, is confirmed
    BELOW = "below"  # measured <= predicted: a bound is confirmed
    REFUTES = "refutes"  # published is not what was measured: a counterexample
    MOVES = "moves"  # the published number changes though nothing it is about does: gauge
    SHOWN = "shown"  # a yes-or-no fact that was observed


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison a check made.

    Attributes:
        kind: what the numbers are compared for.
        what: a few words on what was measured.
        measured: the number found on this instance.
        predicted: what the statement (or its correction) says it is, or is at most.
        published: what the claim as printed says it is.
        passed: whether the comparison came out as the verdict says.
        error: how far it was from coming out the other way: relative, in the sense of the kind.
    """

    kind: Kind
    what: str
    measured: float
    predicted: float | None
    published: float | None
    passed: bool
    error: float

    def to_json(self) -> dict[str, Any]:
        """This finding as strict JSON."""
        numbers = {"measured": self.measured, "predicted": self.predicted, "published": self.published}
        spelled = {name: None if v is not None and math.isnan(v) else spell(v) for name, v in numbers.items()}
        error = None if math.isnan(self.error) else spell(self.error)
        return {"kind": str(self.kind), "what": self.what, **spelled, "passed": self.passed, "error": error}


@dataclass(frozen=True, slots=True)
class Curve:
    """A small plot a check offers: a few lines over a common axis."""

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float, ...]], ...]
    log_x: bool = False
    log_y: bool = False

    def to_json(self) -> dict[str, Any]:
        """This plot as strict JSON."""
        return {
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "x": [spell(v) for v in self.x],
            "lines": [{"name": name, "y": [spell(v) for v in y]} for name, y in self.lines],
            "log_x": self.log_x,
            "log_y": self.log_y,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of a source as the ledger has it.

    Attributes:
        id: such as ``T.L1``; the letter is the source.
        source: what it is called; "normgauge" for our own results, which are no published claims.
        at: the place there, to the equation or sentence.
        reading: what is stated, in our words, with the meaning of its symbols.
        verdict: what is left of it.
        words: the printed formula or the decisive words.
        hedged: the source says "can", "might", "suggests".
        within: a counterexample inside the source's own assumptions.
        instead: what is true, or the exact form, or why nothing more can be said.
        survives: what a wrong statement leaves standing.
        error: the root of what is wrong; entries that share it are one error.
        published: numbers as printed at that place.
        note: what else a reader should know.
        experiment: the training that decides it, as ``normgauge reproduce`` knows it.
        backs: rules and functions of this package that rest on it, by name.
    """

    id: str
    source: str
    at: str
    reading: str
    verdict: Verdict
    words: str = ""
    hedged: bool = False
    within: str = ""
    instead: str = ""
    survives: str = ""
    error: str = ""
    published: tuple[str, ...] = ()
    note: str = ""
    experiment: str = ""
    backs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A claim and what its check found.

    Attributes:
        claim: the statement and its verdict.
        seed: the instances were drawn from it.
        findings: the comparisons.
        curves: small plots.
        seconds: CPU time of the check.
        problem: what went wrong where the check broke off.
        absent: why it was not run; "" where it was.
    """

    claim: Entry
    seed: int = 0
    findings: tuple[Finding, ...] = ()
    curves: tuple[Curve, ...] = ()
    seconds: float = 0.0
    problem: str = ""
    absent: str = ""

    @property
    def ran(self) -> bool:
        """Whether something was compared, or broke off."""
        return not self.absent

    @property
    def passed(self) -> bool:
        """Whether the check ran and every comparison came out as the verdict says; never without a comparison."""
        return self.ran and not self.problem and bool(self.findings) and all(f.passed for f in self.findings)

    @property
    def headline(self) -> Finding | None:
        """The comparison to show in a table: the first counterexample, else the first one with a prediction."""
        telling = [f for f in self.findings if f.published is not None]
        telling += [f for f in self.findings if f.predicted is not None]
        return next(iter(telling + list(self.findings)), None)

    def to_json(self) -> dict[str, Any]:
        """This outcome as strict JSON; ``measured`` and ``predicted`` are those of the headline."""
        first = self.headline.to_json() if self.headline else {}
        return {
            **{field.name: getattr(self.claim, field.name) for field in fields(Entry)},
            "verdict": str(self.claim.verdict),
            "published": list(self.claim.published),
            "backs": list(self.claim.backs),
            "ran": self.ran,
            "passed": self.passed if self.ran else None,
            "predicted": first.get("predicted"),
            "measured": first.get("measured"),
            "seed": self.seed,
            "seconds": round(self.seconds, 4),
            "problem": self.problem,
            "absent": self.absent,
            "findings": [finding.to_json() for finding in self.findings],
            "curves": [curve.to_json() for curve in self.curves],
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

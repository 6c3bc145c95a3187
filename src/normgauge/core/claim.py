"""What a check of a published claim found: plain numbers and words, ready for a table, a page or a file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from normgauge.core.spelled import spell


class Verdict(StrEnum):
    """What is left of a claim once it is checked."""

    HOLDS = "holds"
    LOOSE = "loose"
    WRONG = "wrong"
    GAUGE = "gauge-dependent"
    UNSUPPORTED = "unsupported"


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
class Outcome:
    """A claim and what its check found.

    Attributes:
        id: such as ``T.L1``; the letter is the source.
        source: the paper and the number there.
        statement: what is claimed, in our words.
        verdict: what is left of it.
        correction: what is true instead, or the exact form, or why nothing more can be said.
        backs: rules and functions of this package that rest on it, by name.
        checked: how: ``here``, the name of an experiment (training), or ``reading`` (nothing to compute).
        seed: the instances were drawn from it.
        findings: the comparisons.
        curves: small plots.
        seconds: CPU time of the check.
        problem: what went wrong where the check could not run.
    """

    id: str
    source: str
    statement: str
    verdict: Verdict
    correction: str
    backs: tuple[str, ...] = ()
    checked: str = "here"
    seed: int = 0
    findings: tuple[Finding, ...] = ()
    curves: tuple[Curve, ...] = ()
    seconds: float = 0.0
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check ran and every comparison came out as the verdict says."""
        return not self.problem and all(finding.passed for finding in self.findings)

    @property
    def headline(self) -> Finding | None:
        """The comparison to show in a table: the first counterexample, else the first one with a prediction."""
        telling = [f for f in self.findings if f.published is not None]
        telling += [f for f in self.findings if f.predicted is not None]
        return next(iter(telling + list(self.findings)), None)

    def to_json(self) -> dict[str, Any]:
        """This outcome as strict JSON; ``published``, ``predicted`` and ``measured`` are those of the headline."""
        first = self.headline.to_json() if self.headline else {}
        return {
            "id": self.id,
            "source": self.source,
            "statement": self.statement,
            "verdict": str(self.verdict),
            "correction": self.correction,
            "backs": list(self.backs),
            "checked": self.checked,
            "passed": self.passed,
            "published": first.get("published"),
            "predicted": first.get("predicted"),
            "measured": first.get("measured"),
            "seed": self.seed,
            "seconds": round(self.seconds, 4),
            "problem": self.problem,
            "findings": [finding.to_json() for finding in self.findings],
            "curves": [curve.to_json() for curve in self.curves],
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """Outcomes of one run of the checks."""

    outcomes: tuple[Outcome, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(outcome.passed for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The whole run as strict JSON."""
        return {"schema": 1, "passed": self.passed, "claims": [outcome.to_json() for outcome in self.outcomes]}

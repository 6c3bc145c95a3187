"""Remarks and advice as plain data: what counts as a problem, how it is printed and stored."""

from __future__ import annotations

from normgauge.advice import Advice, Remark, Severity


def test_severity_decides_what_is_a_problem():
    remarks = tuple(Remark("k", "a", "s.", severity=severity) for severity in Severity)
    advice = Advice("Net", "eval", remarks, ("a note",))
    assert [r.severity for r in advice.problems] == [Severity.ACT, Severity.LOOK]
    assert str(advice).splitlines() == [
        "Net, eval mode: 2 problems",
        "  1. [k] s.",
        "  2. [k] s.",
        "facts",
        "  - s.",
        "note: a note",
    ]

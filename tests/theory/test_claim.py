"""What each comparison accepts, what becomes of an error, and how an outcome is told."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest
import torch

from normgauge.core.claim import OWN, Comparison, ComparisonKind, Curve, Entry, Ledger, Outcome, Verdict
from normgauge.core.errors import ReadingError
from normgauge.theory.claim import (
    Claim,
    below,
    equals,
    exceeds,
    moves,
    refutes,
    shown,
)

ENTRY = Entry("T.x", "Than 2025", "Lemma 1", "a reading", Verdict.HOLDS, "a = b")


@pytest.mark.parametrize(
    ("finding", "passed"),
    [
        (equals("x", 1.0, predicted=1.0), True),
        (equals("x", 1.0, predicted=1.0 + 1e-10), True),
        (equals("x", 1.0, predicted=1.0 + 1e-8), False),
        (equals("x", 1.0, predicted=1.01, rel=0.02), True),
        (equals("x", 1e-12, predicted=0.0), False),
        (equals("x", 1e-12, predicted=0.0, scale=1.0), True),
        (equals("x", math.inf, predicted=math.inf), True),
        (equals("x", math.nan, predicted=1.0), False),
        (below("x", 1.0, predicted=2.0), True),
        (below("x", 1.0, predicted=1.0 - 1e-10), True),
        (below("x", 1.0, predicted=1.0 - 1e-8), False),
        (below("x", 1.0, predicted=math.inf), True),
        (below("x", math.inf, predicted=1.0), False),
        (below("x", math.nan, predicted=math.inf), False),
        (exceeds("x", math.inf, published=1.0), True),
        (refutes("x", 1.0, published=math.inf), True),
        (below("x", 0.0, predicted=0.0), True),
        (refutes("x", 1.0, published=1.1), True),
        (refutes("x", 1.0, published=1.0), False),
        (refutes("x", 1.0, published=1.0005), False),
        (refutes("x", 0.0, published=0.0), False),
        (refutes("x", 1.0, published=math.nan), True),
        (exceeds("x", 1.1, published=1.0), True),
        (exceeds("x", 1.0, published=1.1), False),
        (exceeds("x", 1.0, published=1.0), False),
        (moves("x", 1.0, 1.2), True),
        (moves("x", 1.0, 1.05), False),
        (moves("x", 0.0, 0.0), False),
        (shown("x", True), True),
        (shown("x", False), False),
    ],
    ids=lambda value: (
        f"{value.kind}-{value.measured}-{value.predicted}-{value.published}"
        if isinstance(value, Comparison)
        else str(value)
    ),
)
def test_what_a_comparison_accepts(finding, passed):
    assert finding.passed is passed


def test_errors_have_a_sense():
    assert equals("x", 1.0, predicted=0.5).error == 0.5
    assert below("x", 1.0, predicted=2.0).error == -0.5
    assert below("x", 2.0, predicted=1.0).error == 0.5
    assert refutes("x", 1.0, published=2.0).error == exceeds("x", 2.0, published=1.0).error == 0.5
    assert moves("x", 4.0, 1.0).error == 0.75


def test_what_is_published_is_kept_beside_what_is_predicted():
    found = equals("x", torch.tensor(2.0), predicted=torch.tensor(2.0), published=torch.tensor(3.0))
    assert (found.measured, found.predicted, found.published) == (2.0, 2.0, 3.0)
    assert all(type(v) is float for v in (found.measured, found.predicted, found.published))


def check_two(draw):
    yield equals("one", 1.0, predicted=1.0)
    yield Curve("c", "x", "y", (1.0,), (("a", (math.inf,)),))
    yield below("two", draw.integer(0, 10), predicted=10)


def test_an_outcome_has_findings_and_curves_apart():
    outcome = Claim(ENTRY, check_two).run(3)
    assert outcome.ran and outcome.passed and outcome.seed == 3 and outcome.seconds >= 0 and outcome.claim is ENTRY
    assert [f.what for f in outcome.findings] == ["one", "two"] and outcome.curves[0].title == "c"


def test_entries_of_one_root_are_one_error_and_our_own_results_are_none():
    wrong = replace(ENTRY, verdict=Verdict.WRONG, error="norm")
    again, second = replace(wrong, id="S.y"), replace(wrong, id="A.z", error="sign")
    entries = (wrong, ENTRY, second, again, replace(wrong, id="X.own", source=OWN, error="own"))
    ledger = Ledger(tuple(map(Outcome, entries)))
    assert ledger.errors == {"norm": [wrong, again], "sign": [second]} and ledger.to_json()["independent_errors"] == 2


def test_an_error_in_a_check_is_an_outcome_that_failed():
    def check(draw):
        yield equals("one", 1.0, predicted=1.0)
        raise ZeroDivisionError("division by zero")

    outcome = Claim(ENTRY, check).run()
    assert not outcome.passed and outcome.problem == "ZeroDivisionError: division by zero"
    assert Ledger((outcome,)).failed == (outcome,) and Ledger().failed == ()


def test_a_check_that_finds_otherwise_fails():
    def check(draw):
        yield equals("one", 1.0, predicted=1.0)
        yield equals("two", 1.0, predicted=2.0)

    outcome = Claim(ENTRY, check).run()
    assert not outcome.passed and outcome.problem == ""


def test_the_headline_is_the_printed_number_then_a_prediction_then_anything():
    def headline(*findings: Comparison) -> Comparison | None:
        return Outcome(ENTRY, findings=findings).headline

    plain, predicted = moves("m", 1.0, 2.0), equals("e", 1.0, predicted=1.0)
    printed, fact = refutes("r", 1.0, published=2.0), shown("s", True)
    assert headline() is None
    assert headline(predicted, printed) is printed
    assert headline(fact, predicted) is fact  # a fact predicts 1
    assert headline(plain, predicted) is plain  # it was printed, before it moved


def test_json_is_strict_and_has_the_contract():
    outcome = Claim(replace(ENTRY, published=("10^50",), backs=("a.rule",)), check_two).run(3)
    odd = Outcome(ENTRY, findings=(refutes("r", math.inf, published=math.nan), shown("s", False)))
    told = json.loads(json.dumps(Ledger((outcome, odd, Outcome(ENTRY, absent="read"))).to_json(), allow_nan=False))
    assert told["schema"] == 2 and told["passed"] is False
    first, second, third = told["claims"]
    assert {field.name for field in fields(Entry)} <= set(first)
    assert (first["verdict"], first["published"], first["backs"]) == ("holds", ["10^50"], ["a.rule"])
    assert first["curves"][0]["lines"] == [{"name": "a", "y": ["inf"]}] and first["predicted"] == 1.0
    assert first["findings"][0]["kind"] == "equal"
    assert (second["measured"], second["findings"][0]["published"], second["passed"]) == ("inf", None, False)
    assert (third["ran"], third["passed"], third["absent"]) == (False, None, "read")
    with pytest.raises(ReadingError, match="NaN"):
        Curve("c", "x", "y", (1.0,), (("a", (math.nan,)),)).to_json()


def test_kinds_are_those_of_the_words():
    made = [
        equals("", 1, predicted=1),
        below("", 1, predicted=1),
        refutes("", 1, published=2),
        moves("", 1, 2),
        shown("", True),
    ]
    assert [f.kind for f in made] == [
        ComparisonKind.EQUAL,
        ComparisonKind.BELOW,
        ComparisonKind.REFUTES,
        ComparisonKind.MOVES,
        ComparisonKind.SHOWN,
    ]

"""Outcomes of checks: what counts as passed, and which errors are one."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from normgauge.core.claim import OWN, Curve, Ledger, Verdict
from tests.made_claims import AGAIN, ALL, BROKEN, CURVE, FAILED, HOLDS, MINE, READ, WRONG, other


def test_a_check_that_compared_nothing_or_broke_off_or_did_not_run_has_not_passed():
    assert HOLDS.passed and not any(o.passed for o in (FAILED, BROKEN, READ, replace(HOLDS, findings=())))
    assert Ledger((HOLDS, FAILED, BROKEN, READ)).failed == (FAILED, BROKEN)  # what was not run has not failed either


def test_the_headline_is_the_first_counterexample_else_the_first_prediction():
    refuted, confirmed = WRONG.findings[0], WRONG.findings[1]
    assert refuted.published is not None and confirmed.published is None
    assert replace(WRONG, findings=(confirmed, refuted)).headline is refuted
    bare = replace(confirmed, predicted=None)
    assert replace(WRONG, findings=(bare, confirmed)).headline is confirmed
    assert replace(WRONG, findings=(bare,)).headline is bare and READ.headline is None


def test_entries_of_one_root_are_one_error_and_our_own_are_none():
    assert [entry.id for entry in ALL.errors[WRONG.claim.error]] == [WRONG.claim.id, AGAIN.claim.id]
    own = other(MINE, verdict=Verdict.WRONG, source=OWN)
    assert Ledger((own,)).errors == {}


def test_json_spells_what_is_no_number():
    ledger = Ledger(tuple(replace(outcome, curves=()) for outcome in ALL.outcomes))
    told = json.loads(json.dumps(ledger.to_json(), allow_nan=False))
    assert told["passed"] is True and told["independent_errors"] == 1 and len(told["claims"]) == len(ALL.outcomes)
    row = next(row for row in told["claims"] if row["id"] == WRONG.claim.id)
    assert (row["measured"], row["predicted"]) == (WRONG.headline.measured, WRONG.headline.predicted)
    assert next(row for row in told["claims"] if row["id"] == READ.claim.id)["passed"] is None
    broken = replace(HOLDS.findings[0], measured=math.nan, error=math.inf).to_json()
    assert broken["measured"] is None and broken["error"] == "inf"
    assert Curve.from_json(json.loads(json.dumps(CURVE.to_json()))) == CURVE

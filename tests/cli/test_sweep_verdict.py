"""The exit code of `sweep`: what counts as failed, and the limit of --fail-above."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.cli.sweep_verdict import failure_code, limit_code
from normgauge.render.sweep import NOT_GAUGED, TrialOutcome
from tests.lab.sweep.made import outcome

DONE, FAILED = outcome(0), outcome(1, "failed")
LOST = replace(outcome(2, test_accuracy=0.1), notes=(f"{NOT_GAUGED}weight a holds NaN",))
NOTED = replace(outcome(3), notes=("point: b: no rule",))


@pytest.mark.parametrize(
    ("outcomes", "codes"),
    [
        ([DONE, NOTED], (0, 0)),
        ([DONE, FAILED], (0, 1)),
        ([DONE, LOST], (0, 1)),
        ([LOST], (0, 1)),
        ([FAILED], (1, 1)),
        ([], (0, 0)),
    ],
)
def test_what_counts_as_failed(outcomes, codes):
    assert tuple(failure_code(outcomes, strict) for strict in (False, True)) == codes


def bounded(seed: int, ball: float | None, point: float = 0.5) -> TrialOutcome:
    return outcome(seed, **{"point.log10_upper": point}, **({} if ball is None else {"ball:0.1.log10_upper": ball}))


@pytest.mark.parametrize(
    ("bounds", "code", "said"),
    [
        (
            [1.0, 2.0],
            0,
            "limit passed: 0 of 2 trials above 10^2; the largest upper bound, scope ball:0.1, is 10^2, of id1",
        ),
        (
            [2.5, 1.0],
            3,
            "limit FAILED: 1 of 2 trials above 10^2; the largest upper bound, scope ball:0.1, is 10^2.5, of id0",
        ),
        ([math.inf, 1.0], 3, "is infinite, of id0 (seed 0)"),
        ([-math.inf], 0, "is 10^-inf, of id0"),
        ([1.0, None], 1, "no limit is held: 1 of 2 trials has no upper bound in scope ball:0.1: id1"),
        ([None, 2.5], 3, "limit FAILED: 1 of 2"),
        ([None], 1, "no limit is held: 1 of 1 trial has"),
    ],
)
def test_a_limit(capsys, bounds, code, said):
    """The widest scope counts; a trial without a bound is above no limit and below none."""
    outcomes = [bounded(seed, bound, point=9.0) for seed, bound in enumerate(bounds)]
    assert limit_code(outcomes, ["ball:0.1", "point"], 2.0) == code
    err = capsys.readouterr().err
    assert err.startswith("normgauge: ") and err.count("\n") == 1 and said in err

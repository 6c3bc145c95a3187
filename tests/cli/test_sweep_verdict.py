"""The exit code of `sweep`: what counts as failed, and the limit of --fail-above."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.cli.sweep_verdict import judge
from normgauge.core.bound import Evidence, Known
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
    verdicts = [judge(outcomes, ["point"], strict, None) for strict in (False, True)]
    assert tuple(verdict.code for verdict in verdicts) == codes
    assert [len(verdict.told) for verdict in verdicts] == list(codes)


def test_why_it_is_red_stands_on_one_line():
    (told,) = judge([DONE, FAILED, LOST, outcome(3, "failed")], ["point"], True, None).told
    assert told == "--fail-on-failed: of 4 trials 2 failed: id1, id3; 1 could not be gauged: id2"


def bounded(seed: int, ball: float | None, point: float = 0.5) -> TrialOutcome:
    found = outcome(seed, **{"point.log10_upper": point}, **({} if ball is None else {"ball:0.1.log10_upper": ball}))
    return replace(found, known=dict.fromkeys(("point", "ball:0.1"), Known(Evidence.PROVED)))


@pytest.mark.parametrize(
    ("bounds", "code", "said"),
    [
        (
            [1.0, 2.0],
            0,
            "limit passed: 0 of 2 trials above 10^2; the largest upper bound, scope ball:0.1, is 10^2 (proved), of id1",
        ),
        (
            [2.5, 1.0],
            3,
            "limit FAILED: 1 of 2 trials above 10^2; the largest upper bound, scope ball:0.1, is 10^2.5 (proved)",
        ),
        ([math.inf, 1.0], 3, "is infinite (proved), of id0 (seed 0)"),
        ([-math.inf], 0, "is 0 (proved), of id0"),
        ([1.99996, 1.0], 0, "is 10^2 (proved), of id0"),
        ([1.23451, 1.0], 0, "is 10^1.2346 (proved), of id0"),
        ([1.0, None], 1, "no limit is held: 1 of 2 trials has no upper bound in scope ball:0.1: id1"),
        ([None, 2.5], 3, "limit FAILED: 1 of 2"),
        ([None], 1, "no limit is held: 1 of 1 trial has"),
    ],
)
def test_a_limit(bounds, code, said):
    """The widest scope counts; a trial without a bound is above no limit and below none."""
    outcomes = [bounded(seed, bound, point=9.0) for seed, bound in enumerate(bounds)]
    verdict = judge(outcomes, ["ball:0.1", "point"], False, 2.0)
    (told,) = verdict.told
    assert verdict.code == code and said in told


@pytest.mark.parametrize(
    ("bounds", "strict", "limit", "code"),
    [
        ([1.0, 1.0], False, None, 0),
        ([1.0, 1.0], True, None, 1),
        ([1.0, 1.0], False, 2.0, 1),
        ([1.0, 2.5], False, 2.0, 3),
        ([2.5, 1.0], True, 2.0, 3),
    ],
)
def test_results_of_earlier_code_pass_no_limit(bounds, strict, limit, code):
    """One line says so and what to do; a limit that is exceeded comes first."""
    first, second = (bounded(seed, bound) for seed, bound in enumerate(bounds))
    verdict = judge([replace(first, outdated=True), second], ["ball:0.1"], strict, limit)
    assert verdict.code == code and not any("passed" in line for line in verdict.told)
    told = [line for line in verdict.told if "id0; run again with --fresh" in line]
    assert len(told) == (code > 0) and all("1 of 2 trials used earlier code" in line for line in told)
    assert any(line.startswith("limit FAILED") for line in verdict.told) == (code == 3)


def test_what_makes_a_bound_infinite_is_named():
    notes = ("point: c: no rule", "ball:0.1: b: a division by something that may be 0", "ball:0.1: d: no rule")
    (told,) = judge([replace(bounded(0, math.inf), notes=notes)], ["ball:0.1"], False, 2.0).told
    assert "is infinite (proved; b: a division by something that may be 0 and 1 more), of id0 (seed 0)" in told


ON_PATH = Known(Evidence.PROVED, path_dependent=True)


@pytest.mark.parametrize(
    ("bound", "known", "allowed", "code", "said"),
    [
        (1.0, ON_PATH, (), 1, "no limit is held: in id0 the path through the model depends on the data, and off the"),
        (
            1.0,
            ON_PATH,
            ("path",),
            0,
            "limit passed: 0 of 2 trials above 10^2; the largest upper bound, scope ball:0.1, ",
        ),
        (2.5, ON_PATH, (), 3, "is 10^2.5 (proved on the same path), of id0"),
        (1.0, Known(Evidence.COMPUTED), (), 0, "is 10^1 (computed), of id0"),
        (
            1.0,
            None,
            ("path",),
            1,
            "how the upper bound is known, scope ball:0.1, was not stored of id0; run --fresh-all",
        ),
    ],
)
def test_a_bound_on_one_path_alone_passes_no_limit_unallowed(bound, known, allowed, code, said):
    first = replace(bounded(0, bound), known={} if known is None else {"ball:0.1": known})
    verdict = judge([first, bounded(1, 0.5)], ["ball:0.1"], False, 2.0, allowed)
    assert verdict.code == code and said in verdict.told[0]
    assert ("--allow path" in verdict.told[0]) == (code == 1 and known is not None)

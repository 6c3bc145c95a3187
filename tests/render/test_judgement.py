"""What is made of a reading: tight or not, beside what is usual, and what to do next."""

from __future__ import annotations

import math

import pytest

from normgauge.core import reference
from normgauge.core.bound import Evidence, Scope
from normgauge.core.reading import Finding
from normgauge.core.spelled import LN10
from normgauge.render.judgement import STEPS, beside_references, judgement, next_steps, tightness, usual_slopes
from normgauge.render.panel import reading_notebook
from tests.made import reading


@pytest.mark.parametrize(
    ("decades", "words"),
    [(0.0, "this is how steep"), (0.5, "within a factor of ten"), (4.0, "rules out little"), (math.inf, "no upper")],
)
def test_the_gap_says_what_may_be_concluded(decades: float, words: str) -> None:
    found = reading(log_lower=0.0, log_upper=decades * LN10, log_folded=decades * LN10)
    assert words in tightness(found)


def test_the_slope_stands_between_two_references() -> None:
    known = usual_slopes("point")
    assert len(known) == len(reference.names()) and list(known) == sorted(known)
    low, high = known[2], known[3]
    between = beside_references(reading(log_lower=(low[0] + high[0]) / 2 * LN10))
    assert low[1] in between and high[1] in between and "what is usual" in between
    assert "less steep than all" in beside_references(reading(log_lower=-20.0))
    assert "steeper than all" in beside_references(reading(log_lower=200.0))


def test_nothing_is_compared_that_cannot_be() -> None:
    assert beside_references(reading(scope=Scope.parse("ball:0.7"))) == ""
    assert beside_references(reading(log_lower=-math.inf)) == ""


def test_the_most_pressing_step_comes_first() -> None:
    steps = next_steps(reading(log_refuted=1.0, log_upper=math.inf, evidence=Evidence.REFUTED))
    assert steps[0].startswith("Report this network") and len(steps) == STEPS
    unknown = reading(log_upper=math.inf, evidence=Evidence.UNKNOWN, unknown=(Finding("block.3", "torch.foo"),))
    assert "Give block.3 a rule" in next_steps(unknown)[0]
    assert "goes into gate" in next_steps(reading(log_upper=math.inf, unbounded=(Finding("gate", "why"),)))[0]
    loose = reading(scope=Scope.parse("global"), log_upper=20 * LN10, log_folded=20 * LN10)
    assert "at the samples" in next_steps(loose)[0]


def test_the_owner_of_the_gap_is_named() -> None:
    assert "head, which owns most of the gap" in next_steps(reading())[0]


def test_a_notebook_shows_judgement_and_words() -> None:
    shown = reading_notebook(reading())
    assert "within a factor of ten" in shown and judgement(reading()).split(".")[0] in shown
    assert all(f"{word}: " in shown for word in ("found", "decade", "folded", "gauge", "balanced"))

"""What to do about a reading, the most pressing first."""

from __future__ import annotations

import math

from normgauge.core.bound import Evidence, Scope
from normgauge.core.reading import Finding
from normgauge.core.spelled import LN10
from normgauge.render.judgement import STEPS, next_steps
from normgauge.render.panel import reading_notebook
from normgauge.render.verdict import judgement
from tests.made import reading


def test_the_most_pressing_step_comes_first() -> None:
    steps = next_steps(reading(log_refuted=1.0, log_upper=math.inf, evidence=Evidence.REFUTED))
    assert steps[0].startswith("Report this network") and len(steps) == STEPS
    unknown = reading(log_upper=math.inf, evidence=Evidence.UNKNOWN, unknown=(Finding("block.3", "torch.foo"),))
    assert "Give block.3 a rule" in next_steps(unknown)[0]
    assert "goes into gate" in next_steps(reading(log_upper=math.inf, unbounded=(Finding("gate", "why"),)))[0]
    loose = reading(scope=Scope.parse("global"), log_upper=20 * LN10, log_folded=20 * LN10)
    assert "at the samples" in next_steps(loose)[0]


def test_the_owner_of_the_gap_is_named() -> None:
    (first, *_) = next_steps(reading())
    assert "head, the most slack along the steepest direction found: " in first and "normgauge explain" in first


def test_a_notebook_shows_judgement_and_words() -> None:
    shown = reading_notebook(reading())
    assert judgement(reading()).split(".")[0] in shown
    assert all(f"{word}: " in shown for word in ("found", "decade", "folded", "gauge", "balanced"))

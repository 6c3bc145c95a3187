from __future__ import annotations

import math

from normgauge.certificates.bounds.parts import Parts, exp_up


def test_a_sum_is_rounded_up_and_underscores_become_spaces() -> None:
    found = Parts.added(training_error=0.1, slack=0.2)
    assert found.value > math.fsum([0.1, 0.2])
    assert found.terms == (("training error", 0.1), ("slack", 0.2))


def test_levels_become_steps_that_add_up_to_the_last() -> None:
    found = Parts.reached(error=0.25, slack=0.75, price_of_choice=0.5)
    assert found.value == 0.5
    assert found.terms == (("error", 0.25), ("slack", 0.5), ("price of choice", -0.25))


def test_exponentials_are_above_the_truth_and_infinite_beyond_floats() -> None:
    for log in (-3.0, 0.0, 1.5, 700.0):
        assert math.exp(log) < exp_up(log) <= math.exp(log) * (1 + 2e-12)
    assert exp_up(709.8) == exp_up(math.inf) == math.inf
    assert exp_up(-math.inf) == 0.0

"""Weights of an odd size, gradients that explode or vanish, capacity that grows."""

from __future__ import annotations

import pytest

from normgauge.monitor.signs.weights import Capacity
from tests.monitor.readings import HEAD, MAP, PLACES, named, reading

CAUSES = {
    "large weights": ("weight_scale", "b.1.map", {"changed": {MAP: {"frobenius": 2400.0}}}, 1),
    "small weights": ("weight_scale", "head", {"changed": {HEAD: {"frobenius": 1e-4}}}, 1),
    "growing alone": ("weight_scale", "b.1.map", {"changed": {MAP: {"frobenius": 14.0}}}, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    named(*CAUSES[case])


def test_capacity_that_grows_over_thousands_of_steps_is_training():
    sign = Capacity(PLACES)
    for k in range(60):
        assert not list(sign.look(reading(1 + 300 * k, totals={"log10_folded": 0.3 * k})))

"""Statistics of the tables; the doctests have the simple cases."""

from __future__ import annotations

import math
import random

import pytest

from experiments.generalization import fits
from experiments.generalization.ranking_stats import tau_b


def test_kendall_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(0)
    for _ in range(20):
        a, b = ([draw.randrange(6) for _ in range(15)] for _ in range(2))
        assert tau_b(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)


def test_infinite_values_can_be_ranked() -> None:
    assert tau_b([-math.inf, 1.0, math.inf], [1.0, 2.0, 3.0]) == 1.0


def test_the_error_of_an_exponent_is_that_of_a_regression() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(1)
    curve = [(m, m**-0.4 * math.exp(0.1 * draw.gauss(0, 1))) for m in (100, 200, 400, 800, 1600)]
    law = fits.power_law(curve)
    other = stats.linregress([math.log(m) for m, _ in curve], [math.log(y) for _, y in curve])
    assert law.b == pytest.approx(-other.slope)
    assert law.error == pytest.approx(other.stderr)


def test_too_few_points_have_no_law() -> None:
    assert math.isnan(fits.power_law([(10, 0.1), (20, 0.0)]).b)
    assert math.isnan(fits.power_law([(10, 0.2), (20, 0.1)]).error)


def test_errors_out_of_range_are_left_out_and_bumps_smoothed() -> None:
    plain = [(100.0, 0.9), (200.0, 0.3), (400.0, 0.31), (800.0, 0.01)]
    other = [(100.0, 0.4), (200.0, 0.5), (400.0, 0.2)]
    found = fits.fewer(plain, other)
    assert [m for m, _ in found] == [200.0, 400.0]  # 400 has its running minimum, 0.3
    share = math.log(0.4 / 0.3) / math.log(2)
    assert found[0][1] == pytest.approx(200 / (200 * 2**share))


def test_bounds_are_rounded_up() -> None:
    assert fits.up(0.0100001) == "1.01"
    assert fits.up(0.01) == "1.00"

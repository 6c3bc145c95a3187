from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.margin import log_rademacher, log_rademacher_2015, rademacher_bound, round_up


def test_the_grid_shares_all_of_delta() -> None:
    shares = [math.exp(-round_up(j * math.log(2) / 8)[1]) for j in range(-4000, 4001)]
    assert 0.999 < math.fsum(shares) < 1.0


@pytest.mark.parametrize("value", [1e-9, 0.3, 1.0, 1.0000001, 2.0, 7.7, 1e40])
def test_rounding_is_upwards_by_at_most_a_step(value: float) -> None:
    point, price = round_up(math.log(value))
    assert 0.0 <= point - math.log(value) <= math.log(2) / 8 * (1 + 1e-9)
    assert price >= math.log(3)


def test_a_hair_above_a_point_is_rounded_up() -> None:
    point = 40 * math.log(2) / 8
    assert round_up(point)[0] == point
    assert round_up(math.nextafter(point, math.inf))[0] == 41 * math.log(2) / 8


def test_rounding_at_the_ends() -> None:
    assert round_up(math.inf) == (math.inf, math.inf)
    assert round_up(-math.inf)[0] < -1e5
    assert round_up(0.0) == (0.0, math.log(3.0))


def test_frobenius_by_hand() -> None:
    log_data = math.log(9.0 * math.sqrt(50_000))
    unit = log_rademacher(log_data, 4, 50_000)
    assert math.exp(unit) == pytest.approx(9 * (math.sqrt(8 * math.log(2)) + 1) / math.sqrt(50_000))
    assert math.exp(log_rademacher_2015(log_data, 4, 50_000)) == pytest.approx(8 * 9 / math.sqrt(50_000))
    found = rademacher_bound(0.02, unit, math.log(2.0**10), 10, 50_000, 0.05)
    assert dict(found.terms)["capacity"] == pytest.approx(40 * 2**10 * math.exp(unit), rel=1e-9)
    price = math.log(1.5 * 81 * 82)
    assert dict(found.terms)["deviation"] == pytest.approx(3 * math.sqrt((math.log(40) + price) / 100_000))
    assert found.value == pytest.approx(0.02 + dict(found.terms)["capacity"] + dict(found.terms)["deviation"])


def test_norms_beyond_floats_are_infinite_not_wrong() -> None:
    assert rademacher_bound(0.0, 0.0, 2000.0, 10, 1000, 0.05).value == math.inf

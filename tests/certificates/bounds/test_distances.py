import math

import pytest

from normgauge.certificates.bounds.distances import from_holdout, paired_distance


def test_by_hand() -> None:
    log = math.log(2 / 0.1)
    root = math.sqrt(2 * log) + math.sqrt(2 * log + 30.0)
    assert paired_distance(50.0, 30.0, 7, 1000, 0.1) == pytest.approx((57 + root * math.sqrt(2 * log) + log) / 1000)
    assert paired_distance(5000.0, 5000.0, 0, 1000, 0.1) == 1.0


def test_slack_against_mcdiarmid() -> None:
    """m = 50,000: pairs and Bernstein cost about a tenth of 3R√(ln(1/δ)/2m)."""
    m, distance = 50_000, 0.05
    slack = paired_distance(m * distance, 2 * m * distance**2, 0, m, 0.025) - distance
    plain = 3 * 2.0 * math.sqrt(math.log(1 / 0.025) / (2 * m))  # McDiarmid, R = 2
    assert plain == pytest.approx(0.036, abs=1e-3)
    assert slack < plain / 10


def test_from_holdout_by_hand() -> None:
    value = from_holdout([0.5, 0.3, 0.2], [0.1, 0.2, 0.0], [10, 5, 0], [1.0, 2.0, 3.0], 0.05)
    spread = 0.5**2 / 10 + (0.3 * 2) ** 2 / 5
    assert value == pytest.approx(0.05 + 0.06 + math.sqrt(math.log(20) / 2 * spread) + 0.6)

"""An enclosure keeps its ends apart by the house slack, at every scale."""

from __future__ import annotations

import math

import pytest

from normgauge.core.interval import INF, LogInterval
from normgauge.instrument.spectral.enclosure import Enclosure, enclose, shortfall


@pytest.mark.parametrize("exponent", [-2000, 0, 3000])
def test_powers_of_two_shift_both_ends(exponent: int) -> None:
    found = enclose(2.0, 3.0, exponent)
    assert found.lo < math.log(2) + exponent * math.log(2) and math.log(3) + exponent * math.log(2) < found.hi
    assert found.width == pytest.approx(math.log(1.5), abs=1e-8)


def test_ends_that_say_nothing() -> None:
    for lower, upper in ((1.0, math.nan), (math.nan, 1.0), (1.0, math.inf)):
        assert enclose(lower, upper) == LogInterval.nothing_known()
    assert enclose(0.0, 2.0).lo == -INF == enclose(-1.0, 2.0).lo
    assert enclose(0.0, 0.0) == LogInterval(-INF, -INF)
    crossed = enclose(1.1, 1.0)  # rounding pushed the lower end over the upper one
    assert crossed.lo == crossed.hi >= 0.0


def test_the_reason_names_width_and_method() -> None:
    log = LogInterval(0.0, 0.5)
    assert shortfall(log, 0.5, "it") == "" and Enclosure(log, "it").width == 0.5
    assert shortfall(log, 0.1, "it") == "width 5.0e-01 instead of 1.0e-01: it stops here"

"""Multipliers in a file: what goes in comes out, bit for bit, and nothing else does."""

from __future__ import annotations

import math

import pytest

from normgauge.core.errors import ReadingError
from normgauge.core.multipliers import MOST_KEPT, Multipliers, are_kept, kept_multipliers


def test_they_come_back_bit_for_bit():
    given = {0: [0.1, -3.7, math.pi, 5e-324, -0.0], 2: [1e300]}
    found = [Multipliers.from_json(item.to_json()) for item in kept_multipliers(given)]
    assert are_kept(found)
    assert {item.sample: [x.hex() for x in item.logs()] for item in found} == {
        sample: [x.hex() for x in logs] for sample, logs in given.items()
    }


def test_too_many_are_counted_and_not_kept():
    few, many = kept_multipliers({0: [0.0] * MOST_KEPT}), kept_multipliers({0: [0.0] * MOST_KEPT, 1: [1.0]})
    assert are_kept(few) and len(few[0].packed) < 45_000
    assert not are_kept(many) and [item.count for item in many] == [MOST_KEPT, 1]
    assert not are_kept(())
    with pytest.raises(ReadingError, match="4096 numbers are not there"):
        many[0].logs()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad):
    (item,) = kept_multipliers({3: [0.0, bad]})
    with pytest.raises(ReadingError, match="sample 3: expected finite numbers"):
        item.logs()

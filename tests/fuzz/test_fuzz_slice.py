from __future__ import annotations

import pytest

from tests.fuzz.nets import make_case
from tests.fuzz.run import fuzz_one, uncovered

CHUNK = 10


@pytest.mark.parametrize("first", range(0, 150, CHUNK))
def test_no_slope_exceeds_a_proved_bound(first):
    for seed in range(first, first + CHUNK):
        outcome = fuzz_one(seed, effort=2 if seed % 2 else 0, balance=seed % 5 == 0)
        assert not outcome.broken, "\n".join([*outcome.broken, make_case(seed).describe()])
        assert not uncovered(outcome), f"{uncovered(outcome)}\n{make_case(seed).describe()}"


def test_a_seed_is_a_network():
    assert str(make_case(7).model) == str(make_case(7).model)
    assert make_case(7).start.equal(make_case(7).start)

from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.roots import samples_needed, upper_end


def test_the_root_is_met_from_above_within_one_float() -> None:
    found = upper_end(0.0, 2.0, lambda x: x * x < 2)
    assert found * found >= 2 > math.nextafter(found, 0.0) ** 2
    assert upper_end(0.0, 1.0, lambda x: x < 0.3, width=0.1) - 0.3 == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("parts", [100, 1000])
def test_the_size_is_the_first_that_suffices_up_to_one_part(parts: int) -> None:
    truth = 1 + math.floor((1 / 0.0123) ** 2)  # 1/√m < 0.0123
    found = samples_needed(lambda m: 1 / math.sqrt(m), 10, 0.0123, 10**6, parts)
    assert found is not None and truth <= found <= truth + max(1, found // parts)


def test_what_no_size_reaches_is_given_up_after_the_largest() -> None:
    tried: list[int] = []
    assert samples_needed(lambda m: tried.append(m) or 1.0, 3, 1.0, 1000) is None  # type: ignore[func-returns-value]
    assert tried == [3 * 2**k for k in range(10)]

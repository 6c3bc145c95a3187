from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.bartlett2017 import log_sum, spectral_margin_bound


def test_spectral_by_hand() -> None:
    logs = [math.log(4.0), math.log(8.0)]
    found = spectral_margin_bound(0.02, math.log(2.0), logs, math.log(100.0), 64, 1000, 0.05)
    whole = 2 * (4 ** (2 / 3) + 8 ** (2 / 3)) ** 1.5
    capacity = 72 * math.sqrt(2) * 100 * math.sqrt(math.log(2 * 64**2)) * math.log(1000) / 1000 * whole
    assert dict(found.terms)["capacity"] == pytest.approx(capacity, rel=1e-9)
    assert dict(found.terms)["cover"] == pytest.approx(8 / 1000**1.5)
    price = math.log(1.5 * 9 * 10) + math.log(1.5 * 17 * 18) + math.log(1.5 * 25 * 26)
    assert dict(found.terms)["deviation"] == pytest.approx(3 * math.sqrt((math.log(40) + price) / 2000))


def test_norms_beyond_floats_are_infinite_not_wrong() -> None:
    assert spectral_margin_bound(0.0, 2000.0, [1.0, 1.0], 1.0, 10, 1000, 0.05).value == math.inf
    assert log_sum([0.0, math.inf]) == math.inf


def test_it_grows_the_way_it_must() -> None:
    def bound(
        size: float = 1.0, ratio: float = 1.0, data: float = 1.0, width: int = 64, m: int = 1000, delta: float = 0.05
    ) -> float:
        return spectral_margin_bound(0.0, size, [ratio, 1.0], data, width, m, delta).value

    base = bound()
    assert bound(size=1.2) > base and bound(ratio=1.2) > base and bound(data=1.2) > base
    assert bound(width=65) > base and bound(m=1100) < base and bound(delta=0.06) < base

from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.lyu2022 import best_noise, smoothed_bound


def test_smoothed_is_smallest_at_its_best_noise() -> None:
    best = best_noise(30.0, 10_000)
    value = smoothed_bound(0.2, 30.0, best, 10_000).value
    assert value == pytest.approx(0.2 + 15 * best**2 + math.log(10_000) / (100 * best))
    assert smoothed_bound(0.2, 30.0, best * 1.05, 10_000).value > value
    assert smoothed_bound(0.2, 30.0, best / 1.05, 10_000).value > value

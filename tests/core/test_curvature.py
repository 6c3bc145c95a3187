from __future__ import annotations

import math

import pytest

from normgauge.core.curvature import Density

# eigenvalues −1, 1, 2, 6 of a matrix of four rows, two of them known one by one
DENSITY = Density(4, (-1.0, 1.0), (0.25, 0.25), (2.0, 6.0), 3, 2, 6, 1, 3.0)


def test_shares_add_up_and_counts_are_those_of_the_matrix():
    assert math.fsum(share for _, share in DENSITY.points()) == 1.0
    assert [DENSITY.count(above) for above in (-2.0, 0.0, 1.5, 6.0)] == [4.0, 3.0, 2.0, 0.0]


def test_negative_mass_is_the_share_of_absolute_values():
    assert DENSITY.negative_mass == pytest.approx(1 / 10)
    assert Density(1, (0.0,), (1.0,), (), 1, 1, 1, 0, 1.0).negative_mass == 0.0


def test_the_curve_integrates_to_one_and_peaks_at_the_eigenvalues():
    places = [-4 + 14 * i / 2000 for i in range(2001)]
    heights = DENSITY.curve(places, 0.2)
    assert sum(heights) * 14 / 2000 == pytest.approx(1.0, abs=1e-6)
    peaks = [x for a, x, b, y in zip(heights, places[1:], heights[2:], heights[1:], strict=False) if a < y > b]
    assert peaks == pytest.approx([-1.0, 1.0, 2.0, 6.0], abs=0.02)

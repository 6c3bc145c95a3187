from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.kl import kl_inverse, small_kl


def test_the_inverse_inverts() -> None:
    for q in (0.0, 0.01, 0.3, 0.9):
        for c in (1e-6, 0.01, 1.0):
            p = kl_inverse(q, c)
            assert small_kl(q, p) == pytest.approx(c, rel=1e-5)
            assert q <= p
    assert kl_inverse(0.99, 1.0) == 1.0  # 1 − p is below the spacing of floats: rounded up
    assert kl_inverse(1.0, 0.1) == kl_inverse(0.4, math.inf) == kl_inverse(1.7, 0.1) == 1.0
    assert small_kl(1.0, 0.0) == small_kl(0.5, 0.0) == math.inf
    assert small_kl(1.0, 0.25) == pytest.approx(math.log(4))

from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.neyshabur2018 import log_divergence, spectral_pac_bayes_bound


def test_pac_bayes_spectral_by_hand() -> None:
    depth, width, m = 3, 50, 10_000
    logs = [math.log(2.0), math.log(3.0), math.log(1.0)]
    divergence = 42**2 * math.e**2 * 9 * 50 * math.log(600) * (8.0 * 4.0) ** 2 * 14 / 2
    assert log_divergence(math.log(32.0), logs, width) == pytest.approx(math.log(divergence), rel=1e-12)
    found = spectral_pac_bayes_bound(0.02, math.log(4.0), math.log(8.0), logs, width, m, 0.05)
    rest = math.log(depth * m ** (1 / 6)) + math.log(6 * m / 0.025) + math.log(1.5 * 25 * 26)
    assert found.value == pytest.approx(0.02 + 4 * math.sqrt((divergence + rest) / (m - 1)) + math.log(40) / m)
    assert dict(found.terms)["slack"] == pytest.approx(4 * math.sqrt(rest / (m - 1)))
    assert dict(found.terms)["inputs beyond all seen"] == pytest.approx(math.log(2 / 0.05) / m)


def test_noise_constant_is_what_the_proof_needs() -> None:
    assert 4 * math.sqrt(2) * math.e**2 <= 42


def test_norms_beyond_floats_are_infinite_not_wrong() -> None:
    assert spectral_pac_bayes_bound(0.0, 2000.0, 0.0, [1.0, 1.0], 10, 1000, 0.05).value == math.inf


def test_it_grows_the_way_it_must() -> None:
    def bound(
        size: float = 1.0, ratio: float = 1.0, norm: float = 1.0, width: int = 64, m: int = 1000, delta: float = 0.05
    ) -> float:
        return spectral_pac_bayes_bound(0.0, size, norm, [ratio, 1.0], width, m, delta).value

    base = bound()
    assert bound(size=1.2) > base and bound(ratio=1.2) > base and bound(norm=1.2) > base
    assert bound(width=65) > base and bound(m=1100) < base and bound(delta=0.06) < base

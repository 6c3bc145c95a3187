from __future__ import annotations

import math
from fractions import Fraction

import pytest

from normgauge.certificates.bounds.campi2023 import pick_to_learn_bound
from normgauge.certificates.bounds.littlestone1986 import sample_compression_bound as compression


def psi(kept: int, n: int, delta: float, eps: float) -> float:
    total = sum(
        Fraction(math.comb(m, kept), math.comb(n, kept)) * (1 - Fraction(eps)) ** (m - n) for m in range(kept, n)
    )
    return float(Fraction(delta) / n * total)


@pytest.mark.parametrize(("kept", "n"), [(0, 20), (3, 40), (30, 60), (59, 60)])
def test_solves_the_equation(kept: int, n: int) -> None:
    found = pick_to_learn_bound(kept, n, 0.05)
    assert psi(kept, n, 0.05, found.value) == pytest.approx(1.0, rel=1e-6)
    assert psi(kept, n, 0.05, found.value) >= 1.0
    assert found.terms[0] == ("share picked", kept / n)


def test_monotone_and_limits() -> None:
    assert pick_to_learn_bound(60, 60, 0.05).value == 1.0
    assert (
        pick_to_learn_bound(4, 60, 0.05).value
        > pick_to_learn_bound(3, 60, 0.05).value
        > pick_to_learn_bound(3, 61, 0.05).value
        > pick_to_learn_bound(3, 61, 0.06).value
    )


def test_large_samples_are_sharper_than_a_union() -> None:
    found = pick_to_learn_bound(200, 20_000, 0.01).value
    assert 0.01 < found < 0.02
    assert found < compression(0, 20_000, 200, 0.01).value

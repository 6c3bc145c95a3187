from __future__ import annotations

import math

import pytest

from normgauge.generalization.bounds.maurer2004 import kl_bound
from normgauge.generalization.bounds.zhou2019 import bound, catoni


def test_by_hand() -> None:
    step = 100_000
    weight = 1.0001**step
    q = 0.1 + 1.0001 / weight * (200 + math.log(20) + 2 * math.log(step + 2))
    a = weight / 20_000
    assert catoni(0.1, 200.0, 20_000, 0.05, step) == pytest.approx(
        (1 - math.exp(-a * q)) / (1 - math.exp(-a)), rel=1e-9
    )


def test_the_search_is_near_the_kl_form() -> None:
    # without its union Catoni's form at the best λ is the kl form up to ln(2√n); with it, a little above
    found, tight = bound(0.1, 200.0, 20_000, 0.05).value, kl_bound(0.1, 200.0, 20_000, 0.05).value
    assert tight < found < 1.05 * tight


def test_the_union_is_paid() -> None:
    step = 100_000
    without = catoni(0.1, 200.0 - 2 * math.log(step + 2), 20_000, 0.05, step)
    assert catoni(0.1, 200.0, 20_000, 0.05, step) > without + 1e-4


def test_monotone_and_capped() -> None:
    base = bound(0.1, 200.0, 20_000, 0.05).value
    assert bound(0.11, 200.0, 20_000, 0.05).value > base
    assert bound(0.1, 210.0, 20_000, 0.05).value > base
    assert bound(0.1, 200.0, 22_000, 0.05).value < base
    assert bound(0.1, 200.0, 20_000, 0.1).value < base
    assert bound(0.1, 1e9, 20_000, 0.05).value == 1.0

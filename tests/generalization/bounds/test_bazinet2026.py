from __future__ import annotations

import math

import pytest
from scipy.stats import beta

from normgauge.generalization.bounds.bazinet2026 import disagreement, lipschitz
from normgauge.generalization.bounds.kl import small_kl


def test_two_parts_add_up() -> None:
    found = disagreement(0.0061, 42, 10_000, 0.025)
    assert found.term("disagreement") == pytest.approx(beta.isf(0.025, 43, 10_000 - 42), rel=1e-8)
    assert found.value == pytest.approx(0.0061 + found.term("disagreement"), rel=1e-12)
    assert disagreement(0.0061, 43, 10_000, 0.025).value > found.value
    assert disagreement(0.0061, 42, 10_000, 0.03).value < found.value


def test_lipschitz_loss() -> None:
    found = lipschitz(0.05, 0.08, 2000, 0.025, 0.5)
    inside = found.term("distance") / (2 * 0.5)
    assert small_kl(0.04, inside) == pytest.approx(math.log(40) / 2000, rel=1e-9)
    assert lipschitz(0.05, 0.08, 2000, 0.025, 1.0).term("distance") == pytest.approx(2 * found.term("distance"))
    assert lipschitz(0.05, 2.0, 2000, 0.025, 1.0).term("distance") == 2.0

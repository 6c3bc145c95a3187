from __future__ import annotations

import pytest
from scipy.stats import beta

from normgauge.certificates.bounds.bazinet2026 import disagreement


def test_two_parts_add_up() -> None:
    found = disagreement(0.0061, 42, 10_000, 0.025)
    assert dict(found.terms)["disagreement"] == pytest.approx(beta.isf(0.025, 43, 10_000 - 42), rel=1e-8)
    assert found.value == pytest.approx(0.0061 + dict(found.terms)["disagreement"], rel=1e-12)
    assert disagreement(0.0061, 43, 10_000, 0.025).value > found.value
    assert disagreement(0.0061, 42, 10_000, 0.03).value < found.value

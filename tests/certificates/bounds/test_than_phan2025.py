from __future__ import annotations

import pytest

from normgauge.certificates.bounds.than_phan2025 import GAMMA, computable_bound


def test_equal_cells_by_hand() -> None:
    # û = 5.16e-7 + 0.53325·0.005 + 1.0665·√(2e-6·ln 40000) = 0.0075767; √(û·3.218876) = 0.156168; g(.005) = 0.119228
    found = computable_bound(0.1, [0.005] * 200, 200, 1_000_000)
    assert pytest.approx(0.04) == GAMMA**-100
    assert dict(found.terms)["uncertainty"] == pytest.approx(0.15617, abs=2e-4)
    assert dict(found.terms)["cells"] == pytest.approx(0.11923, abs=1e-4)
    assert found.value == pytest.approx(0.1 + dict(found.terms)["uncertainty"] + dict(found.terms)["cells"])


def test_it_sees_the_model_through_the_loss_alone() -> None:
    first, second = computable_bound(0.0, [0.5, 0.5], 2, 1000), computable_bound(0.25, [0.5, 0.5], 2, 1000)
    assert second.value - first.value == pytest.approx(0.25)
    assert computable_bound(0.0, [0.5, 0.5], 2, 1000, limit=2.0).value == pytest.approx(2 * first.value)
    assert dict(computable_bound(0.0, [1.0, 0.0], 2, 1000).terms)["cells"] < dict(first.terms)["cells"]

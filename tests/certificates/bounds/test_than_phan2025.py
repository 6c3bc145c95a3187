from __future__ import annotations

import pytest
import torch

from normgauge.certificates.bounds.than_phan2025 import GAMMA, computable_bound


def shares(n: int, cells: int, seed: int) -> list[float]:
    """Of uniform points in the square over random Voronoi cells."""
    torch.manual_seed(seed)
    centres = torch.rand(cells, 2)
    counts = torch.zeros(cells)
    for _ in range(n // 50_000):
        nearest = torch.cdist(torch.rand(50_000, 2), centres).argmin(1)
        counts += torch.bincount(nearest, minlength=cells)
    return (counts / n).tolist()


def test_a_table_of_the_samples_gets_285() -> None:
    # GENERALIZATION 6.7: n = 1e6, K = 200, δ = .01, α = 100, γ = .04^(−1/100)
    found = computable_bound(0.0, shares(1_000_000, 200, 0), 200, 1_000_000)
    assert found.value == pytest.approx(0.285, abs=0.0015)
    assert pytest.approx(0.04) == GAMMA**-100


def test_equal_cells_by_hand() -> None:
    # û = 5.16e-7 + 0.53325·0.005 + 1.0665·√(2e-6·ln 40000) = 0.0075767; √(û·3.218876) = 0.156168; g(.005) = 0.119228
    found = computable_bound(0.1, [0.005] * 200, 200, 1_000_000)
    assert dict(found.terms)["uncertainty"] == pytest.approx(0.15617, abs=2e-4)
    assert dict(found.terms)["cells"] == pytest.approx(0.11923, abs=1e-4)
    assert found.value == pytest.approx(0.1 + dict(found.terms)["uncertainty"] + dict(found.terms)["cells"])


def test_it_sees_the_model_through_the_loss_alone() -> None:
    first, second = computable_bound(0.0, [0.5, 0.5], 2, 1000), computable_bound(0.25, [0.5, 0.5], 2, 1000)
    assert second.value - first.value == pytest.approx(0.25)
    assert computable_bound(0.0, [0.5, 0.5], 2, 1000, limit=2.0).value == pytest.approx(2 * first.value)
    assert dict(computable_bound(0.0, [1.0, 0.0], 2, 1000).terms)["cells"] < dict(first.terms)["cells"]

"""Matrices: the enclosure holds the true norm, at every scale and for every degenerate shape."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.core.interval import INF
from normgauge.instrument.spectral import dense
from normgauge.instrument.spectral.dense import dense_norm, proved_below, runs_to_its_end


def _gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (7, 5), (40, 40), (3, 300)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
def test_holds_the_svd_value(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix = _gaussian(*shape, dtype=dtype)
    truth = math.log(torch.linalg.svdvals(matrix.to(torch.complex128))[0])
    found = dense_norm(matrix)
    assert found.log.contains(truth)
    assert found.width <= 1e-6
    assert found.reason == ""


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-160, 1e160, 1e300])
def test_survives_extreme_scales(scale: float) -> None:
    matrix = torch.full((3, 4), scale, dtype=torch.float64)
    truth = math.log(scale) + math.log(12.0) / 2
    found = dense_norm(matrix)
    assert found.log.contains(truth)
    assert found.width <= 1e-6


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_never_bounds_what_is_not_finite(bad: float) -> None:
    matrix = torch.eye(3)
    matrix[1, 2] = bad
    found = dense_norm(matrix)
    assert (found.log.lo, found.log.hi) == (-INF, INF)
    assert "NaN" in found.reason


@pytest.mark.parametrize("matrix", [torch.zeros(3, 2), torch.zeros(0, 4), torch.zeros(2, 0)])
def test_zero_and_empty_have_norm_zero(matrix: torch.Tensor) -> None:
    assert dense_norm(matrix).log.hi == -INF


def test_batch_takes_the_largest() -> None:
    batch = torch.stack([torch.eye(4), 3 * torch.eye(4), 2 * torch.eye(4)])
    assert dense_norm(batch).log.contains(math.log(3.0))
    assert [round(math.exp(e.log.hi), 6) for e in map(dense_norm, batch)] == [1.0, 3.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_cholesky_route(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(dense, "EIGENVALUE_LIMIT", 10)
    matrix = _gaussian(90, 60, seed=3, dtype=dtype)
    truth = math.log(torch.linalg.svdvals(matrix)[0])
    found = dense_norm(matrix, width=1e-4)
    assert found.method == "cholesky"
    assert found.log.contains(truth)
    assert found.width <= 1e-4


def test_cholesky_proves_nothing_false() -> None:
    basis = torch.linalg.qr(_gaussian(50, 50, seed=4)).Q
    product = basis @ torch.diag(torch.linspace(0.0, 1.0, 50, dtype=torch.float64)) @ basis.T
    assert bool(proved_below(product, 1.0 + 1e-10))
    assert not bool(proved_below(product, 1.0 - 1e-12))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("order", [1, 95, 256, 300, 512, 700])
def test_cholesky_by_panels_runs_to_its_end_where_a_matrix_is_positive(order: int, dtype: torch.dtype) -> None:
    torch.manual_seed(order)
    rows = torch.randn(order, order, dtype=dtype) / order**0.5
    product = rows @ rows.mH
    top, one = torch.linalg.eigvalsh(product)[-1], torch.eye(order, dtype=dtype)
    for factor, ends in ((1.001, True), (0.999, False), (-1.0, False)):
        shifted = factor * top * one - product
        assert runs_to_its_end(shifted.tril()) is ends  # what is above the diagonal is not looked at
    shifted = 2 * top * one - product
    shifted[-1, order // 2] = math.nan
    assert not runs_to_its_end(shifted)


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    dense_norm(torch.eye(5))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("together", [1, 12, 1024])
def test_each_of_many_small_matrices_is_judged_by_itself(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "TOGETHER", together)
    generator = torch.Generator().manual_seed(together)
    parts = torch.randn(5, 7, 6, 4, generator=generator, dtype=torch.complex128)
    product = parts.mH @ parts
    tops = torch.linalg.eigvalsh(product)[..., -1]
    level = float(tops.median())
    found = proved_below(product, level * (1 + 1e-9))
    assert found.shape == (5, 7) and torch.equal(found, tops <= level)
    assert proved_below(product[:0], level).shape == (0, 7)

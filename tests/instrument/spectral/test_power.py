"""Lanczos: converges to the top pair, resumes, and stops where the space cannot grow."""

from __future__ import annotations

import torch

from normgauge.instrument.spectral.power import krylov, seeded_start, top_singular

MATRIX = torch.randn(30, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _normal(x: torch.Tensor) -> torch.Tensor:
    return MATRIX.T @ (MATRIX @ x)


def test_finds_the_top_pair() -> None:
    sigma, left, right = top_singular(
        lambda x: MATRIX @ x, lambda y: MATRIX.T @ y, seeded_start((20,), MATRIX), tolerance=1e-12
    )
    torch.testing.assert_close(torch.tensor(sigma).double(), torch.linalg.svdvals(MATRIX)[0])
    torch.testing.assert_close(MATRIX @ right, sigma * left)


def test_resumes_where_it_stopped() -> None:
    start = seeded_start((20,), MATRIX)
    short = krylov(_normal, start, 6, 0.0)
    long, resumed = krylov(_normal, start, 12, 0.0), krylov(_normal, start, 12, 0.0, short)
    torch.testing.assert_close(resumed.basis, long.basis)
    torch.testing.assert_close(resumed.images, long.images)


def test_an_invariant_space_is_returned_as_it_is() -> None:
    full = krylov(_normal, seeded_start((20,), MATRIX), 50, 0.0)
    assert len(full.basis) == 20
    assert krylov(_normal, full.basis[0], 50, 0.0, full) is full


def test_rows_stay_orthonormal() -> None:
    space = krylov(_normal, seeded_start((20,), MATRIX), 20, 0.0)
    torch.testing.assert_close(space.basis @ space.basis.T, torch.eye(len(space.basis)).double())


def test_zero_map() -> None:
    sigma, left, _ = top_singular(torch.zeros_like, torch.zeros_like, seeded_start((4,), MATRIX))
    assert sigma == 0.0
    assert not left.any()

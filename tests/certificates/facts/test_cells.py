import time

import pytest
import torch

from normgauge.certificates.facts.cells import assign_all, k_means, nearest_centres, one_cell, voronoi
from normgauge.certificates.facts.sample import DataSample, fingerprints
from normgauge.core.errors import InputError


def points(n: int, d: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_nearest_is_the_nearest() -> None:
    x, centres = points(3000) + 100.0, points(40, seed=1) + 100.0  # far from 0: the naive expansion cancels
    found, squares = nearest_centres(x, centres)
    apart = torch.cdist(x.double(), centres.double(), compute_mode="donot_use_mm_for_euclid_dist")
    chosen = apart.gather(1, found[:, None]).squeeze(1)
    torch.testing.assert_close(chosen, apart.amin(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(squares.double(), chosen**2, rtol=1e-4, atol=1e-4)


def test_k_means_finds_clear_clusters() -> None:
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    x = centres.repeat(100, 1) + 0.1 * points(300, 2)
    cells = k_means(x, 3).assign(x)
    for k in range(3):
        assert len(set(cells[k::3].tolist())) == 1
    assert len(set(cells.tolist())) == 3


def test_cells_of_every_kind() -> None:
    x = points(200, 4)
    assert one_cell().cells == 1
    assert one_cell().assign(x).tolist() == [0] * 200
    balls = voronoi(points(6, 4, seed=3), radius=1.5)
    assert balls.cells == 7
    cells = balls.assign(x)
    far = torch.cdist(x, balls.centres).amin(1) > 1.5
    assert torch.equal(cells == 6, far)
    assert torch.equal(assign_all(balls, DataSample(x, None)), cells)


def test_the_same_partition_every_time() -> None:
    x = points(500)
    assert torch.equal(k_means(x, 7, seed=2).centres, k_means(x, 7, seed=2).centres)
    same = k_means(torch.zeros(9, 2), 4)  # fewer distinct points than cells
    assert same.cells == 4 and same.assign(torch.zeros(3, 2)).tolist() == [0, 0, 0]


def test_a_partition_that_saw_the_sample_is_refused() -> None:
    train, others = points(50), points(30, seed=1)
    k_means(others, 4).check_unseen(fingerprints(train))
    with pytest.raises(InputError, match="made from 12 of the training samples"):
        k_means(torch.cat([others, train[:12]]), 4).check_unseen(frozenset(DataSample(train, None).marks))
    with pytest.raises(InputError, match="at least 40 points"):
        k_means(others, 40)


def test_fingerprints_know_values_not_layouts() -> None:
    x = points(10, 12)
    assert fingerprints(x) == fingerprints(x.double().reshape(10, 3, 4)) == fingerprints(x.T.contiguous().T)
    assert not fingerprints(x) & fingerprints(x + 1e-3)


@pytest.mark.slow
def test_many_points_and_cells() -> None:
    """A tenth of 50,000 x 10,000 x 784: the whole takes under a minute on two cores."""
    x, centres = torch.rand(5000, 784), torch.rand(10_000, 784)
    begun = time.process_time()
    cells = voronoi(centres).assign(x)
    assert len(cells) == 5000
    assert time.process_time() - begun < 60

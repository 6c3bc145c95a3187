"""Hill climbing of the slope: what a move keeps, where it may go, and that it climbs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.instrument.probe.chains import FIRST_SCALE, MOVES, Chains, direction, kind_of, move_chains, refine_chains
from normgauge.instrument.probe.domain import Domain
from normgauge.instrument.probe.jacobian import TopPair, top_pair
from normgauge.instrument.probe.linearize import SampleMap
from tests.instrument.probe.cases import build, dense_norms, gaussian


def pair(*sigma: float, mark: float = 0.0) -> TopPair:
    rows = torch.full((len(sigma), 2), mark, dtype=torch.float64)
    return TopPair(torch.tensor(sigma, dtype=torch.float64), rows, rows)


def test_only_steeper_points_are_taken() -> None:
    chains = Chains.begin(torch.zeros(3, 2, dtype=torch.float64), pair(1.0, 5.0, 2.0))
    taken = chains.offer(torch.ones(3, 2, dtype=torch.float64), pair(2.0, 4.0, math.nan, mark=1.0))
    assert taken.tolist() == [True, False, False]
    assert chains.pair.sigma.tolist() == [2.0, 5.0, 2.0] and chains.points[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert chains.pair.left[:, 0].tolist() == chains.pair.right[:, 0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("sigma", [(3.0, 1.0, 4.0, 2.0), (3.0, 1.0, 2.0), (1.0,)])
def test_the_less_steep_half_goes_on_from_the_steeper(sigma: tuple[float, ...]) -> None:
    chains = Chains.begin(torch.arange(2.0 * len(sigma), dtype=torch.float64).reshape(-1, 2), pair(*sigma))
    before = chains.points
    chains.concentrate()
    half = len(sigma) // 2
    ranked = sorted(sigma, reverse=True)
    assert sorted(chains.pair.sigma.tolist(), reverse=True) == sorted(
        ranked[: len(sigma) - half] + ranked[:half], reverse=True
    )
    for point, origin, slope in zip(chains.points, chains.origin.tolist(), chains.pair.sigma.tolist(), strict=True):
        assert torch.equal(point, before[origin]) and slope == sigma[origin]


def climbing(name: str, radius: float) -> tuple[SampleMap, Domain, Chains]:
    network, x = build(name)
    rows = SampleMap(network, x, len(x))
    start = rows.start
    return rows, Domain(start, radius), Chains.begin(start, top_pair(rows.at(start), gaussian(*start.shape)))


@pytest.mark.parametrize("kind", sorted(set(MOVES)))
def test_directions_have_length_one(kind: str) -> None:
    rows, _, chains = climbing("layer", 0.3)
    refine_chains(rows, chains)
    found = direction(chains, kind, gaussian(*rows.start.shape, seed=2))
    assert torch.allclose(found.norm(dim=1), torch.ones(6, dtype=torch.float64))
    if kind == "sparse":
        assert ((found == 0).sum(1) > 0).all()


@pytest.mark.parametrize("kind", sorted(set(MOVES)))
def test_a_move_never_goes_down_nor_out_and_tells_true_slopes(kind: str) -> None:
    rows, domain, chains = climbing("layer", 0.3)
    network, _ = build("layer")
    refine_chains(rows, chains)
    generator, before = torch.Generator().manual_seed(0), chains.pair.sigma
    for _ in range(6):
        move_chains(rows, domain, chains, kind, generator)
    assert (chains.pair.sigma >= before).all() and (chains.pair.sigma > before).any()
    assert ((chains.points - domain.center).norm(dim=1) <= 0.3).all()
    assert (chains.pair.sigma <= dense_norms(network, chains.points) * (1 + 1e-9)).all()
    assert not torch.equal(chains.scale[kind], torch.full_like(before, FIRST_SCALE[kind]))


def test_a_network_of_flat_pieces_has_no_gradient_to_follow() -> None:
    rows = SampleMap(lambda x: x.abs() * torch.arange(12), gaussian(6, 12), 6)  # kinks that get no bump
    chains = Chains.begin(rows.start, top_pair(rows.at(rows.start), gaussian(6, 12)))
    refine_chains(rows, chains)
    assert chains.slope is None
    assert "gradient" not in {kind_of(step, chains) for step in range(8)}
    assert torch.equal(direction(chains, "gradient", gaussian(6, 12)), direction(chains, "noise", gaussian(6, 12)))


def test_kinks_have_a_gradient_to_follow() -> None:
    rows, _, chains = climbing("plain relu in place first", 0.3)
    refine_chains(rows, chains)
    assert chains.slope is not None and (chains.slope.norm(dim=1) > 0).all()


def test_chains_spread_to_copies_that_begin_where_each_stands() -> None:
    chains = Chains.begin(gaussian(3, 2), pair(1.0, 5.0, 2.0))
    before = chains.points
    chains.keep(torch.tensor([1, 1, 2]))
    chains.spread(2)
    assert torch.equal(chains.points, before[[1, 1, 2, 1, 1, 2]]) and chains.origin.tolist() == [0, 1, 2, 3, 4, 5]
    assert chains.pair.sigma.tolist() == [5.0, 5.0, 2.0, 5.0, 5.0, 2.0]


def test_every_second_move_follows_the_gradient() -> None:
    rows, _, chains = climbing("layer", 0.3)
    kinds: list[str] = [kind_of(step, chains) for step in range(16)]
    assert kinds == [*MOVES, *MOVES] and kinds[::2] == ["gradient"] * 8
    assert isinstance(chains.slope, Tensor) and rows.samples == 6

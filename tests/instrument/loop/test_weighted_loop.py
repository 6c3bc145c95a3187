"""The weighted loop: the adjoint is one, and the bounds on sizes and errors hold."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.instrument.loop.bound import first_weights
from normgauge.instrument.loop.mid_network import MidNetwork
from normgauge.instrument.loop.weighted_loop import WeightedLoop, loop_sizes, normal_error, product_errors
from tests.instrument.loop.loop_nets import built, dense, random_net, read

SEEDS = [0, 1, 2, 4, 5, 7, 8, 10, 13, 16]


def network(seed: int) -> MidNetwork:
    net, x = random_net(seed)
    with read(net, x) as (session, parts, _):
        mid = built(session, parts)
    assert mid is not None
    return mid


def weights(mid: MidNetwork, seed: int) -> Tensor:
    theta = first_weights(mid)
    return theta + torch.randn(theta.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", SEEDS)
def test_pull_is_the_adjoint_of_push(seed: int) -> None:
    loop = WeightedLoop(mid := network(seed), weights(network(seed), 0))
    forth = loop.push(torch.eye(sum(mid.entered), dtype=torch.float64))
    back = loop.pull(torch.eye(sum(mid.read), dtype=torch.float64))
    assert torch.allclose(forth, back.T, rtol=1e-10, atol=1e-12 * float(forth.abs().max()))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("known", [False, True])
def test_the_sizes_bound_the_norm_with_and_without_a_bound_on_it(seed: int, known: bool) -> None:
    mid = network(seed)
    loop = WeightedLoop(mid, weights(mid, 1))
    norm = float(torch.linalg.matrix_norm(loop.push(torch.eye(sum(mid.entered), dtype=torch.float64)), 2))
    plain = loop_sizes(loop)
    assert norm <= plain.norm < math.inf
    sizes = loop_sizes(loop, norm) if known else plain
    columns = dense(mid) / loop.into
    place = 0
    for node, count in zip(mid.uncertain, mid.read, strict=False):
        way = float(torch.linalg.matrix_norm(columns[place : place + count], 2))
        assert way <= sizes.prefix[node.step.inputs[0].index] * (1 + 1e-9)
        place += count


@pytest.mark.parametrize("seed", SEEDS)
def test_products_in_lower_precision_stay_inside_their_error_bound(seed: int) -> None:
    net, x = random_net(seed)
    with read(net, x) as (session, parts, _):
        exact, rough = built(session, parts), built(session, parts, torch.float32)
    assert exact is not None and rough is not None
    theta = weights(exact, 2)
    loop, single = WeightedLoop(exact, theta), WeightedLoop(rough, theta)
    sizes = loop_sizes(loop)
    rows = torch.randn(8, sum(exact.entered), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rows = rows / rows.norm(dim=1, keepdim=True)
    scale = 2.0**29  # from the unit roundoff of float64 to that of float32; weights and inputs are rounded once more
    off = (single.push(rows.float()).double() - loop.push(rows)).norm(dim=1).max()
    assert 0.0 < float(off) <= scale * product_errors(loop, sizes)[0]
    off = (single.normal(rows.float()[None]).double() - loop.normal(rows[None])).norm(dim=2).max()
    assert 0.0 < float(off) <= scale * normal_error(loop, sizes)

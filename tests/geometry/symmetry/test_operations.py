"""What is known about operations, against the operations themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from normgauge.geometry.symmetry.graph import OperationGraph, record_graph
from normgauge.geometry.symmetry.operations import (
    guards_denominator,
    normalization,
    only_moves,
    replay_entries,
    source_of,
    subtracts_mean,
)

X = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))

MOVES = {
    "permuted": lambda x: x.permute(3, 0, 2, 1), "reshaped": lambda x: x.reshape(8, -1), "cut": lambda x: x[:, 1:3, 0],
    "split": lambda x: x.split([1, 3], 1)[1], "padded": lambda x: F.pad(x, (1, 2, 0, 1)),
    "rolled": lambda x: x.roll(2, 1), "flipped": lambda x: x.flip(0, 3),
    "joined": lambda x: torch.cat([x, x[:, :1]], 1),
    "shuffled": lambda x: F.pixel_shuffle(x, 2), "unfolded": lambda x: F.unfold(x, 2),
    "repeated": lambda x: x.repeat(2, 1, 1, 1), "replicated": lambda x: F.pad(x, (2, 1, 0, 1), mode="replicate"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "lower": lambda x: x.tril(), "windows": lambda x: x.unfold(3, 2, 1), "diagonal": lambda x: x.diagonal(0, 2, 3),
    "picked": lambda x: x[:, torch.tensor([3, 0])],
}  # fmt: skip


def recorded(run) -> OperationGraph:
    return record_graph(run, {"x": X}, [])


@pytest.mark.parametrize("name", MOVES)
def test_entries_that_are_replayed_are_those_that_moved(name):
    graph = recorded(lambda: MOVES[name](X))
    places = {graph.state["x"].index: torch.arange(X.numel()).reshape(X.shape)}
    for node in graph.nodes:
        assert only_moves(node), node.op
        places |= {o.index: p for o, p in zip(node.outputs, replay_entries(node, places), strict=True)}
    found, made = places[graph.output.index], MOVES[name](X)
    assert torch.equal(torch.where(found >= 0, X.reshape(-1)[found.clamp_min(0)], torch.zeros(())), made)
    assert bool((found < 0).any()) is (name in ("padded", "lower"))


@pytest.mark.parametrize(
    "run", [lambda: F.pad(X, (1, 0), value=1.0), lambda: X.view(torch.int32), lambda: X * 1, lambda: X.sort().values]
)
def test_what_does_more_than_move_is_not_replayed(run):
    assert not all(only_moves(node) for node in recorded(run).nodes)


NORMALS = {
    "layer": (lambda: nn.LayerNorm(5), (24, 5), -1),
    "group": (lambda: nn.GroupNorm(2, 4), (4, 30), 1),
    "batch": (lambda: nn.BatchNorm2d(4), (4, 30), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALS)
def test_groups_of_a_normalizer_have_mean_zero_and_variance_one(name):
    make, shape, axis = NORMALS[name]
    module = make()
    graph = recorded(lambda: module(X))
    (normal,) = [n for n in map(normalization, graph.nodes) if n is not None]
    assert (normal.kind, normal.axis, normal.centres, normal.frozen) == (name, axis, True, False)
    groups = normal.groups(module(X).detach())
    assert groups.shape == shape and torch.allclose(groups.square().mean(1), torch.ones(len(groups)), atol=1e-3)
    assert float(groups.mean(1).abs().max()) < 1e-6


def test_frozen_statistics_are_told():
    module = nn.BatchNorm2d(4).eval()
    state = {"mean": module.running_mean, "variance": module.running_var}
    graph = record_graph(lambda: module(X), state, [X])
    (normal,) = [n for n in map(normalization, graph.nodes) if n is not None]
    assert normal.frozen and [v.name for v in normal.statistics] == ["mean", "variance"]


GUARDS = {
    "root": (lambda: X / (X.square().sum() + 1e-5).sqrt(), True),
    "rsqrt": (lambda: X * (X.square().sum() + 1e-5).rsqrt(), True),
    "quotient": (lambda: X / (X.abs().sum() + 1e-8), True), "clamp": (lambda: X / X.norm().clamp_min(1e-12), True),
    "numerator": (lambda: (X + 1e-5) / X.norm(), False), "large": (lambda: X / (X.abs().sum() + 0.1), False),
    "read twice": (lambda: (lambda d: X / d + d)(X.abs().sum() + 1e-8), False),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDS)
def test_an_epsilon_is_one_only_in_denominators(name):
    run, wanted = GUARDS[name]
    graph = recorded(run)
    assert any(guards_denominator(graph, node) for node in graph.nodes) is wanted


def test_means_taken_off_and_sources_are_seen_through_copies():
    graph = recorded(lambda: (X - X.mean((0, 2), keepdim=True)).permute(1, 0, 2, 3).clone())
    (node,) = [n for n in graph.nodes if subtracts_mean(n)]
    assert source_of(graph.output) is node.outputs[0]
    other = recorded(lambda: X - X.mean())  # without keepdim=True the mean may stand anywhere
    assert not any(subtracts_mean(n) for n in other.nodes)

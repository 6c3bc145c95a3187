"""Where a number that is added to a bias ends: lost, lost with others, taken back, or seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normgauge.geometry.symmetry.shifts import ShiftWalk
from normgauge.geometry.symmetry.sites import Fate, sites_of
from tests.geometry.symmetry.right import draw, labelled

X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))


def walked(*rest: nn.Module, mode: str = "train") -> Fate:
    """The fate of the first layer's bias."""
    labels = labelled(draw(nn.Sequential(nn.Linear(6, 4), *rest)), X, mode)
    (site,) = [s for node in labels.graph.nodes for s in sites_of(labels, node) if s.name == "0.bias"]
    return ShiftWalk(labels, Fate()).run(site)


def test_under_batch_norm_every_entry_is_lost_by_itself_and_the_running_mean_follows():
    fate = walked(nn.BatchNorm1d(4), nn.Tanh())
    assert fate.seen == set() and not fate.back
    assert [set(row.tolist()) for row in torch.cat(fate.together)] == [{0}, {1}, {2}, {3}]
    assert [(f.name, f.factor) for f in fate.statistics] == [("1.running_mean", 1.0)]


@pytest.mark.parametrize("last", [nn.LayerNorm(4), nn.Softmax(-1), nn.LogSoftmax(-1)], ids=lambda m: type(m).__name__)
def test_under_a_mean_over_all_of_them_they_are_lost_together(last):
    fate = walked(last)
    assert fate.seen == set() and torch.cat(fate.together).tolist() == [[0, 1, 2, 3]]


def test_two_groups_are_lost_each_by_itself():
    fate = walked(nn.GroupNorm(2, 4), nn.Tanh())
    assert torch.cat(fate.together).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("last", [nn.Tanh(), nn.RMSNorm(4), nn.Identity()], ids=lambda m: type(m).__name__)
def test_what_reaches_the_output_is_seen(last):
    fate = walked(last)
    assert fate.seen == {0, 1, 2, 3}


def test_a_matrix_hands_it_to_the_bias_behind_it():
    fate = walked(nn.Linear(4, 3), nn.Tanh())
    (follow,) = fate.back
    assert fate.seen == set() and (follow.name, follow.factor, follow.matrix[0]) == ("1.bias", -1.0, "1.weight")
    assert torch.equal(follow.matrix[1], torch.arange(12).reshape(3, 4).T) and follow.places.tolist() == [0, 1, 2]


def test_a_frozen_mean_takes_it_back():
    fate = walked(nn.BatchNorm1d(4), nn.Tanh(), mode="eval")
    (follow,) = fate.back
    assert fate.seen == set() and (follow.name, follow.factor) == ("1.running_mean", 1.0)


class Scaled(nn.Module):
    """Times a number and over another, then taken from what there was."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones_like(x) - x * 3.0 / 2.0


def test_factors_on_the_way_are_kept():
    fate = walked(Scaled(), nn.Linear(4, 3), nn.Tanh())
    assert [(f.name, f.factor) for f in fate.back] == [("2.bias", 1.5)] and fate.seen == set()

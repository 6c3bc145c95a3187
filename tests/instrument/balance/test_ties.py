"""Weights that must move together: the union-find against hidden truth, and which channels a graph ties."""

from __future__ import annotations

import math
import random

import pytest
import torch

from normgauge.instrument.balance.ties import FLOOR, ChannelWeights, Ties, log_scale, tie_weights
from tests.instrument.balance.graphs import composed, weighting_of


@pytest.mark.parametrize("seed", range(4))
def test_gaps_are_those_of_the_hidden_weights_and_groups_those_of_a_walk(seed: int) -> None:
    """Every tie is true of hidden weights with θ₀ = 0, so each gap the union-find tells must be theirs."""
    dice = random.Random(seed)
    ties = Ties()
    ties.fresh(30)
    hidden = [0.0, *(dice.gauss(0, 1) for _ in range(30))]
    groups = [{i} for i in range(31)]
    for _ in range(20):
        i, j = dice.randrange(31), dice.randrange(31)
        ties.unite(i, j, hidden[i] - hidden[j])
        if groups[i] is not groups[j]:
            groups[i] |= groups[j]
            for k in groups[j]:
                groups[k] = groups[i]
    for i in range(31):
        root, gap = ties.find(i)
        assert root in groups[i] and gap == pytest.approx(hidden[i] - hidden[root])
        assert all((ties.find(j)[0] == root) == (j in groups[i]) for j in range(31))
        assert root == 0 or 0 not in groups[i]  # whatever is tied to the fixed entry is fixed


def test_a_second_tie_that_contradicts_the_first_is_ignored() -> None:
    ties = Ties()
    ties.fresh(2)
    ties.unite(1, 2, 0.5)
    ties.unite(1, 2, 3.0)
    (root, one), (other, two) = ties.find(1), ties.find(2)
    assert root == other and one - two == 0.5


def test_pinned_channels_have_weight_one() -> None:
    ties = Ties()
    channels = ChannelWeights(1, ties.fresh(3), torch.tensor([0.3, -2.0, 0.0], dtype=torch.float64))
    ties.pin(channels)
    found = [ties.find(i) for i in channels.index.tolist()]
    assert [root for root, _ in found] == [0, 0, 0]
    assert [gap + offset for (_, gap), offset in zip(found, channels.offset.tolist(), strict=True)] == [0.0] * 3
    ties.pin(None)  # a value without weights


def test_equal_weights_of_two_values_respect_their_offsets() -> None:
    ties = Ties()
    a = ChannelWeights(0, ties.fresh(2), torch.tensor([1.0, 2.0], dtype=torch.float64))
    b = ChannelWeights(0, ties.fresh(2), torch.tensor([-1.0, 5.0], dtype=torch.float64))
    ties.same(a, b)
    for i, j, before, after in zip(a.index.tolist(), b.index.tolist(), (1.0, 2.0), (-1.0, 5.0), strict=True):
        assert ties.find(i)[0] == ties.find(j)[0]
        assert ties.find(i)[1] + before == pytest.approx(ties.find(j)[1] + after)


def test_the_log_of_a_scale_has_a_floor() -> None:
    scale = torch.tensor([2.0, -3.0, 0.0], dtype=torch.float64)
    assert log_scale(scale).tolist() == pytest.approx([math.log(2), math.log(3), math.log(3) + FLOOR])
    assert log_scale(torch.zeros(2)).tolist() == [0.0, 0.0]


FREE = {"pair": 5, "residual": 8, "from the input": 4, "batch norm": 5, "layer norm": 5, "convolutions": 4}


@pytest.mark.parametrize("name", FREE)
def test_as_many_weights_are_free_as_channels_may_be_scaled(name: str) -> None:
    """By hand: a chain of hidden channels is free once, in front of LayerNorm not; a map run twice counts twice."""
    with composed(name, "global") as parts:
        assert weighting_of(parts).free == FREE[name]


def test_a_sum_ties_its_branches_and_the_gauges_are_named() -> None:
    with composed("residual", "global") as parts:
        ties = tie_weights(parts)
        (join,) = [step for step in parts.trace.steps if len(step.inputs) == 2]
        one, two, out = (weighting_of(parts).ties.values[v.index] for v in (*join.inputs, *join.outputs))
        assert out.axis == one.axis == two.axis == 1
        roots = [[ties.find(i)[0] for i in ties.values[v.index].index.tolist()] for v in (*join.inputs, *join.outputs)]
        assert roots[0] == roots[1] == roots[2] and len(set(roots[0])) == 4
        assert ties.named == {"per-channel weights across activations", "residual and parallel branches"}


def test_copies_carry_the_weights_of_what_they_copy() -> None:
    """cat of two flipped, sliced maps: channels 3, 2 of the first and 1, 2 of the second."""
    with composed("moved", "global") as parts:
        ties = tie_weights(parts)
        (join,) = [step for step in parts.trace.steps if step.kind == "cat"]
        maps = [step.outputs[0] for step in parts.trace.steps if step.kind == "Linear"][:2]
        first, second = (ties.values[value.index].index for value in maps)
        assert ties.values[join.outputs[0].index].index.tolist() == [*first[[3, 2]].tolist(), *second[[1, 2]].tolist()]


def test_the_scales_of_a_normalizer_become_offsets() -> None:
    with composed("batch norm", "global") as parts:
        ties = tie_weights(parts)
        before, after = (ties.values[parts.trace.steps[i].outputs[0].index] for i in (0, 1))
        norm = parts.trace.steps[1].module
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        assert torch.equal(before.index, after.index)
        assert torch.allclose(after.offset, before.offset - scale.detach().log())

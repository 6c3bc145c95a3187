"""Solutions of the scale equations as moves: the factors that stand on the weights, and what they leave alone."""

from __future__ import annotations

import torch
from torch import nn

from normgauge.geometry.symmetry.rescaling import both_ways
from tests.geometry.symmetry.right import assert_family, bn_net, draw, families, outputs

X = torch.randn(9, 8, generator=torch.Generator().manual_seed(0))
SCALE = "scale of what is normalized"


def test_a_pair_multiplies_rows_and_divides_columns():
    model = draw(nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)))
    found = assert_family(model, X, "scale handed", 5, {"0.weight", "0.bias", "2.weight"})
    assert found.kind == "pair" and found.rows is None
    _, state = families(model, X, "scale")
    t = torch.linspace(-1, 1, 5, dtype=torch.float64)
    after = found.move(state, t)
    ratio = {name: after[name] / state[name] for name in found.parameters}
    assert torch.allclose(ratio["0.weight"], ratio["0.bias"][:, None].expand(5, 8))
    assert torch.allclose(ratio["0.bias"].log().abs().sort().values, t.abs().sort().values)
    assert torch.allclose(ratio["2.weight"] * ratio["0.bias"], torch.ones(3, 5, dtype=torch.float64))


def test_rows_under_a_normalizer_are_groups_that_the_dynamics_can_use():
    (first, second), state = families(bn_net().train(), X, SCALE)
    assert (first.parameters, first.rows, second.rows) == (("0.weight", "0.bias"), (7, 0), (6, 0))
    after = first.move(state, torch.arange(7.0, dtype=torch.float64))
    assert torch.allclose(after["0.weight"], state["0.weight"] * torch.arange(7.0).exp()[:, None])
    transposed = nn.Sequential(nn.ConvTranspose1d(2, 5, 2), nn.BatchNorm1d(5), nn.Tanh())
    (found,), _ = families(transposed, torch.randn(3, 2, 4), SCALE)
    assert found.rows == (5, 1)


def test_running_statistics_follow_with_their_epsilon():
    """In eval mode the same function exactly, whatever ε is: (v + ε)t² − ε."""
    model = bn_net().train()
    model[1].eps = 0.3
    (first, *_), state = families(model, X, SCALE)
    after = {**state, **first.move(state, torch.linspace(0.1, 0.9, 7, dtype=torch.float64))}
    twin = bn_net().double()
    twin[1].eps = 0.3
    before, moved = (torch.func.functional_call(twin, s, (X.double(),)) for s in (state, after))
    assert torch.allclose(before, moved, rtol=1e-12)
    assert not torch.allclose(outputs(twin, {**after, "1.running_var": state["1.running_var"]}, X), moved, rtol=1e-3)


def test_a_pair_grows_on_one_side_and_shrinks_on_the_other():
    assert both_ways({"a": (0.0, 1.0), "b": (-1.0, 0.0)}) and both_ways({"a": (-1.0, 1.0)})
    assert not both_ways({"a": (0.0, 1.0), "b": (0.5, 0.5)}) and not both_ways({"a": (-2.0, -1.0)})

"""Any invertible matrix between two matrices: applied to networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.geometry.symmetry.mixing import MIXED
from tests.geometry.symmetry.right import assert_family, draw, families, outputs

X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("bias", [True, False])
def test_two_matrices_in_a_row(bias):
    model = draw(nn.Sequential(nn.Linear(6, 4, bias), nn.Linear(4, 3)))
    names = {"0.weight", "0.bias", "1.weight"} if bias else {"0.weight", "1.weight"}
    found = assert_family(model, X, MIXED, 4 * 3, names)
    weights, numbers = dict(model.double().named_parameters()), torch.zeros(12, dtype=torch.float64)
    numbers[0] = 2.0  # the first of the entries beside the diagonal: row 0, column 1
    after = found.move(weights, numbers)
    assert torch.allclose(after["0.weight"][0], weights["0.weight"][0] + 2 * weights["0.weight"][1])
    assert torch.allclose(after["1.weight"][:, 1], weights["1.weight"][:, 1] - 2 * weights["1.weight"][:, 0])


class Heads(nn.Module):
    """Attention with two heads of three."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (
            nn.Linear(6, 6),
            nn.Linear(6, 3 if shared else 6),
            nn.Linear(6, 6),
            nn.Linear(6, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (-1, 3)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        mixed = F.scaled_dot_product_attention(q, k.expand(q.shape), v)
        return self.o(mixed.transpose(1, 2).flatten(2))


def test_heads_of_queries_and_keys_and_of_values_and_outputs():
    model = draw(Heads())
    found, state = families(model, TOKENS, MIXED)
    assert sorted((g.count, g.parameters) for g in found) == [
        (2 * 6, ("q.weight", "q.bias", "k.weight", "k.bias")),
        (2 * 6, ("v.weight", "v.bias", "o.weight")),
    ]
    before = outputs(model, state, TOKENS)
    for family in found:
        numbers = torch.randn(family.count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        after = outputs(model, {**state, **family.move(state, numbers)}, TOKENS)
        assert torch.allclose(after, before, rtol=1e-8, atol=1e-10)


def test_heads_that_share_their_keys_are_mixed_alike():
    model = draw(Heads(shared=True))
    found, _ = families(model, TOKENS, MIXED)
    assert {(g.count, g.parameters[0]) for g in found} == {(6, "q.weight"), (12, "v.weight")}


@pytest.mark.parametrize("between", [nn.ReLU(), nn.BatchNorm1d(4), nn.Softmax(-1)], ids=lambda m: type(m).__name__)
def test_anything_but_a_matrix_between_them_forbids_it(between):
    assert families(draw(nn.Sequential(nn.Linear(6, 4), between, nn.Linear(4, 3))), X, MIXED)[0] == []

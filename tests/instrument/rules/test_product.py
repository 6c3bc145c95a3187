"""Products of matrices in einsum's letters: the letters, the blocks and the norms are torch's own."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.instrument.rules import product
from normgauge.instrument.rules.product import (
    EinsumProduct,
    Operand,
    build_product,
    centre_norms,
    matmul_letters,
    squeezed,
)
from tests.cases import weight

SHAPES = [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
          ((6, 5, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,))]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_letters_of_matmul_are_those_of_einsum(a, b):
    left, right, out = matmul_letters(torch.Size(a), torch.Size(b))
    found = torch.einsum(f"{left},{right}->{out}", weight(*a), weight(*b))
    torch.testing.assert_close(found, weight(*a) @ weight(*b))


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bij,jk->bik", "abij,bj->abi", "ij,kl->ikjl", "bi,bi->b"])
def test_blocks_multiply_to_the_product(equation):
    sizes = dict(zip("abijkl", (2, 3, 4, 5, 2, 3), strict=True))
    left, right = equation.split("->")[0].split(",")
    pair = [weight(*(sizes[c] for c in letters)) for letters in (left, right)]
    made = build_product((pair[0], pair[1]), equation, [])
    assert not made.trouble
    blocks = [side.blocks(made.batch, made.inner) for side in (made.first, made.second)]
    found = blocks[0].mT @ blocks[1]  # (batch…, rest of the first, rest of the second)
    rest = ["".join(c for c in o.letters if c not in made.batch + made.inner) for o in (made.first, made.second)]
    order = made.batch + rest[0] + rest[1]
    wanted = torch.einsum(equation, *pair).permute([made.out.index(c) for c in order])
    torch.testing.assert_close(found.reshape(wanted.shape), wanted)


def test_broadcast_axes_belong_to_the_other_side():
    one = squeezed(Operand(weight(1, 3), "bi"), {"b": 4, "i": 3})
    assert one.letters == "i" and one.data.shape == (3,)
    assert squeezed(Operand(weight(1, 3), "bi"), {"b": 1, "i": 3}).letters == "bi"


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        (("ii", "ij", "j"), "a diagonal"),
        (("ij", "jk", "iik"), "a diagonal"),
        (("ij", "k", "k"), "a sum over an axis of one operand only"),
        (("ij", "jk", "ik"), ""),
    ],
)
def test_other_sums_are_named(letters, said):
    first, second, out = letters
    operands = (Operand(weight(*[3] * len(one)), one) for one in (first, second))
    assert EinsumProduct(*operands, out).trouble == said


@pytest.mark.parametrize("limit", [2e10, 0.0], ids=["exact", "quick"])
def test_norms_of_centres_are_bounds(monkeypatch, limit):
    monkeypatch.setattr(product, "WORK_LIMIT", limit)
    blocks = torch.cat([weight(3, 4, 6), torch.eye(4, 6).double()[None]])
    truth, found = torch.linalg.matrix_norm(blocks, 2), centre_norms(blocks)
    assert bool((truth <= found).all()) and bool((found <= truth * (1 + 1e-8 if limit else math.sqrt(4))).all())

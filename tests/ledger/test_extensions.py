"""Our own claims."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.ledger import (
    CLAIMS,
    extensions,
    extensions_activations,
    extensions_attention,
    extensions_cells,
    extensions_conv,
    extensions_gauge,
    extensions_losses,
    extensions_shapes,
    extensions_transformer,
)
from normgauge.ledger.claim import Claim
from normgauge.ledger.extensions_activations import steepest
from normgauge.ledger.extensions_conv import circ, dense, squared
from normgauge.ledger.extensions_shapes import windows
from normgauge.ledger.extensions_transformer import rotations
from tests.ledger.checking import breaks, check, claims_of, fresh, named

MODULES = (
    extensions,
    extensions_gauge,
    extensions_conv,
    extensions_attention,
    extensions_transformer,
    extensions_activations,
    extensions_shapes,
    extensions_losses,
    extensions_cells,
)
MINE = claims_of(*MODULES)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", MINE, ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    check(claim, seed)


@pytest.mark.parametrize("claim", MINE, ids=named)
def test_instances_are_fresh(claim: Claim) -> None:
    assert fresh(claim)


def test_every_claim_is_checked_here() -> None:
    assert all(claim.check for claim in MINE)


def test_a_dense_matrix_has_the_images_of_the_basis_as_columns() -> None:
    matrix = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    assert torch.equal(dense(lambda x: x @ matrix.T, 3), matrix)


def test_small_tools_have_known_values() -> None:
    assert circ(torch.ones(1, 1, 3, 3, dtype=torch.float64), 6) == pytest.approx(9)
    assert squared(torch.eye(4, dtype=torch.float64), 2) == pytest.approx([2, math.sqrt(2), 2**0.25])
    assert steepest(torch.sin, -1.0, 1.0, 101) == pytest.approx(1)
    assert [windows(20, 3, 2, 1), windows(20, 3, 1, 1), windows(20, 2, 2, 1), windows(30, 3, 2, 2)] == [2, 3, 1, 3]
    turn = rotations(3, 4)
    assert torch.allclose(turn @ turn.mT, torch.eye(4, dtype=torch.float64).expand(3, 4, 4), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "module", "formula"),
    [
        ("X.multiply", extensions, "product_bound"),
        ("X.divide", extensions, "quotient_bound"),
        ("X.conv.circular", extensions_conv, "circ"),
        ("X.conv.stride", extensions_conv, "aliased"),
        ("X.conv.symbol", extensions_conv, "between"),
        ("X.conv.gram", extensions_conv, "squared"),
        ("X.attention.pointwise", extensions_attention, "pointwise"),
        ("X.attention.ball", extensions_attention, "ball"),
        ("X.attention.heads", extensions_transformer, "heads_bound"),
        ("X.attention.block", extensions_transformer, "steepest"),
        ("X.pool.max", extensions_shapes, "windows"),
        ("X.softmax", extensions_losses, "norm"),
        ("X.cells.rademacher", extensions_cells, "mean_walk"),
        ("X.cap", extensions_gauge, "norm"),
        ("X.range", extensions_activations, "steepest"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_formula_is_seen(name, module, formula, monkeypatch) -> None:
    assert breaks(CLAIMS[name], module, formula, monkeypatch)

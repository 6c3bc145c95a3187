"""Convolutions that take a few images at a time give what they give for all at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.trace import by_piece as pieces
from normgauge.instrument.trace.by_piece import ByPiece, by_piece


@pytest.mark.parametrize("images", [0, 1, 5, 64])
def test_the_sums_and_the_slopes_are_the_same(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WINDOWS", 2 * 3 * 9 * 64)
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2).double()
    x = torch.randn(images, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    whole = layer(x)
    with ByPiece():
        parts = layer(x)
    torch.testing.assert_close(parts, whole)
    slopes = [torch.autograd.grad(out.square().sum(), x)[0] for out in (whole, parts)]
    torch.testing.assert_close(*slopes)


def test_large_batches_are_cut_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WINDOWS", 1 << 12)
    seen: list[int] = []
    plain = torch.conv2d

    def counted(x: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        seen.append(len(x))
        return plain(x, *rest, **options)

    monkeypatch.setattr(pieces, "CONVOLUTIONS", frozenset((counted,)))
    x, weight = torch.randn(10, 2, 16, 16, dtype=torch.float64), torch.randn(3, 2, 3, 3, dtype=torch.float64)
    mode = ByPiece()
    out = mode.__torch_function__(counted, (), (x, weight), {"padding": 1})
    torch.testing.assert_close(out, F.conv2d(x, weight, padding=1))
    assert seen == [1] * 10
    mode.__torch_function__(counted, (), (x[0], weight), None)
    assert seen[10:] == [2]  # one image without an axis for others: its channels


def test_other_precisions_and_rows_are_left_alone() -> None:
    assert isinstance(by_piece(torch.zeros(9, 3, 4, 4, dtype=torch.float64)), ByPiece)
    assert not isinstance(by_piece(torch.zeros(9, 3, 4, 4)), ByPiece)
    assert not isinstance(by_piece(torch.zeros(9, 4, dtype=torch.float64)), ByPiece)

"""Convolutions of tangents in their windows give what torch gives for all of them."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.instrument.local.windows import TOGETHER, tiled_order, windowed_convolution

SETTINGS = list(product((1, 2, 3, 5), (1, 2, 3), (0, 1, 2), (1, 2), (1, 2)))


def spotted(seed: int) -> Tensor:
    """Tangents that vanish but in a rectangle, another one for every few of them, none at all for the last."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(3 * TOGETHER + 5, 4, 13, 15, dtype=torch.float64)
    for start in range(0, 3 * TOGETHER, TOGETHER):
        top, left, high, wide = (int(torch.randint(0, 12, (1,), generator=generator)) for _ in range(4))
        part = x[start : start + TOGETHER, :, top : top + high // 3 + 1, left : left + wide // 3 + 1]
        part.copy_(torch.randn(part.shape, generator=generator, dtype=torch.float64))
    return x


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "groups"), SETTINGS)
def test_windows_are_torch(kernel: int, stride: int, padding: int, dilation: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(kernel)
    weight = torch.randn(4, 4 // groups, kernel, kernel, generator=generator, dtype=torch.float64)
    x = spotted(kernel + 10 * stride + 100 * padding)
    wanted = F.conv2d(x, weight, None, stride, padding, dilation, groups)
    found = windowed_convolution(x, weight, (stride,) * 2, (padding,) * 2, (dilation,) * 2, groups)
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= 1e-13


@pytest.mark.parametrize("shape", [(1, 3, 32, 32), (1, 2, 7, 9), (5, 4), (2, 3, 8, 8)])
def test_tiles_are_an_order(shape: tuple[int, ...]) -> None:
    order = tiled_order(shape)
    assert torch.equal(order.sort().values, torch.arange(len(order)))


def test_a_tile_lies_together() -> None:
    first = tiled_order((1, 3, 32, 32))[:TOGETHER]
    assert int((first % 32).max()) < 4
    assert int((first // 32 % 32).max()) < 4

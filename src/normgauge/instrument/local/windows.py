"""Convolutions of tangents that vanish but in a window: only there are they computed.

One pixel moves its neighbours alone, and theirs some layers on; a few tangents of pixels that lie together stay in a
small window for many layers. What is left out are sums of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

TILE = 4  # pixels on a side, whose tangents lie together
TOGETHER = 48  # tangents looked at together: a tile's of three channels
WORTH = 0.75  # a window of more than this part of the whole saves nothing


def tiled_order(shape: Sequence[int]) -> Tensor:
    """An order of the entries of a value in which those of one tile of an image follow each other."""
    index = torch.arange(math.prod(shape))
    if len(shape) != 4 or shape[0] != 1:
        return index
    across, down = index % shape[3], index // shape[3] % shape[2]
    tiles = (down // TILE) * -(-shape[3] // TILE) + across // TILE
    return tiles.argsort(stable=True)


def windowed_convolution(
    tangents: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """``conv2d`` of tangents (count, channels, height, width), a few at a time, each few in their window."""
    spans = [dilation[axis] * (weight.shape[2 + axis] - 1) for axis in (0, 1)]
    sides = [(tangents.shape[2 + a] + 2 * padding[a] - spans[a] - 1) // stride[a] + 1 for a in (0, 1)]
    out = tangents.new_zeros(len(tangents), weight.shape[0], *sides)
    for start in range(0, len(tangents), TOGETHER):
        few, place = tangents[start : start + TOGETHER], out[start : start + TOGETHER]
        moving = few.abs().amax((0, 1))
        reached = [_reached(moving.amax(1 - a), stride[a], padding[a], spans[a], sides[a]) for a in (0, 1)]
        (top, bottom), (left, right) = reached
        if bottom <= top or right <= left:
            continue
        if (bottom - top) * (right - left) > WORTH * sides[0] * sides[1]:
            place.copy_(F.conv2d(few, weight, None, stride, padding, dilation, groups))
            continue
        ends = [_read(*reached[a], stride[a], padding[a], spans[a], few.shape[2 + a]) for a in (1, 0)]
        seen = F.pad(few, [*ends[0], *ends[1]])
        place[:, :, top:bottom, left:right] = F.conv2d(seen, weight, None, stride, 0, dilation, groups)
    return out


def _reached(moving: Tensor, stride: int, padding: int, span: int, side: int) -> tuple[int, int]:
    """The first place of the output that reads one that moves, and the one behind the last."""
    places = (moving != 0).nonzero()[:, 0]  # one that is not a number moves as well
    if not len(places):
        return 0, 0
    first, last = int(places[0]), int(places[-1])
    return max(0, -(-(first + padding - span) // stride)), min(side, (last + padding) // stride + 1)


def _read(start: int, end: int, stride: int, padding: int, span: int, side: int) -> tuple[int, int]:
    """What to add before and behind an axis, negative where it is cut, for the outputs from start up to end."""
    return padding - start * stride, (end - 1) * stride - padding + span + 1 - side

"""Convolutions of many images in float64, a few images at a time.

torch lays out every window of the batch before it multiplies: hundreds of megabytes of fresh memory for a hundred
images, which take longer to get than to multiply. Pieces that stay in the cache give the same sums.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

WINDOWS = 1 << 19  # entries of the windows laid out at once: 4 MB
CONVOLUTIONS = frozenset((torch.conv1d, torch.conv2d, torch.conv3d))


class ByPiece(TorchFunctionMode):
    """Inside, a convolution in main memory takes a few images at a time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in CONVOLUTIONS or len(args) < 2 or args[0].ndim != args[1].ndim:
            return func(*args, **(kwargs or {}))
        x, weight, *rest = args
        share = max(1, WINDOWS // max(1, x[0].numel() * math.prod(weight.shape[2:]))) if len(x) else 1
        if len(x) <= 2 * share:
            return func(*args, **(kwargs or {}))
        return torch.cat([func(part, weight, *rest, **(kwargs or {})) for part in x.split(share)])


def by_piece(x: Tensor) -> AbstractContextManager[Any]:
    """Inside, convolutions of a batch such as ``x`` go by pieces, where that is faster."""
    return (
        ByPiece()
        if x.dtype == torch.float64 and x.device.type == "cpu" and x.ndim > 2 and len(x) > 2
        else nullcontext()
    )

"""Samples as small pictures, for a reader who would rather see which input is sensitive than read its number."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.render.png import COLOUR, GREY, png_address

SIDE, LEAST = 64, 4


def sample_picture(sample: Tensor) -> str | None:
    """A sample (channels, height, width) as a PNG in a data URI; None where it is no image of one or three channels.

    Scaled to at most 64 pixels a side and from its smallest to its largest value, so normalized inputs show too.
    """
    if sample.ndim != 3 or sample.shape[0] not in (1, 3) or min(sample.shape[1:]) < LEAST:
        return None
    data = sample.detach().double().cpu()
    if not bool(torch.isfinite(data).all()):
        return None
    shrink = max(max(data.shape[1:]) / SIDE, 1.0)
    height, width = (max(round(side / shrink), 1) for side in data.shape[1:])
    data = F.adaptive_avg_pool2d(data, (height, width))
    low, high = float(data.min()), float(data.max())
    pixels = ((data - low) / (high - low if high > low else 1.0) * 255).round().to(torch.uint8)
    rows = [bytes(row.reshape(-1).tolist()) for row in pixels.movedim(0, 2)]
    return png_address(rows, width, GREY if len(pixels) == 1 else COLOUR)

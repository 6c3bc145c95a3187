"""Norms of many small weights at once: one concatenation, one pass, sums by segment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normgauge.monitor.fetch import Sheet


class Segments:
    """Which numbers of a concatenation belong together.

    Args:
        lengths: numbers of each part.
        device: where the concatenation lives.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.lengths = tuple(lengths)
        self._sizes = torch.tensor(self.lengths, device=device)

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """Maximum, minimum, mean or sum of each part."""
        return torch.segment_reduce(values, how, lengths=self._sizes, axis=0, unsafe=True)


class Vectors:
    """The small weights of a model that no enclosure follows: gains, biases, embeddings of few entries.

    Args:
        rows: of the sheet, one for each weight.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = list(rows)
        self._segments: Segments | None = None
        self._kept: Tensor | None = None

    def keep(self, weights: Sequence[Tensor]) -> None:
        """Remember the weights as they are, for the update."""
        self._kept = _joined(weights) if weights else None

    def read(self, weights: Sequence[Tensor], gradients: Sequence[Tensor | None], sheet: Sheet) -> None:
        """Write down norm, gradient, radial part and update of each."""
        if not weights:
            return
        lengths = tuple(w.numel() for w in weights)
        if self._segments is None or self._segments.lengths != lengths:
            self._segments = Segments(lengths, weights[0].device)
        total = self._segments.reduce
        joined = _joined(weights)
        sheet.put_all(self.rows, "frobenius", total(joined.square(), "sum").sqrt())
        if self._kept is not None and self._kept.shape == joined.shape:
            sheet.put_all(self.rows, "update", total((joined - self._kept).square(), "sum").sqrt())
        with_slope = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not with_slope:
            return
        zero = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, gradients, strict=True)]
        slope = _joined(zero)
        rows = [self.rows[i] for i in with_slope]
        norms, dots = total(slope.square(), "sum").sqrt(), total(slope * joined, "sum")
        if len(rows) < len(self.rows):
            norms, dots = norms[with_slope], dots[with_slope]
        sheet.put_all(rows, "gradient", norms)
        sheet.put_all(rows, "dot", dots)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    flat = torch.cat([t.reshape(-1) for t in tensors])
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()

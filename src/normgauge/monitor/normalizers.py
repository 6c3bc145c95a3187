"""The numbers of every normalizer at a reading: σ, γ and the gain |γ|/σ, all layers in a few operations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from normgauge.monitor.layers import Layer, by_channel
from normgauge.monitor.listener import Listener, Spread
from normgauge.monitor.sheet import Sheet
from normgauge.monitor.vectors import Segments
from normgauge.rules.tried import of_module

Scales = dict[int, Tensor]


class Normalizers:
    """Measures the layers whose role is ``norm``."""

    def __init__(self) -> None:
        self._segments: Segments | None = None

    def read(self, layers: Mapping[int, Layer], listener: Listener, sheet: Sheet) -> Scales:
        """Write down σ, γ and gain of each normalizer that was heard, and the running statistics.

        Args:
            layers: the normalizers by row.
            listener: what was heard of each.
            sheet: where to write.

        Returns:
            |γ|/σ of each: by channel for batch normalization, of the worst sample or group for the others.
        """
        for row, layer in layers.items():
            variance = getattr(layer.module, "running_var", None)
            if isinstance(variance, Tensor) and by_channel(layer.module):
                sheet.put(sheet.layers[row], "running", variance.mean())
            if layer.module in listener.frozen:
                sheet.put(sheet.layers[row], "batch", listener.frozen[layer.module])
        heard = {row: listener.spreads.get(layer.module) or running(layer.module) for row, layer in layers.items()}
        rows = [row for row, spread in heard.items() if spread is not None and spread.inverse]
        if not rows:
            return {}
        inverses = [_one(heard[row]) for row in rows]
        joined = torch.cat(inverses) if len(inverses) > 1 else inverses[0]
        lengths = tuple(t.numel() for t in inverses)
        if self._segments is None or self._segments.lengths != lengths:
            self._segments = Segments(lengths, joined.device)
        steepest = self._segments.reduce(joined, "max")
        sheet.put_column(rows, "inverse_max", steepest)
        sheet.put_column(rows, "inverse_min", self._segments.reduce(joined, "min"))
        sheet.put_column(rows, "square", self._segments.reduce(joined.square().reciprocal(), "mean"))
        scales: Scales = {}
        for place, row in enumerate(rows):
            worst = heard[row].inverse[-1] if by_channel(layers[row].module) else steepest[place]  # type: ignore[union-attr]
            gamma = layers[row].weight
            scales[row] = worst if gamma is None else _scale(gamma, worst)
            sheet.put(sheet.layers[row], "gain", scales[row].max())
            if gamma is not None:
                sheet.put(sheet.layers[row], "gamma_max", torch.linalg.vector_norm(gamma, math.inf))
        return scales


def running(module: nn.Module) -> Spread | None:
    """The running statistics, where no pass was heard (a compiled model) and there are some."""
    variance = getattr(module, "running_var", None)
    form = of_module(module)
    return None if variance is None or form is None else Spread([torch.rsqrt(variance + form.eps)])


def groups_of(layer: Layer) -> int:
    """How many scale-free groups a normalizer makes of the rows in front of it."""
    form = of_module(layer.module)
    if form is not None and form.kind in ("batch", "instance"):
        return int(layer.module.num_features if form.gamma is None else form.gamma.numel())  # type: ignore[arg-type]
    return 1 if form is None else form.count


def _one(spread: Spread | None) -> Tensor:
    assert spread is not None  # only those heard come here
    parts = [t.reshape(-1) for t in spread.inverse]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _scale(gamma: Tensor, worst: Tensor) -> Tensor:
    return (gamma * worst).abs() if gamma.ndim == 1 else torch.linalg.vector_norm(gamma, math.inf) * worst

"""The proved norms of all layers: who is followed how, which is widest, what a new proof costs."""

from __future__ import annotations

import math
import time

from torch import Tensor

from normgauge.monitor.enclosure import Raw, Tracked, TrackedConv, is_pointwise, spec_of
from normgauge.monitor.layers import Layer
from normgauge.monitor.sheet import Row

TARGET = 0.049
"""Relative width above which an enclosure wants a new proof: a little under five per cent, for what rounding adds."""

CHEAP = 256
"""Order up to which a proof is taken at once when everything is asked for; larger ones keep to the budget."""

DEARER = 20
"""What the operator norm of a convolution costs in cheap bounds, about; used until one was timed."""


class Proofs:
    """The enclosures of a model's matrices and convolutions between readings."""

    def __init__(self) -> None:
        self._tracked: dict[int, Tracked] = {}
        self._widths: dict[int, float] = {}
        self._costs: dict[int, float] = {}
        self._queue: list[int] | None = None

    def __contains__(self, row: int) -> bool:
        return row in self._tracked

    def follow(self, row: int, layer: Layer, weight: Tensor, size: tuple[int, ...] | None) -> None:
        """Follow a layer, if it can be: a convolution once the size of its input is known.

        A weight of another device, type or shape, or a convolution on a larger input, is followed anew.
        """
        if row in self._tracked and self._tracked[row].fits(weight, size):
            return
        self._queue = None
        if layer.role == "matrix" or (layer.role == "conv" and is_pointwise(layer.module)):
            self._tracked[row], self._widths[row] = Tracked(weight), math.inf
        elif layer.role == "conv" and size is not None:
            self._tracked[row], self._widths[row] = TrackedConv(weight, spec_of(layer.module, size)), math.inf

    def read(self, row: int, weight: Tensor, scale: Tensor | None, turns: int = 1) -> Raw:
        """The numbers of one layer at this reading."""
        return self._tracked[row].read(weight, scale, turns)

    def ends(self, row: int, raw: Row) -> tuple[float, float]:
        """The enclosure that follows from the numbers, once they have been fetched."""
        tracked = self._tracked[row]
        if not 0.0 < raw["found"] < math.inf:
            tracked.restart()
        lower, upper = tracked.ends(raw)
        self._widths[row] = upper / lower - 1 if lower else math.inf
        tracked.lost = tracked.lost or raw["proved"] + tracked.spread * raw["drift"] > tracked.spread * raw["frobenius"]
        self._queue = None
        return lower, upper

    def wanting(self) -> list[int]:
        """Rows whose enclosure is wider than the target, widest first."""
        if self._queue is None:
            wide = [(-width, row) for row, width in self._widths.items() if width > TARGET]
            self._queue = [row for _, row in sorted(wide)]
        return self._queue

    def cost(self, row: int) -> float:
        """Seconds the next proof will take, as far as is known."""
        return self._costs.get(row, 0.0)

    def is_cheap(self, row: int) -> bool:
        """Whether a proof may be taken in passing: a small matrix on a CPU."""
        tracked = self._tracked[row]
        small = min(tracked.reference.flatten(1).shape) <= CHEAP and not isinstance(tracked, TrackedConv)
        return small and tracked.reference.device.type == "cpu"

    def renew(self, row: int, weight: Tensor) -> float:
        """Prove the norm of one layer anew.

        A convolution gets the cheap bound first and its operator norm itself later, and that only on a CPU.

        Returns:
            The seconds it took.
        """
        began = time.perf_counter()
        tracked = self._tracked[row]
        cheap = isinstance(tracked, TrackedConv) and (weight.device.type != "cpu" or row not in self._costs)
        tracked.refresh(weight, cheap)
        self._widths[row], self._queue = 0.0, None
        seconds = time.perf_counter() - began
        self._costs[row] = DEARER * seconds if cheap and weight.device.type == "cpu" else seconds
        return seconds

    def narrowed(self, row: int, weight: Tensor) -> tuple[float, float]:
        """The enclosure after a proof taken at once, on a CPU."""
        self.renew(row, weight)
        return self.ends(row, {name: float(value) for name, value in self.read(row, weight, None).items()})

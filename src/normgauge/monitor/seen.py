"""What the watch is shown at a reading: plain numbers, no tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from normgauge.monitor.sheet import Row


@dataclass(frozen=True, slots=True)
class Place:
    """A layer as the watch knows it.

    Attributes:
        name: in the model.
        role: matrix, conv, embedding, norm or vector.
        shape: of its weight.
        size: Frobenius norm of the weight before the first step.
    """

    name: str
    role: str
    shape: tuple[int, ...] = ()
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One reading.

    Attributes:
        step: of the reading.
        losses: (step, loss) of every step since the reading before.
        rows: the numbers of each layer: the columns of a line, and eps, running, batch, rate, momentum, weight_decay.
        totals: of the reading.
        pairs: layer to the normalizer its output goes straight into.
        rate: the learning rate, where it is known.
        given: root mean square of the network's input, where it is a tensor of floats.
        half: whether the first product came out in float16.
    """

    step: int
    losses: Sequence[tuple[int, float]]
    rows: Sequence[Row]
    totals: Mapping[str, float | None]
    pairs: Mapping[int, int]
    rate: float | None = None
    given: float | None = None
    half: bool = False

"""Numbers from a device without waiting for it: copied in the background, looked at when they have come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Floats = dict[int, dict[str, float]]
Then = Callable[[Floats, float], None]


@dataclass(slots=True)
class Sheet:
    """Numbers of one reading, by row and column, not yet looked at.

    Attributes:
        places: row and column of each of ``numbers``, in their order.
        numbers: tensors of no axes, on any device.
        spans: row and column of each number of ``vectors``.
        vectors: tensors of one axis.
        known: numbers that are floats already.
    """

    places: list[tuple[int, str]] = field(default_factory=list)
    numbers: list[Tensor] = field(default_factory=list)
    spans: list[tuple[int, str]] = field(default_factory=list)
    vectors: list[Tensor] = field(default_factory=list)
    known: Floats = field(default_factory=dict)

    def put(self, row: int, column: str, value: Tensor | float) -> None:
        """Write down one number."""
        if isinstance(value, Tensor):
            self.places.append((row, column))
            self.numbers.append(value)
        else:
            self.known.setdefault(row, {})[column] = float(value)

    def put_all(self, rows: Sequence[int], column: str, values: Tensor) -> None:
        """Write down one number for each of several rows."""
        self.spans += [(row, column) for row in rows]
        self.vectors.append(values)

    def packed(self) -> Tensor | None:
        """One vector of all numbers, first those of ``numbers``; on the device that some of them are on."""
        loose = [*self.numbers, *self.vectors]
        if not loose:
            return None
        device = next((t.device for t in loose if t.device.type != "cpu"), torch.device("cpu"))
        wide = torch.float32 if device.type == "mps" else torch.float64
        parts = [_stacked(self.numbers, device)] if self.numbers else []
        parts += [t.to(device, non_blocking=True) for t in self.vectors]
        return torch.cat(parts).to(wide)  # cat and stack promote numbers of several types


@dataclass(slots=True)
class Pending:
    """A sheet of numbers on its way.

    Attributes:
        sheet: what was measured.
        buffer: its numbers in main memory, once ``event`` has passed.
        event: None where there is nothing to wait for.
        then: what to do with the floats.
        begun: an event recorded on the device when the work began, or None.
    """

    sheet: Sheet
    buffer: Tensor
    event: Any
    then: Then
    begun: Any

    def ready(self) -> bool:
        """Whether the numbers have come; never waits."""
        return self.event is None or bool(self.event.query())

    def deliver(self) -> None:
        """Hand the numbers on, with the seconds the device took."""
        floats = self.sheet.known
        for (row, column), value in zip((*self.sheet.places, *self.sheet.spans), self.buffer.tolist(), strict=True):
            floats.setdefault(row, {})[column] = value
        timed = self.event is not None and self.begun is not None
        self.then(floats, self.begun.elapsed_time(self.event) / 1000.0 if timed else 0.0)


def fetch(sheet: Sheet, then: Then, begun: Any = None) -> Pending:
    """Start bringing the numbers of a sheet to main memory.

    Args:
        sheet: the numbers.
        then: called by ``Pending.deliver`` with the floats and the device's seconds.
        begun: a CUDA event recorded when the work began, or None.

    Returns:
        What to ask whether it is ready.
    """
    packed = sheet.packed()
    if packed is None:
        return Pending(sheet, torch.empty(0), None, then, None)
    if packed.device.type != "cuda":
        return Pending(sheet, packed.cpu(), None, then, None)
    buffer = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    buffer.copy_(packed, non_blocking=True)
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return Pending(sheet, buffer, event, then, begun)


def _stacked(numbers: list[Tensor], device: torch.device) -> Tensor:
    """A number that lives on the CPU beside others on a device goes over pinned, so that nothing waits."""
    return torch.stack([t if t.device == device else t.to(device, non_blocking=True) for t in numbers])

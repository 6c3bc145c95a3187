"""Memory that something else than torch reads: a copy of the model's tensors is not seen there."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.instrument.trace.held import memory_place, strided
from normgauge.instrument.trace.untouched import reachable_objects

Range = tuple[int, int]  # first and behind the last address


class Outside:
    """Arrays and buffers that a model holds beside its tensors, as they are before a pass.

    What the model hides elsewhere (a global, a file) is not seen.

    Args:
        model: as its user has it, with its own tensors.
    """

    def __init__(self, model: nn.Module) -> None:
        whole = reachable_objects(model)
        self._buffers = whole.buffers
        self._before = list(map(_digest, self._buffers))
        held = [value for _, before in (*whole.tables, *whole.boxes) for value in before.values()]
        tensors = [
            value for value in held if isinstance(value, Tensor) and value.device.type == "cpu" and strided(value)
        ]
        self._shared = bool(self._buffers) and _overlap(list(map(_range, self._buffers)), list(map(_room, tensors)))

    def trouble(self) -> str:
        """Why nothing can be told of the model after a pass; empty where nothing speaks against it."""
        if self._shared:
            return (
                "a tensor shares its memory with an array that the model holds, and what is read there is not followed"
            )
        if self._before != list(map(_digest, self._buffers)):
            return "its forward writes to an array that is no tensor, and what is read there is not followed"
        return ""


def _digest(buffer: Any) -> bytes:
    return hashlib.blake2b(buffer.tobytes() if not isinstance(buffer, bytearray) else bytes(buffer)).digest()


def _range(buffer: Any) -> Range:
    """Where an array or a buffer lies."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        first = last = buffer.__array_interface__["data"][0]
        for size, stride in zip(buffer.shape, buffer.strides, strict=True):
            reach = (size - 1) * stride
            first, last = first + min(0, reach), last + max(0, reach)
        return (first, last + buffer.itemsize) if buffer.size else (0, 0)
    if isinstance(buffer, array):
        place, count = buffer.buffer_info()
        return place, place + count * buffer.itemsize
    size = buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
    try:
        place = torch.frombuffer(buffer, dtype=torch.uint8).data_ptr() if size else 0
    except (RuntimeError, ValueError, TypeError, BufferError):  # one that cannot be written to
        return 0, 0
    return place, place + size


def _room(tensor: Tensor) -> Range:
    place = memory_place(tensor)
    return place, place + tensor.untyped_storage().nbytes() if place else 0


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(a < last and first < b for a, b in some for first, last in others if b > a and last > first)

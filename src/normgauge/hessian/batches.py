"""What the curvature is measured on: pairs of inputs and targets, one batch after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from normgauge.errors import InputError
from normgauge.trace.inputs import describe, named_tensors

SAMPLES = 256  # of a data set in one batch


def as_batches(data: Any, size: int = SAMPLES) -> list[Any]:
    """A list of batches.

    Args:
        data: a list or loader of batches, one batch (a pair of tensors, or a mapping), or a data set of single
            samples, which is cut into batches in its own order. A loader is read once, so one that shuffles or
            augments gives every product the same samples.
        size: samples a batch, for a data set.

    Returns:
        The batches, at least one.

    Raises:
        InputError: when there is none, or the data cannot be read.
    """
    if isinstance(data, Mapping) or is_pair(data):
        return [data]
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=size)
    if isinstance(data, Tensor) or not isinstance(data, Iterable):
        raise InputError(
            f"batches: expected batches of (input, target), got {describe(data)}; give one batch as [(x, y)]"
        )
    batches = list(data)
    if not batches:
        raise InputError("batches: expected at least one batch, got none; is the loader used up, or the data empty?")
    return batches


def is_pair(data: Any) -> bool:
    """Whether this is one batch (input, target) and not a sequence of batches."""
    return isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor)


def size_of(batch: Any, index: int) -> int:
    """How many samples a batch holds: the length of its target, else of its first tensor.

    Raises:
        InputError: when it holds none.
    """
    tensors = [tensor for _, tensor in named_tensors(batch[1] if is_pair(batch) else batch)]
    tensors = [tensor for tensor in tensors if tensor.ndim > 0] or tensors
    if not tensors:
        raise InputError(f"batch {index}: expected tensors, got {describe(batch)}")
    size = len(tensors[0]) if tensors[0].ndim else 1
    if size == 0:
        raise InputError(f"batch {index}: expected at least one sample, got shape {tuple(tensors[0].shape)}")
    return size

"""Samples read in batches, as often as asked, always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from normgauge.errors import InputError
from normgauge.trace.inputs import describe

BATCH = 512


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Inputs with labels, or without.

    Either tensors that are at hand, or a data set that is read item by item: then no more than a batch of inputs is
    in memory at a time. Labels are always at hand.

    Attributes:
        inputs: (n, ...) floats, where they are at hand.
        labels: (n,) int64; None for an unlabeled sample.
        items: the data set the inputs are read from, where they are not at hand.
        changing: whether reading an item twice gave two different inputs: random augmentation.
    """

    inputs: Tensor | None
    labels: Tensor | None
    items: Dataset[Any] | None = None
    changing: bool = False

    def __len__(self) -> int:
        if self.labels is not None:
            return len(self.labels)
        return len(self.inputs) if self.inputs is not None else len(self.items)  # type: ignore[arg-type]

    def take(self, indices: Sequence[int] | Tensor) -> Tensor:
        """The inputs at these places, (k, ...)."""
        if self.inputs is not None:
            return self.inputs[torch.as_tensor(indices)]
        return torch.stack([_input(self.items[int(i)]) for i in indices])  # type: ignore[index]

    def batches(self, size: int = BATCH) -> Iterator[Tensor]:
        """All inputs in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            yield self.inputs[start:stop] if self.inputs is not None else self.take(range(start, stop))

    def pairs(self, size: int = BATCH) -> Iterator[tuple[Tensor, Tensor]]:
        """All inputs and labels in order.

        Raises:
            InputError: for an unlabeled sample.
        """
        if self.labels is None:
            raise InputError("this sample has no labels")
        for index, inputs in enumerate(self.batches(size)):
            yield inputs, self.labels[index * size : index * size + len(inputs)]

    def part(self, indices: Tensor) -> Sample:
        """The samples at these places, inputs at hand."""
        return Sample(self.take(indices), None if self.labels is None else self.labels[indices], None, self.changing)

    @classmethod
    def of(cls, data: Any, name: str, *, labelled: bool = True) -> Sample:
        """Read a tensor, a pair of tensors, a data set, a loader or anything with ``inputs`` and ``labels``.

        Raises:
            InputError: for anything else, for labels that are no class numbers, for no samples.
        """
        if isinstance(data, Sample):
            return data
        if isinstance(data, DataLoader):
            data = data.dataset  # a loader may shuffle and drop; its data set does not
        if isinstance(data, IterableDataset):
            raise InputError(f"{name}: expected a data set with a length and an order, got {describe(data)}")
        if isinstance(data, TensorDataset):
            data = data.tensors
        inputs, labels = _tensors(data)
        if inputs is None and isinstance(data, Dataset):
            return _read(data, name, labelled)
        if inputs is None:
            raise InputError(
                f"{name}: expected (inputs, labels) as tensors, a data set or a loader, got {describe(data)}"
            )
        return cls(_checked(inputs, name), _classes(labels, len(inputs), name) if labelled else None)


def device_of(model: nn.Module) -> torch.device:
    """Where a network expects its inputs; samples are kept in main memory."""
    return next(iter([*model.parameters(), *model.buffers()]), torch.zeros(0)).device


@torch.no_grad()
def outputs(model: nn.Module, sample: Sample, size: int = BATCH) -> Tensor:
    """What the model says, (n, classes), float32 on the CPU.

    Raises:
        InputError: when it does not give one number a class.
    """
    place = device_of(model)
    said = [model(x.to(place)).float().cpu() for x in sample.batches(size)]
    if said[0].ndim != 2:
        raise InputError(f"expected a model that gives one number a class, (samples, classes), got {describe(said[0])}")
    found = torch.cat(said)
    if not found.isfinite().all():
        _blame(sample)
    return found


def _blame(sample: Sample) -> None:
    bad = sum(int((~x.isfinite()).flatten(1).any(1).sum()) for x in sample.batches() if x.is_floating_point())
    if bad:
        raise InputError(f"{bad} of {len(sample)} inputs hold numbers that are not finite; take them out or mend them")
    raise InputError("the model gives numbers that are not finite on this data; nothing can be said about it")


def _tensors(data: Any) -> tuple[Tensor | None, Tensor | None]:
    if isinstance(data, tuple | list):
        data = tuple(torch.from_numpy(part) if isinstance(part, ndarray) else part for part in data)
    if isinstance(data, ndarray):
        data = torch.from_numpy(data)
    if isinstance(data, Tensor):
        return data, None
    if isinstance(data, tuple | list) and data and isinstance(data[0], Tensor) and len(data) <= 2:
        return data[0], data[1] if len(data) == 2 else None
    inputs, labels = getattr(data, "inputs", None), getattr(data, "labels", None)
    return (inputs, labels) if isinstance(inputs, Tensor) else (None, None)


def _read(data: Dataset[Any], name: str, labelled: bool) -> Sample:
    count = len(data)  # type: ignore[arg-type]
    if count == 0:
        raise InputError(f"{name}: expected at least one sample, got none")
    first, again = _input(data[0]), _input(data[0])
    changing = first.shape != again.shape or not torch.equal(first, again)
    labels = [data[i][1] for i in range(count)] if labelled else None
    found = None if labels is None else _classes(default_collate(labels), count, name)
    return Sample(None, found, data, changing)


def _input(item: Any) -> Tensor:
    found = item[0] if isinstance(item, tuple | list) else item
    if not isinstance(found, Tensor):
        raise InputError(f"expected a data set of tensors, or of (tensor, label), got {describe(item)}")
    return found


def _checked(inputs: Tensor, name: str) -> Tensor:
    if inputs.ndim < 2 or len(inputs) == 0:
        raise InputError(f"{name}: expected one input a row, got {describe(inputs)}")
    return inputs


def _classes(labels: Any, count: int, name: str) -> Tensor:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.shape != (count,):
        raise InputError(f"{name}: expected {count} class numbers as labels, got {describe(labels)}")
    if int(labels.min()) < 0:
        raise InputError(f"{name}: expected class numbers from 0, got {int(labels.min())}")
    return labels.long().cpu()

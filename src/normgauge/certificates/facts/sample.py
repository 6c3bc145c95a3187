"""Samples read in batches, as often as asked, always in the same order; fingerprints tell who has seen what."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
)

from normgauge.core.errors import InputError
from normgauge.instrument.trace.inputs import describe_output

BATCH = 128  # larger ones leave the cache


@dataclass(frozen=True, eq=False)
class DataSample:
    """Inputs with labels, or without.

    Either tensors that are at hand, or a data set that is read item by item: then no more than a batch of inputs is
    in memory at a time. Labels are always at hand.

    Attributes:
        inputs: (n, ...) floats, where they are at hand.
        labels: (n,) int64; None for an unlabeled sample.
        items: the data set the inputs are read from, where they are not at hand.
    """

    inputs: Tensor | None
    labels: Tensor | None
    items: Dataset[Any] | None = None

    def __len__(self) -> int:
        known: Any = next(part for part in (self.labels, self.inputs, self.items) if part is not None)
        return len(known)

    @property
    def truth(self) -> Tensor:
        """The labels of a labelled sample; D always has labels.

        Raises:
            InputError: for an unlabeled sample.
        """
        if self.labels is None:
            raise InputError("this sample has no labels")
        return self.labels

    @cached_property
    def marks(self) -> list[bytes]:
        """The fingerprint of every input, in order."""
        return [mark for batch in self.batches(2048) for mark in hash_rows(batch)]

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
        """Batches of inputs and labels, in order."""
        yield from zip(self.batches(size), self.truth.split(size), strict=True)

    def part(self, indices: Tensor) -> DataSample:
        """The samples at these places, inputs at hand."""
        return DataSample(self.take(indices), None if self.labels is None else self.labels[indices])

    @classmethod
    def of(cls, data: Any, name: str, *, labelled: bool = True) -> DataSample:
        """Read a tensor, a pair of tensors, a data set, a loader or anything with ``inputs`` and ``labels``.

        Of a loader, the samples it gives, in the order of its data set.

        Raises:
            InputError: for anything else, for labels other than class numbers, for an empty sample, for samples that
                change from one reading to the next.
        """
        if isinstance(data, DataSample):
            if labelled and data.labels is None:
                raise InputError(f"{name}: expected samples with labels, got a sample without")
            return data
        if isinstance(data.dataset if isinstance(data, DataLoader) else data, IterableDataset):
            raise InputError(f"{name}: expected a data set with a length and an order, got {describe_output(data)}")
        if isinstance(data, DataLoader):
            data = _given(data, name)
        if type(data) is TensorDataset:
            data = data.tensors
        if isinstance(data, Dataset):  # what it gives counts, not what it holds
            return _read(data, name, labelled)
        inputs, labels = _tensors(data)
        if inputs is None:
            raise InputError(
                f"{name}: expected (inputs, labels) as tensors, a data set or a loader, got {describe_output(data)}"
            )
        if inputs.ndim < 2 or len(inputs) == 0:
            raise InputError(f"{name}: expected one input a row, got {_shaped(inputs)}")
        _refuse_spoiled(_spoiled(inputs), len(inputs), name)
        return cls(inputs, _classes(labels, len(inputs), name) if labelled else None)


def hash_rows(points: Tensor) -> Iterator[bytes]:
    """One fingerprint a row: 16 bytes of BLAKE2 over its float32 values; layouts do not matter, −0 is 0."""
    rows = (points.detach().cpu().flatten(1).float() + 0.0).contiguous().numpy()
    for row in rows:
        yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def fingerprints(points: Tensor) -> frozenset[bytes]:
    """The set of fingerprints of all rows."""
    return frozenset(hash_rows(points))


def device_of(model: nn.Module) -> torch.device:
    """Where a network expects its inputs; samples are kept in main memory."""
    return next(iter([*model.parameters(), *model.buffers()]), torch.zeros(0)).device


@torch.no_grad()
def model_outputs(model: nn.Module, sample: DataSample, size: int = BATCH, order: Tensor | None = None) -> Tensor:
    """The model's outputs on a sample, (n, classes), float32 on the CPU.

    Args:
        model: maps a batch of inputs to one number a class.
        sample: its inputs.
        size: of a batch, at most.
        order: the places to read, one after the other, in batches of about one size; None: all, in order.

    Raises:
        InputError: when it does not give one number a class.
    """
    place = device_of(model)
    batches = sample.batches(size) if order is None else map(sample.take, order.tensor_split(-(-len(order) // size)))
    said = [_answer(model, x.to(place)) for x in batches]
    found = torch.cat(said)
    if not found.isfinite().all():
        raise InputError("the model gives numbers that are not finite on this data; nothing can be said about it")
    return found


def _answer(model: nn.Module, x: Tensor) -> Tensor:
    """What the model says to a batch.

    Raises:
        InputError: for one it cannot take, or an answer that is not one number a class.
    """
    try:
        said = model(x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the model cannot take a batch of {_shaped(x)}: {str(error).splitlines()[0]}") from error
    if not isinstance(said, Tensor) or said.ndim != 2 or len(said) != len(x):
        raise InputError(
            f"expected a model that gives one number a class, ({len(x)}, classes), got {_shaped(said)}; wrap it so "
            "that it returns the logits alone"
        )
    return said.float().cpu()


def _given(loader: DataLoader[Any], name: str) -> Dataset[Any]:
    """The part of a loader's data set that the loader gives.

    Raises:
        InputError: where it may change samples, give some twice, or choose others at each reading.
    """
    if loader.collate_fn not in (default_collate, default_convert):
        raise InputError(f"{name}: a loader with its own collate_fn may change the samples; give its data set instead")
    data, batches = loader.dataset, loader.batch_sampler
    sampler: Any = batches.sampler if type(batches) is BatchSampler else batches or loader.sampler
    count = len(data)  # type: ignore[arg-type]
    if isinstance(sampler, WeightedRandomSampler) or (isinstance(sampler, RandomSampler) and sampler.replacement):
        raise InputError(
            f"{name}: {type(sampler).__name__} draws samples again or by weight, and no bound holds for those; give "
            "the data set without it"
        )
    if type(sampler) is RandomSampler and sampler.num_samples == count:
        return data  # shuffled; dropping some at random chooses nothing
    if type(sampler) is SubsetRandomSampler:
        places = [int(i) for i in sampler.indices]
    else:
        places, again = _places(loader, name), _places(loader, name)
        if set(places) != set(again):
            raise InputError(f"{name}: the loader gives other samples at each reading; give a data set of fixed ones")
    if len(set(places)) < len(places):
        raise InputError(
            f"{name}: the loader gives {len(places)} samples, {len(places) - len(set(places))} of them again; each "
            "must come once"
        )
    places.sort()
    if places == list(range(count)):
        return data
    return TensorDataset(*(t[places] for t in data.tensors)) if type(data) is TensorDataset else Subset(data, places)


def _places(loader: DataLoader[Any], name: str) -> list[int]:
    batches = loader.batch_sampler
    found = loader.sampler if batches is None else (i for batch in batches for i in batch)
    try:
        return [operator.index(i) for i in found]
    except TypeError as error:
        raise InputError(f"{name}: expected a loader whose sampler gives places in its data set: {error}") from error


def _tensors(data: Any) -> tuple[Tensor | None, Tensor | None]:
    given = data if isinstance(data, tuple | list) else (data,)
    parts = [torch.from_numpy(part) if isinstance(part, ndarray) else part for part in given]
    if 1 <= len(parts) <= 2 and isinstance(parts[0], Tensor):
        return parts[0], parts[1] if len(parts) == 2 else None
    inputs, labels = getattr(data, "inputs", None), getattr(data, "labels", None)
    return (inputs, labels) if isinstance(inputs, Tensor) else (None, None)


def _read(data: Dataset[Any], name: str, labelled: bool) -> DataSample:
    try:
        count = len(data)  # type: ignore[arg-type]
    except TypeError as error:
        raise InputError(
            f"{name}: expected a data set with a length and an order, got {describe_output(data)}"
        ) from error
    if count == 0:
        raise InputError(f"{name}: expected at least one sample, got none")
    once, labels = _pass(data, count, name, labelled)
    twice, others = _pass(data, count, name, labelled)
    changed = sum(before != after for before, after in zip(once, twice, strict=True))
    found = _classes(default_collate(labels), count, name) if labelled else None
    if found is not None:
        changed = max(changed, int((found != _classes(default_collate(others), count, name)).sum()))
    if changed:
        raise InputError(
            f"{name}: {changed} of its {count} samples changed from one reading to the next (random augmentation?); "
            "give the data set without random transforms"
        )
    sample = DataSample(None, found, data)
    vars(sample)["marks"] = once  # it was read to see whether it stays the same
    return sample


def _pass(data: Dataset[Any], count: int, name: str, labelled: bool) -> tuple[list[bytes], list[Any]]:
    """Fingerprints and labels of one reading.

    Raises:
        InputError: for items without an input or a label, for numbers that are not finite.
    """
    seen, labels, bad = [], [], 0
    for i in range(count):
        item = data[i]
        given = _input(item)[None]
        bad += _spoiled(given)
        seen.append(next(hash_rows(given)))
        if labelled:
            if not isinstance(item, tuple | list) or len(item) < 2:
                raise InputError(f"{name}: expected a data set of (tensor, label), got {describe_output(item)}")
            labels.append(item[1])
    _refuse_spoiled(bad, count, name)
    return seen, labels


def _input(item: Any) -> Tensor:
    found = item[0] if isinstance(item, tuple | list) else item
    if not isinstance(found, Tensor):
        raise InputError(f"expected a data set of tensors, or of (tensor, label), got {describe_output(item)}")
    return found


def _spoiled(inputs: Tensor) -> int:
    """How many inputs hold a number that is not finite."""
    return int((~inputs.isfinite()).flatten(1).any(1).sum())


def _refuse_spoiled(bad: int, count: int, name: str) -> None:
    if bad:
        raise InputError(
            f"{name}: {bad} of {count} inputs hold numbers that are not finite; mend them, or leave such samples out "
            "of train and hold-out alike"
        )


def _classes(labels: Any, count: int, name: str) -> Tensor:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.shape != (count,):
        hint = (
            "give (inputs, labels)" if labels is None else "integers, one a sample: .long(), .argmax(1) of one-hot rows"
        )
        raise InputError(f"{name}: expected {count} class numbers as labels, got {_shaped(labels)}; {hint}")
    if int(labels.min()) < 0:
        raise InputError(f"{name}: expected class numbers from 0, got {int(labels.min())}")
    return labels.long().cpu()


def _shaped(value: Any) -> str:
    return describe_output(value) + (f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else "")

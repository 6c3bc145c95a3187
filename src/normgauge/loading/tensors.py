"""Tensors from files, without executing anything in them, and the first batch of a loader."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from normgauge.core.errors import LoadError
from normgauge.core.user_code import one_line
from normgauge.lab.zoo import Split

SAMPLES = 64


def read_tensors(path: Path) -> Any:
    """The tensors of a .npy, .safetensors or .pt file.

    Raises:
        LoadError: for a missing or damaged file, and for pickled Python objects.
    """
    if not path.is_file():
        raise LoadError(f"{path}: expected a file of tensors, got no such file")
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        if path.suffix == ".safetensors":
            tensors = load_file(path)
            return next(iter(tensors.values())) if len(tensors) == 1 else tensors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; the refusal below says what matters
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise LoadError(
            f"{path}: refused, it holds pickled Python objects and loading those can run any code; nothing was "
            "executed. Where you trust it, convert it once: safetensors.torch.save_file(torch.load(path, "
            'weights_only=False).state_dict(), "weights.safetensors")'
        ) from None
    except (SafetensorError, TypeError, ValueError, RuntimeError, EOFError) as error:
        raise LoadError(
            f"{path}: expected a file of tensors, got one that cannot be read ({one_line(error)})"
        ) from None


def first_batch(value: Any) -> tuple[Any, Tensor | None]:
    """The first batch of a loader or data set and its labels apart; anything else is a batch already."""
    if isinstance(value, Split):
        return value.inputs[:SAMPLES], value.labels[:SAMPLES]
    if isinstance(value, DataLoader):
        return _labels_apart(next(iter(value)))
    if isinstance(value, Dataset):
        size = min(len(value), SAMPLES)  # type: ignore[arg-type]
        return _labels_apart(default_collate([value[i] for i in range(size)]))
    return value, None


def _labels_apart(batch: Any) -> tuple[Any, Tensor | None]:
    if not isinstance(batch, list | tuple):
        return batch, None
    last, labels = batch[-1], None
    if len(batch) == 2 and isinstance(last, Tensor) and last.ndim == 1 and not last.is_floating_point():
        batch, labels = batch[:1], last
    return batch[0] if len(batch) == 1 else tuple(batch), labels

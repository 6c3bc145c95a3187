"""Trained weights into a model, without running anything a file says."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from normgauge.core.errors import LoadError
from normgauge.render.numbers import shortened_names

Model = TypeVar("Model", bound=nn.Module)

WRAPPERS = ("state_dict", "model")  # keys under which training scripts, ours too, put the weights
CONVERT = (
    "where you trust the file, convert it: load it there, torch.save(model.state_dict(), 'weights.pt'), or better "
    "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
)


def load_state(model: Model, path: str | os.PathLike[str]) -> Model:
    """Load trained weights; every tensor must match by name and shape, or nothing is changed.

    BatchNorm's ``num_batches_tracked`` may be missing. A prefix ``module.`` on all names is dropped.

    Args:
        model: the network to fill.
        path: a safetensors file, or a state dict saved by ``torch.save`` (read with ``weights_only=True``).

    Returns:
        The same model.

    Raises:
        LoadError: if the file is absent, needs code to be loaded, or does not match.
    """
    path = Path(path)
    if not path.is_file():
        raise LoadError(f"no weights at {path}: the file does not exist.")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    if state and all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): value for name, value in state.items()}
    problems = _mismatches(model.state_dict(), state)
    if problems:
        raise LoadError(f"{path} does not fit this {type(model).__name__}: {'; '.join(problems)}.")
    model.load_state_dict(state, strict=False)  # strict but for num_batches_tracked, as checked above
    return model


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise LoadError(f"reading {path} needs safetensors: pip install safetensors.") from error
    try:
        state: dict[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise LoadError(f"{path} is not a whole safetensors file ({error}); get it anew.") from error
    return state


def _read_torch(path: Path) -> dict[str, torch.Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).strip().splitlines()[0]
        raise LoadError(
            f"{path} was refused and nothing in it was run: it is not plain weights ({reason}); {CONVERT}."
        ) from error
    except Exception as error:  # a damaged file can make torch.load raise anything
        raise LoadError(f"{path} could not be read as weights ({type(error).__name__}: {error}); {CONVERT}.") from error
    return _unwrapped(content, path)


def _unwrapped(content: Any, path: Path) -> dict[str, torch.Tensor]:
    for key in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise LoadError(f"{path} holds no state dict (names with tensors) but a {type(content).__name__}; {CONVERT}.")
    return dict(content)


def _mismatches(wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> list[str]:
    """Sentences that say how the given tensors differ from the wanted ones in name or shape."""
    missing = [name for name in wanted if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in wanted]
    shapes = [
        f"{name} is {tuple(given[name].shape)} in the file and {tuple(tensor.shape)} in the model"
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    groups = {"missing in the file": missing, "not in the model": unexpected, "other shapes": shapes}
    return [f"{len(names)} {what} ({shortened_names(names, 5)})" for what, names in groups.items() if names]

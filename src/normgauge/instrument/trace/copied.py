"""A deep copy of a model, or the name of what in it cannot be copied."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from typing import Any, TypeVar

from torch import nn

from normgauge.core.errors import InputError

M = TypeVar("M", bound=nn.Module)


def copied(model: M) -> M:
    """Return a deep copy of a model.

    Raises:
        InputError: naming the attribute that cannot be copied, and why.
    """
    try:
        shared = {id(part): part for _, part in _attributes(model) if isinstance(part, types.ModuleType)}
        return copy.deepcopy(model, shared)  # as a global would be
    except Exception as error:  # whatever a class of the model's raises when it is asked
        why = type(error).__name__ if not str(error) else f"{type(error).__name__}: {error}"
        name, part = next(((name, part) for name, part in _attributes(model) if not _copies(part)), ("", model))
        raise InputError(
            f"{name or 'the model'} cannot be copied: copy.deepcopy of its {type(part).__name__} raises {why}; "
            "give that class a __deepcopy__ (its own __getattr__ should raise AttributeError), or hold it elsewhere"
        ) from error


def _attributes(model: nn.Module) -> Iterator[tuple[str, Any]]:
    tables = ("_parameters", "_modules")
    for path, module in model.named_modules():
        for key, part in vars(module).items():
            if key not in tables:
                yield f"{path}.{key}" if path else key, part


def _copies(part: Any) -> bool:
    try:
        copy.deepcopy(part, {id(part): part} if isinstance(part, types.ModuleType) else None)
    except Exception:
        return False
    return True

"""Whether all weights of a model were stored: transformers draws at random what a file lacks, and only warns of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from normgauge.core.errors import LoadError
from normgauge.instrument.trace.inputs import LOADING_NOTES
from normgauge.render.numbers import plural, shortened_names

NAMED = 4  # of each kind in a sentence
POOLER = "pooler"
COUNTER = "num_batches_tracked"  # of BatchNorm, and measured by nothing
ASKED = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # what differs is refused here, by name


def stored_model(place: Path, model: nn.Module, info: Mapping[str, Any]) -> nn.Module:
    """The model, if its file held all of it but a pooler, which is taken off then; its readings say so.

    Args:
        place: where it was loaded from.
        model: what transformers built.
        info: what it says of the loading, as `ASKED` for.

    Returns:
        The same model.

    Raises:
        LoadError: when weights were not stored or have another shape, naming them.
    """
    missing = sorted(name for name in info["missing_keys"] if not name.endswith(COUNTER))
    shapes = [
        f"{name}: {_shape(stored)} stored, {_shape(own)} in the model"
        for name, stored, own in sorted(info["mismatched_keys"])
    ]
    unused = sorted(info["unexpected_keys"])
    kind = type(model).__name__
    notes = []
    if missing and not shapes and _is_spare_pooler(model, missing):
        setattr(model, POOLER, None)
        missing = []
        notes.append(f"{kind} has no pooler here: its weights were not stored; nothing measured depends on it")
    if missing or shapes:
        raise LoadError(_refusal(place, kind, missing, shapes, unused))
    if unused:
        notes.append(f"{plural(len(unused), 'stored weight')} ({shortened_names(unused, NAMED)}) are no part of {kind}")
    setattr(model, LOADING_NOTES, tuple(notes))
    return model


def _is_spare_pooler(model: nn.Module, missing: list[str]) -> bool:
    """Whether only the pooler at the end is missing, of a kind of model that is also built without one."""
    optional = "add_pooling_layer" in inspect.signature(type(model).__init__).parameters
    return optional and all(name.startswith(f"{POOLER}.") for name in missing)


def _refusal(place: Path, kind: str, missing: list[str], shapes: list[str], unused: list[str]) -> str:
    groups = ((missing, "not stored"), (shapes, "of another shape"), (unused, "stored but no part of it"))
    got = [f"{len(names)} {what} ({shortened_names(names, NAMED)})" for names, what in groups if names]
    return (
        f"{place}: expected all weights of {kind}, got {'; '.join(got)}. What is missing would be random: store the "
        "whole model (save_pretrained), or name under architectures in config.json what was stored"
    )


def _shape(size: Any) -> str:
    return "x".join(map(str, size)) or "a number"

"""Before the first step: what is refused, and what the header of a run file says."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import torch
from torch import nn

from normgauge.errors import InputError
from normgauge.monitor.layers import Layer, class_name
from normgauge.monitor.sheet import COLUMNS, TOTALS, described
from normgauge.version import __version__


def check(model: nn.Module, budget: float, every: int | None, readings: int | None, batch: Any) -> None:
    """Refuse what cannot be watched.

    Raises:
        InputError: with what was expected, what came and what to do.
    """
    if isinstance(model, nn.DataParallel):
        raise InputError(
            "nn.DataParallel copies the model to every device at each step, so hooks and gradients of the copies are "
            "lost; give the model inside it (model.module), or use DistributedDataParallel."
        )
    if not any(True for _ in model.parameters()):
        raise InputError(f"this {type(model).__name__} has no parameters: there is nothing to watch.")
    if not 0.0 < budget < 1.0:
        raise InputError(f"expected a budget between 0 and 1, such as 0.03 for three per cent; got {budget}.")
    if every is not None and (not isinstance(every, int) or every < 1):
        raise InputError(f"expected every to be a whole number of steps, at least 1, or None; got {every!r}.")
    if readings is not None and (readings < 1 or batch is None):
        raise InputError("full readings need a batch and a number of steps between them: batch=..., readings=1000.")


def header_of(
    model: nn.Module, layers: Sequence[Layer], device: str, world: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The first line of a run file.

    Args:
        model: the network.
        layers: what is watched of it, in the order of every column.
        device: of the first weight.
        world: how many processes train the model together.
        config: the settings of the monitor, and what the user wants to keep.
    """
    return {
        "kind": "header",
        "format": "normgauge-run",
        "schema": 1,
        "run": uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "versions": {"normgauge": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "device": device,
        "world": world,
        "model": {"name": class_name(model), "parameters": sum(p.numel() for p in model.parameters())},
        "layers": [layer.described() for layer in layers],
        "columns": described(COLUMNS),
        "totals": described(TOTALS),
        "config": dict(config),
    }

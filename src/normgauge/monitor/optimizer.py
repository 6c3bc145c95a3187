"""What the optimizer does to each parameter, as its groups say now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from normgauge.monitor.sheet import Column, Row


def settings_of(optimizer: torch.optim.Optimizer | None) -> dict[int, Row]:
    """Rate, momentum and weight decay of every parameter, by its identity; what `at_hand` cannot read is left out."""
    found: dict[int, Row] = {}
    for group in [] if optimizer is None else optimizer.param_groups:
        found.update(dict.fromkeys(map(id, group["params"]), _settings(group)))
    return found


def first_rate(optimizer: torch.optim.Optimizer | None) -> float | None:
    """The learning rate of the first group, where there is one and it is at hand."""
    return None if optimizer is None else at_hand(optimizer.param_groups[0]["lr"])


def at_hand(value: Any) -> float | None:
    """A setting as a float; None where it is not a number, or reading it would wait for a device."""
    waits = isinstance(value, Tensor) and value.device.type != "cpu"
    return float(value) if isinstance(value, SupportsFloat) and not waits else None


def _settings(group: Mapping[str, Any]) -> Row:
    """The settings of one group; the first beta of Adam counts as its momentum."""
    betas = group.get("betas")
    given: dict[Column, Any] = {
        "rate": group.get("lr"),
        "momentum": group.get("momentum") if betas is None else betas[0],
        "weight_decay": group.get("weight_decay"),
    }
    numbers = {name: at_hand(value) for name, value in given.items()}
    return {name: number for name, number in numbers.items() if number is not None}

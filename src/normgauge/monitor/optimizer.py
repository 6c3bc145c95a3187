"""What the optimizer does to each parameter, as its groups say now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from normgauge.core.errors import InputError
from normgauge.monitor.sheet import Column, Row

MOST_GROUPS = 8  # of which the decay is looked at in every step
Optimizers = torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None


def optimizers_of(given: Optimizers) -> tuple[Any, ...]:
    """The optimizers of a training, of which there may be several (Muon beside AdamW, one a parameter in backward).

    Raises:
        InputError: for something without groups of parameters.
    """
    if given is None:
        return ()
    alone = getattr(given, "param_groups", None) is not None
    table: Any = given.values() if isinstance(given, Mapping) else given
    several = (given,) if alone else tuple(table)
    for one in several:
        if getattr(one, "param_groups", None) is None:
            raise InputError(f"expected an optimizer, or several in a list; got {type(one).__name__}.")
    return several


def settings_of(optimizers: Iterable[Any]) -> dict[int, Row]:
    """Rate, momentum and weight decay of every parameter, by its identity; what `at_hand` cannot read is left out."""
    found: dict[int, Row] = {}
    for group in (group for one in optimizers for group in one.param_groups):
        found.update(dict.fromkeys(map(id, group["params"]), _settings(group)))
    return found


def first_rate(optimizers: Sequence[Any]) -> float | None:
    """The learning rate of the first group, where there is one and it is at hand."""
    return at_hand(optimizers[0].param_groups[0].get("lr")) if optimizers else None


def largest_decay(optimizers: Sequence[Any]) -> float | None:
    """The largest rate times weight_decay of the first few groups; None where none of them has both at hand."""
    groups = islice((group for one in optimizers for group in one.param_groups), MOST_GROUPS)
    known = ((at_hand(group.get("lr")), at_hand(group.get("weight_decay"))) for group in groups)
    return max((rate * decay for rate, decay in known if rate is not None and decay is not None), default=None)


def at_hand(value: Any) -> float | None:
    """A setting as a float; None where it is not a number, or reading it would wait for a device."""
    if type(value) is float:  # as nearly always, at every step
        return value
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

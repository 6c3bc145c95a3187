"""Layers measured by their written-out equations: the tape runs these in the layer's place and checks that they agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

EXPANSIONS: dict[Any, Callable[..., Any]] = {}


def expansion_of(target: Any) -> Callable[..., Any] | None:
    """The written-out form of a module or function, or None."""
    if not isinstance(target, nn.Module):
        return EXPANSIONS.get(target)
    kind = type(target)
    for ancestor in kind.__mro__:
        if ancestor in EXPANSIONS:
            return EXPANSIONS[ancestor] if kind.forward is ancestor.forward else None
    return None

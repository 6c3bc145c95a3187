"""What a trick is: a module that is hard to trace, and the conditions it needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Trick:
    """A module and the conditions it needs.

    Attributes:
        precision: what it rounds to inside.
        native: what the model as a whole runs in.
        world: what must be in force around every run.
        hint: from the batch to an input at which it behaves otherwise.
        shape: of the batch, from samples and width.
    """

    module: nn.Module
    precision: torch.dtype = torch.float64
    native: torch.dtype = torch.float64
    world: Callable[[], AbstractContextManager[object]] = nullcontext
    hint: Callable[[Tensor], Tensor] = torch.abs
    mode: str = "eval"
    shape: Callable[[int, int], tuple[int, ...]] = field(default=lambda samples, width: (samples, width))
    alone: bool = False  # nothing may stand before or behind it
    label: str = ""  # which variant it is, where the module does not say so


Maker = Callable[[Random, int], Trick]
TRICKS: dict[str, Maker] = {}


class Told(nn.Module):
    """A forward given as a function of the module and its input."""

    def __init__(self, name: str, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.name, self.function = name, function
        for key, part in parts.items():
            if isinstance(part, Tensor):
                self.register_buffer(key, part)
            else:
                setattr(self, key, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)

    def extra_repr(self) -> str:
        return self.name


def trick(make: Maker) -> Maker:
    TRICKS[make.__name__] = make
    return make


def steep(rng: Random) -> float:
    return rng.choice([3.0, 20.0, 100.0])


def below(c: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.full_like(x, c)

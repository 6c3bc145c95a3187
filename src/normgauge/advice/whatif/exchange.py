"""One module in the place of another, or behind it, and everything as before afterwards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.instrument.rules.tried import of_module
from normgauge.instrument.trace.untouched import compiled_inside
from normgauge.render.numbers import shortened_names

LISTED = 8
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")


@dataclass(frozen=True, slots=True)
class ModuleChange:
    """A module that stands in the place of another while a question is answered."""

    path: str
    module: nn.Module
    said: str


@contextmanager
def swapped_modules(model: nn.Module, changes: Sequence[ModuleChange]) -> Iterator[None]:
    """While open, the modules of the changes stand at their paths; afterwards the model's own are back."""
    undo: list[tuple[Any, str, nn.Module]] = []
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # torch's own encoder layer looks at its normalizers for it
    try:
        for change in changes:
            undo.append(swap_in(model, change))
        yield
    finally:
        for table, key, module in reversed(undo):
            table[key] = module
        torch.backends.mha.set_fastpath_enabled(fast)


def swap_in(model: nn.Module, change: ModuleChange) -> tuple[Any, str, nn.Module]:
    """Put the module of a change in its place; returns the table of the owner, the key there and what it held."""
    owner, _, key = change.path.rpartition(".")
    table: Any = at_path(model, owner)._modules
    before = table[key]
    table[key] = change.module
    return table, key, before


def at_path(model: nn.Module, path: str) -> nn.Module:
    """The module at a path, through compiled parts.

    Raises:
        KeyError: when there is none.
    """
    for part in path.split(".") if path else ():
        model = compiled_inside(model)._modules[part]  # type: ignore[assignment]
    return compiled_inside(model)


def known_normalizers(model: nn.Module) -> str:
    """A clause that lists the normalizers of a model, for error sentences."""
    names = [name for name, module in model.named_modules() if name and of_module(module) is not None]
    if not names:
        return "it has no normalizer that is a module"
    return f"its normalizers are {shortened_names(names, LISTED)}"


def hooked_like(module: nn.Module, original: nn.Module) -> nn.Module:
    """The module with the user's hooks and the mode of the one it stands for."""
    for name in HOOKS:
        module.__dict__[name] = OrderedDict(original.__dict__[name])
    return module.train(original.training)


def normalized_twin(layer: nn.Module, norm: nn.Module) -> nn.Module:
    """A twin of the layer, sharing its weights, with a normalizer behind it; the layer itself stays as it is."""
    twin = object.__new__(type(layer))  # copy.copy would refuse parametrized layers
    twin.__dict__.update(layer.__dict__)
    for name in ("_modules", *HOOKS):
        twin.__dict__[name] = OrderedDict(layer.__dict__[name])
    append_normalizer(twin, norm)
    return twin


def append_normalizer(layer: nn.Module, norm: nn.Module) -> None:
    """Put a normalizer behind a layer, in place, as its child ``norm``: the layer's own weights keep their names."""
    key = next(k for k in ("norm", *(f"norm{i}" for i in range(2, 99))) if k not in layer._modules)
    layer._modules[key] = norm.train(layer.training)
    if not (isinstance(layer, nn.Sequential) and type(layer).forward is nn.Sequential.forward):
        layer.register_forward_hook(partial(_through_child, key=key))  # a Sequential runs its last child anyway


def _through_child(layer: nn.Module, given: Any, out: Tensor, key: str) -> Any:
    """A forward hook, once ``key`` is fixed, that sends a layer's output through its own child."""
    return layer._modules[key](out)  # type: ignore[misc]

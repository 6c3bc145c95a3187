"""Constants and layers as they were when a step used them, whatever happens to them afterwards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normgauge.instrument.trace.lent import Lent
from normgauge.instrument.trace.step import tensors_in

HOOKS = tuple(name for name in nn.Module().__dict__ if name.endswith(("_hooks", "_hooks_with_kwargs")))


def memory_place(tensor: Tensor) -> int:
    """Return the address of a tensor's memory; 0 if it has none."""
    tensor = tensor.held if isinstance(tensor, Lent) else tensor
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse and opaque tensors have no storage
        return 0


def memory_geometry(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Size, stride and offset: where in its storage a tensor lies."""
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())


def strided(tensor: Tensor) -> bool:
    """Whether a tensor is a plain array in memory, with strides."""
    return tensor.layout == torch.strided and not tensor.is_quantized


class Held:
    """Aliases of constants: they cost nothing, and turn into copies just before their memory is overwritten.

    The alias, not the tensor, is what a step keeps: a later ``tensor.data = …`` does not reach it.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[Tensor, Any, Tensor]] = {}  # id -> tensor, place and geometry, alias
        self.by_place: dict[int, list[int]] = {}

    def hold(self, tensor: Tensor) -> Tensor:
        """A tensor with the contents ``tensor`` has now; the same one each time while nothing changes."""
        if not strided(tensor):
            return tensor
        where = (memory_place(tensor), memory_geometry(tensor))
        entry = self.known.get(id(tensor))
        if entry is not None and entry[1] == where:
            return entry[2]
        alias = tensor.detach()
        self.known[id(tensor)] = (tensor, where, alias)  # holding the tensor keeps its id from being used again
        self.by_place.setdefault(where[0], []).append(id(tensor))
        return alias

    def before_write(self, storage: int) -> None:
        """Give the aliases that lie in ``storage`` memory of their own."""
        for key in self.by_place.pop(storage, ()):
            _, where, alias = self.known.get(key, (None, None, None))
            if where is not None and alias is not None and where[0] == storage:
                alias.data = alias.clone()
                del self.known[key]

    def layer(self, module: nn.Module, kind: type[nn.Module]) -> nn.Module:
        """``module`` as it is now: its settings, its tensors, parametrized ones evaluated; no hooks."""
        state = dict(module.__dict__)
        state.pop("forward", None)
        state.update((name, type(state[name])()) for name in HOOKS if name in state)
        state["_parameters"] = dict(state["_parameters"])
        if parametrize.is_parametrized(module):
            state["_parameters"].update((name, getattr(module, name)) for name in module.parametrizations)  # type: ignore[union-attr]
            state["_modules"] = {k: m for k, m in state["_modules"].items() if k != "parametrizations"}
        for table in ("_parameters", "_buffers"):
            state[table] = {k: None if t is None else self.hold(t) for k, t in state[table].items()}
        state.update((k, self.hold(t)) for k, t in state.items() if isinstance(t, Tensor))
        copy = object.__new__(kind)
        copy.__dict__.update(state)
        return copy


def own_tensors(module: nn.Module) -> list[Tensor]:
    """A module's own parameters, buffers and tensor attributes."""
    state = module.__dict__
    return tensors_in([state["_parameters"], state["_buffers"], [v for v in state.values() if isinstance(v, Tensor)]])


def fresh_copy(module: nn.Module) -> nn.Module:
    """A held layer with tensors of its own, for a run that may overwrite them."""
    copy = object.__new__(type(module))
    copy.__dict__.update(module.__dict__)
    for table in ("_parameters", "_buffers"):
        copy.__dict__[table] = {k: None if t is None else t.clone() for k, t in module.__dict__[table].items()}
    return copy

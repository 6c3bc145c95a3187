"""Lend a model out and give it back bit for bit as it was."""

from __future__ import annotations

import functools
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.overrides import TorchFunctionMode

from normgauge.errors import InputError
from normgauge.trace.inputs import mapped

DEEPEST = 2  # plain objects on the way to something the model hides; a trainer's own world is not the model's
PLAIN_DATA = (str, bytes, int, float, complex, type(None), Tensor, type, types.ModuleType, types.FunctionType)


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside compiled and distributed wrappers.

    Raises:
        InputError: for something that is not a module.
    """
    while True:
        if not isinstance(model, nn.Module):
            raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        if is_compiled(model):
            model = compiled_inside(model)
        elif isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        else:
            return model


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile wrapped this module; its class is known by name, since importing it loads the compiler."""
    return type(module).__name__ == "OptimizedModule"


def compiled_inside(module: Any) -> nn.Module:
    """The module as it was before torch.compile."""
    while is_compiled(module):
        module = module._orig_mod
    return module


RMS_NORMS = (F.rms_norm, torch.rms_norm)


def default_eps(dtype: torch.dtype) -> float:
    """What an RMSNorm without an ε adds to the mean square of a tensor of ``dtype``: halves are squared in float32."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps


def without_eps(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call is an RMSNorm that leaves its ε open."""
    return func in RMS_NORMS and (args[3] if len(args) > 3 else kwargs.get("eps")) is None


class OwnEps(TorchFunctionMode):
    """An RMSNorm without an ε takes that of the precision it works in: here, of the model's own, not of the copy's."""

    def __init__(self, own: torch.dtype) -> None:
        super().__init__()
        self.eps = default_eps(own)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if without_eps(func, args, kwargs):
            args, kwargs = args[:3], {**kwargs, "eps": self.eps}
        return func(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Everything:
    """What a model is made of: modules it registers or hides in plain attributes, containers, arrays, other objects.

    Attributes:
        modules: registered ones first.
        tables: the ``__dict__`` of every module and plain object, and a copy of it.
        boxes: lists, dicts, sets and deques, each with a copy.
        arrays: numpy arrays and random generators, each with what brings them back.
    """

    modules: list[nn.Module]
    tables: list[tuple[dict[str, Any], dict[str, Any]]]
    boxes: list[tuple[Any, Any]]
    arrays: list[Callable[[], object]]

    def restore(self) -> None:
        """Put everything back."""
        for table, before in self.tables:
            table.clear()
            table.update(before)
        for box, before in self.boxes:
            kind = base_of(box)
            if kind is list:
                list.__setitem__(box, slice(None), before)
                continue
            kind.clear(box)
            (deque.extend if kind is deque else kind.update)(box, before)
        for bring_back in self.arrays:
            bring_back()


def base_of(box: Any) -> Any:
    """The container a value is, whatever its class forbids."""
    return next(kind for kind in (OrderedDict, dict, list, set, deque) if isinstance(box, kind))


def everything(model: nn.Module) -> Everything:
    """Look at what can be reached from a model through attributes, containers and at most `DEEPEST` plain objects."""
    found = Everything([], [], [], [])
    seen: set[int] = set()
    stack: list[tuple[Any, int]] = [(module, 0) for module in reversed(list(model.modules()))]
    numpy = sys.modules.get("numpy")
    while stack:
        item, depth = stack.pop()
        if id(item) in seen or isinstance(item, PLAIN_DATA):
            continue
        seen.add(id(item))
        if isinstance(item, nn.Module):
            stack.extend((part, 0) for part in reversed(_parts(item, found)))
        elif isinstance(item, list | tuple | dict | set | deque):
            stack.extend((part, depth) for part in reversed(_parts(item, found)))
        elif numpy is not None and isinstance(item, numpy.ndarray) and item.dtype != object:
            found.arrays.append(functools.partial(numpy.copyto, item, item.copy()))
        elif isinstance(item, torch.Generator):
            found.arrays.append(functools.partial(item.set_state, item.get_state()))
        elif isinstance(item, random.Random):
            found.arrays.append(functools.partial(item.setstate, item.getstate()))
        elif depth < DEEPEST and _plain_object(item):
            stack.extend((part, depth + 1) for part in reversed(_parts(item, found)))
    return found


def _parts(item: Any, found: Everything) -> list[Any]:
    """Note one thing that can change, and what it holds."""
    if isinstance(item, tuple):
        return list(item)
    if isinstance(item, list | dict | set | deque):
        kind = base_of(item)
        found.boxes.append((item, dict(kind.items(item)) if isinstance(item, dict) else list(kind.__iter__(item))))
        return list(kind.values(item)) if isinstance(item, dict) else list(kind.__iter__(item))
    if isinstance(item, nn.Module):
        found.modules.append(item)
    found.tables.append((item.__dict__, dict(item.__dict__)))
    return list(item.__dict__.values())


def _plain_object(item: Any) -> bool:
    """Whether something is an instance of a class written in Python that is no part of torch, and no class itself."""
    root = type(item).__module__.partition(".")[0]
    known = ("torch", "numpy", "builtins", "threading", "logging", "functools")
    return root not in known and isinstance(getattr(item, "__dict__", None), dict)


@contextmanager
def untouched(
    model: nn.Module, dtype: torch.dtype | None, device: torch.device | None, training: bool, native: torch.dtype | None
) -> Iterator[None]:
    """Inside, the model holds copies of its tensors in ``dtype`` on ``device`` (None: their own), then what it held.

    The ``__dict__`` of every module and plain object that can be reached is put aside whole, so parameters, buffers,
    gradients, flags, hooks and whatever attributes the forward sets come back as the same objects, also when the body
    raises; so do lists, tables, arrays and the random numbers of torch, numpy and Python. An RMSNorm without an ε goes
    by ``native``, the model's own precision. Spectral normalization is held at its last estimate: in train mode every
    call would move the weights.
    """
    whole = everything(model)
    states = random_states()
    copies: dict[int, Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            return _copy(value, copies, dtype, device)
        if type(value) is tuple and any(isinstance(part, Tensor) for part in value):
            return tuple(map(copied, value))
        return value

    scripted = {id(m.__dict__) for m in whole.modules if isinstance(m, torch.jit.ScriptModule)}
    tables = {id(m.__dict__["_modules"]) for m in whole.modules if id(m.__dict__) not in scripted}
    try:
        for table, before in whole.tables:
            if id(table) not in scripted:  # keeps its tensors in compiled code, out of reach
                table.update((key, copied(value)) for key, value in before.items())
        for box, before in whole.boxes:
            inside = compiled_inside if id(box) in tables else copied
            if isinstance(box, set):
                continue
            for key, value in before.items() if isinstance(before, dict) else enumerate(before):
                if (other := inside(value)) is not value:
                    base_of(box).__setitem__(box, key, other)
        for module in whole.modules:
            if id(module.__dict__) not in scripted:
                module.__dict__["training"] = training and not iterates(module)
        with OwnEps(native) if native not in (None, dtype) else nullcontext():
            yield
    finally:
        whole.restore()
        bring_back(states)


def random_states() -> tuple[Any, ...]:
    """The states of the random numbers of torch, Python and, where it is loaded, numpy."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), cuda, random.getstate(), None if numpy is None else numpy.random.get_state()


def bring_back(states: tuple[Any, ...]) -> None:
    """Undo every draw since `_random_states`."""
    cpu, cuda, plain, numbers = states
    torch.set_rng_state(cpu)
    random.setstate(plain)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    if numbers is not None:
        sys.modules["numpy"].random.set_state(numbers)


def drawn_outside_torch(before: tuple[Any, ...]) -> bool:
    """Whether Python's or numpy's own generator was asked since `random_states`."""
    _, _, plain, numbers = random_states()
    same = numbers is None or before[3] is None or all(map(_equal, numbers, before[3]))
    return plain != before[2] or not same


def _equal(a: Any, b: Any) -> bool:
    return bool((a == b).all()) if isinstance(a, sys.modules["numpy"].ndarray) else bool(a == b)


def iterates(module: nn.Module) -> bool:
    """Whether train mode makes the module's own weights move at every call (spectral normalization, new and old)."""
    hooks = module.__dict__.get("_forward_pre_hooks", {}).values()
    return type(module).__name__ == "_SpectralNorm" or any(type(h).__name__ == "SpectralNorm" for h in hooks)


def _copy(tensor: Tensor, copies: dict[int, Tensor], dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    if id(tensor) not in copies:  # tied weights stay tied
        copies[id(tensor)] = _cast(tensor, dtype, device)
    return copies[id(tensor)]


def _cast(tensor: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    data = tensor.detach().to(device=device, dtype=dtype if tensor.is_floating_point() else None, copy=True)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad and data.is_floating_point())
    return data


def cast_tree(tree: Any, dtype: torch.dtype | None, device: torch.device | None) -> Any:
    """Copies of all tensors of a nested structure, floating ones in ``dtype``."""
    return mapped(lambda leaf: _cast(leaf, dtype, device), tree)

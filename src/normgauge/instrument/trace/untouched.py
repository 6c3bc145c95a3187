"""Lend a model out and give it back bit for bit as it was."""

from __future__ import annotations

import functools
import random
import sys
import types
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from normgauge.core.errors import InputError
from normgauge.instrument.trace.held import memory_geometry, memory_place, strided
from normgauge.instrument.trace.inputs import map_tensors
from normgauge.instrument.trace.lent import Lent, is_lendable
from normgauge.instrument.trace.place import set_torch_random, torch_random
from normgauge.instrument.trace.precision import OwnEps

DEEPEST = 2  # plain objects on the way to something the model hides; a trainer's own world is not the model's
PLAIN_DATA = (str, bytes, int, float, complex, type(None), Tensor, type, types.ModuleType)


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside compiled and distributed wrappers that do nothing of their own.

    Raises:
        InputError: for something that is not a module, and for a compiled one with hooks of its own.
    """
    while True:
        if not isinstance(model, nn.Module):
            do = "give the model first, then the batch"
            if isinstance(model, str | Path):
                do = f"of a folder that is ng.load_model({str(model)!r})"
            raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}; {do}")
        hooked = bool(model._forward_hooks or model._forward_pre_hooks)
        if is_compiled(model):
            if hooked:
                raise InputError("model: a compiled model with hooks of its own; register them on the model inside")
            model = compiled_inside(model)
        elif type(model) in (DataParallel, DistributedDataParallel) and not hooked:
            model = model.get_submodule("module")
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


@dataclass(frozen=True, slots=True)
class Everything:
    """What a model is made of: modules it registers or hides in plain attributes, containers, arrays, other objects.

    Attributes:
        modules: registered ones first.
        tables: the ``__dict__`` of every module and plain object, and a copy of it.
        boxes: lists, dicts, sets and deques, each with its contents by key or place.
        arrays: numpy arrays and random generators, each with what brings them back.
        buffers: numpy arrays and other memory that is no tensor's.
    """

    modules: list[nn.Module]
    tables: list[tuple[dict[str, Any], dict[str, Any]]]
    boxes: list[tuple[Any, dict[Any, Any]]]
    arrays: list[Callable[[], object]]
    buffers: list[Any]

    def restore(self) -> None:
        """Put everything back."""
        for table, before in self.tables:
            table.clear()
            table.update(before)
        for box, before in self.boxes:
            kind = base_of(box)
            kind.clear(box)
            if kind in (list, deque):
                kind.extend(box, before.values())
            else:
                kind.update(box, before if isinstance(box, dict) else before.values())
        for bring_back in self.arrays:
            bring_back()


def base_of(box: Any) -> Any:
    """Return the built-in container a value is, whose methods work whatever its class overrides."""
    return next(kind for kind in (OrderedDict, dict, list, set, deque) if isinstance(box, kind))


def reachable_objects(model: nn.Module) -> Everything:
    """Collect what can be reached from a model through attributes, containers and at most `DEEPEST` plain objects."""
    found = Everything([], [], [], [], [])
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
            found.buffers.append(item)
            if item.flags.writeable:
                found.arrays.append(functools.partial(numpy.copyto, item, item.copy()))
        elif isinstance(item, array | bytearray | memoryview):
            found.buffers.append(item)
            found.arrays.append(functools.partial(_put_back, item, bytes(item)))
        elif isinstance(item, types.FunctionType):
            stack.extend((cell, depth) for cell in _closed_over(item))
        elif isinstance(item, types.MethodType):
            stack.extend((part, depth) for part in (item.__self__, item.__func__))
        elif isinstance(item, functools.partial):
            stack.extend((part, depth) for part in (item.func, item.args, item.keywords))
        elif numpy is not None and isinstance(item, numpy.random.Generator):
            found.arrays.append(functools.partial(setattr, item.bit_generator, "state", item.bit_generator.state))
        elif (numpy is not None and isinstance(item, numpy.random.RandomState)) or isinstance(item, torch.Generator):
            found.arrays.append(functools.partial(item.set_state, item.get_state()))
        elif isinstance(item, random.Random):
            found.arrays.append(functools.partial(item.setstate, item.getstate()))
        elif depth < DEEPEST and _plain_object(item):
            stack.extend((part, depth + 1) for part in reversed(_parts(item, found)))
    return found


def _put_back(buffer: array[Any] | bytearray | memoryview, content: bytes) -> None:
    """Give a buffer the bytes it had; one whose length is another now, or that cannot be written, stays."""
    view = memoryview(buffer).cast("B") if memoryview(buffer).contiguous else None
    if view is not None and not view.readonly and len(view) == len(content):
        view[:] = content


def _closed_over(function: types.FunctionType) -> list[Any]:
    """Return the variables a function closes over."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return found


def _parts(item: Any, found: Everything) -> list[Any]:
    """Note an object that can change, and return what it holds."""
    if isinstance(item, tuple):
        return list(item)
    if isinstance(item, list | dict | set | deque):
        kind = base_of(item)
        contents = dict(kind.items(item) if isinstance(item, dict) else enumerate(kind.__iter__(item)))
        found.boxes.append((item, contents))
        return list(contents.values())
    if isinstance(item, nn.Module):
        found.modules.append(item)
    found.tables.append((item.__dict__, dict(item.__dict__)))
    return list(item.__dict__.values())


def _plain_object(item: Any) -> bool:
    """Whether an object's class is written in Python and belongs to neither torch nor the standard tools."""
    root = type(item).__module__.partition(".")[0]
    known = ("torch", "numpy", "builtins", "threading", "logging", "functools")
    return root not in known and isinstance(getattr(item, "__dict__", None), dict)


@contextmanager
def untouched(
    model: nn.Module,
    dtype: torch.dtype | None,
    device: torch.device | None,
    training: bool,
    native: torch.dtype | None,
    lend: bool = False,
) -> Iterator[None]:
    """Inside, the model holds copies of its tensors in ``dtype`` on ``device`` (None: unchanged); afterwards its own.

    With ``lend``, large weights are not copied but `Lent`, and where they keep their precision given as they are.

    The ``__dict__`` of every module and plain object that can be reached is put aside whole, so parameters, buffers,
    gradients, flags, hooks and whatever attributes the forward sets come back as the same objects, also when the body
    raises; so do lists, tables, arrays and the random numbers of torch, numpy and Python. An RMSNorm without an ε goes
    by ``native``, the model's own precision. Spectral normalization is held at its last estimate: in train mode every
    call would move the weights.
    """
    whole = reachable_objects(model)
    states = random_states()
    copies = Copies(dtype, device, lend)
    copies.meet(value for _, before in (*whole.tables, *whole.boxes) for value in before.values())

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            return copies.of(value)
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
            for key, value in before.items():
                if (other := inside(value)) is not value:
                    base_of(box).__setitem__(box, key, other)
        model.train(training)  # as its user would: it may have a say in that
        for module in whole.modules:
            if iterates(module):
                module.__dict__["training"] = False
        with OwnEps(native) if native not in (None, dtype) else nullcontext():
            yield
    finally:
        whole.restore()
        bring_back(states)


def random_states() -> tuple[Any, ...]:
    """The states of the random numbers of torch, Python and, where it is loaded, numpy."""
    numpy = sys.modules.get("numpy")
    return torch_random(), random.getstate(), None if numpy is None else numpy.random.get_state()


def bring_back(states: tuple[Any, ...]) -> None:
    """Restore the states that `random_states` returned."""
    numbers_of_torch, plain, numbers = states
    set_torch_random(numbers_of_torch)
    random.setstate(plain)
    if numbers is not None:
        sys.modules["numpy"].random.set_state(numbers)


def drawn_outside_torch(before: tuple[Any, ...]) -> bool:
    """Whether Python's or numpy's generator was used since `random_states`."""
    _, plain, numbers = random_states()
    same = numbers is None or before[2] is None or all(map(sys.modules["numpy"].array_equal, numbers, before[2]))
    return plain != before[1] or not same


def iterates(module: nn.Module) -> bool:
    """Whether train mode makes the module's own weights move at every call (spectral normalization, new and old)."""
    hooks = module.__dict__.get("_forward_pre_hooks", {}).values()
    return type(module).__name__ == "_SpectralNorm" or any(type(h).__name__ == "SpectralNorm" for h in hooks)


class Copies:
    """Copies tensors so that those which were the same, or shared memory, do so again."""

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None, lend: bool = False) -> None:
        self.dtype, self.device, self.lend = dtype, device, lend and device is None
        self.known: dict[int, Tensor] = {}
        self.sharers: dict[int, set[int]] = {}
        self.memories: dict[tuple[int, torch.dtype], Tensor] = {}

    def meet(self, values: Iterable[Any]) -> None:
        """Note which tensors share their memory."""
        for value in values:
            if isinstance(value, Tensor) and (memory := _plain_memory(value)):
                self.sharers.setdefault(memory, set()).add(id(value))

    def of(self, tensor: Tensor) -> Tensor:
        """Return the copy of a tensor, the same one each time."""
        if id(tensor) not in self.known:
            self.known[id(tensor)] = self.made(tensor)
        return self.known[id(tensor)]

    def made(self, tensor: Tensor) -> Tensor:
        """Make a copy; of a tensor that shares its memory, a view of a copy of that memory."""
        if (type(tensor) not in PLAIN_TENSORS and own_operations(tensor)) or tensor.device.type == "meta":
            return tensor  # a plain copy would be something else, or nothing
        if isinstance(tensor, Lent) and self.dtype is not None:
            return _as_given(tensor, Lent(tensor.held, self.dtype))
        key = (_plain_memory(tensor), tensor.dtype)
        alone = len(self.sharers.get(key[0], ())) < 2
        if self.lend and alone and isinstance(tensor, nn.Parameter) and is_lendable(tensor):
            data = tensor.detach()
            return _as_given(tensor, data if self.dtype is None else Lent(data, self.dtype))
        if alone:
            return _cast(tensor, self.dtype, self.device)
        if key not in self.memories:
            entries = tensor.untyped_storage().nbytes() // tensor.element_size()
            whole = tensor.detach().as_strided((entries,), (1,), 0)
            self.memories[key] = _cast(whole, self.dtype, self.device)
        return _as_given(tensor, self.memories[key].as_strided(*memory_geometry(tensor)))


PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer, Lent)


def own_operations(tensor: Tensor) -> bool:
    """Whether a subclass of Tensor does something of its own when a function is called on it."""
    kind = type(tensor)
    plain = (torch._C._disabled_torch_function_impl, Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    return function not in plain or kind.__torch_dispatch__ is not Tensor.__torch_dispatch__


def _plain_memory(tensor: Tensor) -> int:
    """Return the address of a plain tensor's memory; 0 if it has none of its own."""
    if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer) or tensor.is_nested:
        return 0
    return memory_place(tensor) if strided(tensor) and tensor.device.type != "meta" else 0


def _cast(tensor: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    data = tensor.detach().to(device=device, dtype=dtype if tensor.is_floating_point() else None, copy=True)
    return _as_given(tensor, data)


def _as_given(tensor: Tensor, data: Tensor) -> Tensor:
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad and data.is_floating_point())
    return data


def cast_tree(tree: Any, dtype: torch.dtype | None, device: torch.device | None) -> Any:
    """Copies of all tensors of a nested structure, floating ones in ``dtype``."""
    return map_tensors(lambda leaf: _cast(leaf, dtype, device), tree)

"""What a model's output may depend on besides its parameters: everything it holds, leaf by leaf, to compare later."""

from __future__ import annotations

import array
import contextlib
import copyreg
import functools
import pathlib
import re
import struct
import sys
import threading
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.instrument.fingerprint import bits

MOST = 200_000
"""Objects that are looked at in one model."""

WHOLE = 2**28
"""Bytes of a tensor or array up to which all of them are kept and compared; of larger ones a sample."""

SAMPLE = 2**16
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, range, slice)
MODULE_KEYS = frozenset(vars(nn.Module()))
RUNNING = ("running_mean", "running_var", "num_batches_tracked")
FIXED = (
    *(getattr(types, name) for name in dir(types) if name.endswith(("DescriptorType", "CodeType", "ModuleType"))),
    *(type(Ellipsis), type(NotImplemented), types.GenericAlias, types.UnionType, re.Pattern, pathlib.PurePath),
    *(torch.finfo, torch.iinfo, torch.Stream, torch.Event, torch.jit.ScriptFunction),
    *(type(threading.Lock()), type(threading.RLock())),
)
"""Classes whose objects never change, or whose changes no output shows."""

TORCH = ("amp", "autograd", "distributed", "jit", "optim", "profiler", "utils.hooks")
COMPILER = ("_dynamo", "_functorch", "_inductor", "_ops")
BESIDE = ("logging.", *(f"torch.{name}." for name in (*TORCH, *COMPILER)))
"""Modules whose objects are beside a model's numbers: what it is trained, shared out, compiled and logged with."""

BARE = frozenset((list, tuple, dict, set, frozenset, deque, torch.Size))  # containers without attributes
SCALARS = (bool, int, float, complex, str, bytes)
TOOLS = frozenset(("torch", "numpy", "normgauge")) | frozenset(sys.stdlib_module_names)


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Something that is compared by identity."""

    what: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.what is other.what

    __hash__ = None  # type: ignore[assignment]  # what is compared by contents has no place in a set


@dataclass(frozen=True, slots=True, eq=False)
class Bytes:
    """The contents of a tensor or an array; ``copied`` makes them last."""

    kind: str
    data: Tensor
    mark: tuple[object, ...] = ()

    def copied(self) -> Bytes:
        """The same in memory of its own."""
        return self if self.mark else replace(self, data=self.data.clone())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bytes) or self.kind != other.kind or self.mark != other.mark:
            return False
        return self.data.device == other.data.device and _equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]  # what is compared by contents has no place in a set


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """Something that nobody knows how to compare: it is the same as nothing, itself included."""

    what: str

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # what is compared by contents has no place in a set


def _equal(before: Tensor, now: Tensor) -> bool:
    if before.dtype != now.dtype or before.shape != now.shape:
        return False
    return torch.equal(bits(before), bits(now))  # as bits: a nan is itself, and 0 is not −0


State = dict[str, list[Any]]


def held_state(model: nn.Module, followed: Mapping[int, Set[str]]) -> State:
    """Return every leaf of what a model holds and is no parameter of it, by the path of the module or of the buffer.

    Attributes of modules, in containers and objects too, classes outside torch and the standard library, whether
    something is of them or they are held themselves, functions with what they close over, hooks (functions by
    identity), and `forward` of every class; of compiled code what pickle would keep. ``followed`` says, by the id of a
    module, which of its buffers count as they are at any time.
    """
    return _Walk(model, followed).state()


class _Walk:
    """One walk; what is met a second time counts as the number of its first."""

    def __init__(self, model: nn.Module, followed: Mapping[int, Set[str]]) -> None:
        self.named, self.followed = dict(model.named_modules()), followed
        self.registered = {id(module): name for name, module in self.named.items()}
        self.parameters = {id(p): name for name, p in model.named_parameters()}
        self.seen: dict[int, int] = {}
        self.alive: list[object] = []  # so that no identity is used twice
        self.leaves: list[Any] = []
        self.stack: list[Any] = []

    def state(self) -> State:
        found: State = {}
        for name, module in self.named.items():
            self.leaves = found[name] = [Same(module)]
            self._module(module)
            self._run()
            for key, buffer in self._compared(module).items():
                self.leaves = found[f"{name}.{key}" if name else key] = []
                self._look(buffer)
                self._run()
        globally = vars(nn.modules.module)
        self.leaves = found[""]
        self._later([*_hooks(globally["_global_forward_hooks"]), *_hooks(globally["_global_forward_pre_hooks"])])
        self._run()
        return found

    def _compared(self, module: nn.Module) -> dict[str, Tensor | None]:
        """The buffers of a module but those that count as they are at any time."""
        followed = self.followed.get(id(module), ())
        return {key: buffer for key, buffer in module._buffers.items() if key not in followed}

    def _run(self) -> None:
        """Look at what waits, the last first."""
        while self.stack:
            if len(self.seen) > MOST:
                self.stack.clear()
                self.leaves.append(Unknown(f"more than {MOST} objects"))
                return
            self._look(self.stack.pop())

    def _later(self, parts: list[Any]) -> None:
        self.stack.extend(reversed(parts))

    def _look(self, item: Any) -> None:
        kind = type(item)
        if kind is Same:
            self.leaves.append(item)
        elif kind in PLAIN:
            self.leaves.append((kind, repr(item) if kind in (float, complex) else item))
        elif id(item) in self.parameters:
            self.leaves.append(("parameter", self.parameters[id(item)]))
        elif id(item) in self.registered:
            self.leaves.append(("module", self.registered[id(item)]))
        elif id(item) in self.seen:
            self.leaves.append(("again", self.seen[id(item)]))
        else:
            self.seen[id(item)] = len(self.seen)
            self.alive.append(item)
            self._open(item)

    def _open(self, item: Any) -> None:
        """Take apart something that is met for the first time."""
        for kinds, way in self._ways():
            if isinstance(item, kinds):
                way(item)
                return
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(item, numpy.ndarray):
            self._array(item)
        elif _stands_for_itself(type(item)):
            self.leaves.append(Same(item))
        else:
            self._object(item)

    def _ways(self) -> Iterator[tuple[Any, Callable[[Any], None]]]:
        yield (*weakref.ProxyTypes, super, types.TracebackType, types.FrameType), self._unknown
        yield BaseException, self._exception
        yield type, self._class
        yield Tensor, self._tensor
        yield (torch.UntypedStorage, torch.TypedStorage), self._storage
        yield nn.Module, self._module
        yield Mapping, self._mapping
        yield (list, tuple, deque), self._sequence
        yield (set, frozenset), self._set
        yield types.FunctionType, self._function
        yield types.MethodType, lambda item: self._later([item.__func__, item.__self__])
        yield (staticmethod, classmethod), lambda item: self._later([item.__func__])
        yield (types.BuiltinFunctionType, types.MethodWrapperType), self._builtin
        yield weakref.ReferenceType, lambda item: self._later([type(item), item()])
        yield SCALARS, self._scalar
        yield property, lambda item: self._later([item.fget])
        yield functools.cached_property, lambda item: self._later([item.func])
        yield functools.partial, lambda item: self._later([item.func, item.args, item.keywords])
        yield contextlib._GeneratorContextManager, lambda item: self._later([item.func, item.args, item.kwds])
        yield functools._lru_cache_wrapper, lambda item: self._later([item.__wrapped__])
        yield (bytearray, array.array, memoryview), lambda item: self.leaves.append((type(item), bytes(item)))

    def _tensor(self, tensor: Tensor) -> None:
        self.leaves.append(_tensor_bytes(tensor))

    def _storage(self, item: Any) -> None:
        memory = item if isinstance(item, torch.UntypedStorage) else item.untyped()
        self._tensor(torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory))

    def _unknown(self, item: Any) -> None:
        self.leaves.append(Unknown(f"{type(item).__module__}.{type(item).__qualname__}"))

    def _builtin(self, item: Any) -> None:
        """A function of compiled code by its name, and the object it is a method of."""
        self.leaves.append(item.__qualname__)
        self._later([item.__self__])

    def _scalar(self, item: Any) -> None:
        """A number or text of a class of its own: its value and its attributes."""
        kind = next(kind for kind in SCALARS if isinstance(item, kind))
        self.leaves.append(kind.__repr__(item))
        self._attributes(item)

    def _array(self, item: Any) -> None:
        """The bytes of a numpy array, or the objects in it."""
        said = f"array {item.dtype.str} {item.shape} {item.strides} {item.flags.writeable}"
        if item.dtype.hasobject:
            self._later([said, item.tolist()])
        elif item.nbytes <= WHOLE:
            self.leaves.append((said, item.tobytes()))
        else:
            part = item.flat[:: max(1, item.size // SAMPLE)]
            self.leaves.append((said, item.ctypes.data, part.tobytes()))

    def _mapping(self, item: Any) -> None:
        try:
            pairs = list(item.items())
        except Exception:  # a class of its own
            pairs = []
            self.leaves.append(Same(item))
        self.leaves.append((type(item), len(pairs)))
        self._later([part for pair in pairs for part in pair])
        self._attributes(item)

    def _sequence(self, item: Any) -> None:
        parts = list(item)
        if all(type(part) in PLAIN for part in parts):
            self.leaves.append((type(item), tuple(map(type, parts)), repr(parts)))
        else:
            self.leaves.append((type(item), len(parts)))
            self._later(parts)
        self._attributes(item)

    def _set(self, item: Any) -> None:
        if all(type(part) in PLAIN for part in item):
            self.leaves.append((type(item), tuple((type(part), part) for part in item)))
        else:
            self.leaves.append((type(item), len(item)))
            self._later(list(item))
        self._attributes(item)

    def _attributes(self, item: Any) -> bool:
        """The class of an object and its attributes, in slots too; whether it has some."""
        if type(item) in BARE:
            return False
        parts = {**dict(_slots(item)), **_table_of(item)}
        self._later([type(item), item.default_factory if isinstance(item, defaultdict) else None])
        self._table(parts)
        return bool(parts)

    def _function(self, function: types.FunctionType) -> None:
        """Code, defaults and what it closes over; not the globals it reads."""
        self.leaves.append((function.__code__, function.__name__, function.__qualname__, function.__doc__))
        if str(function.__module__).partition(".")[0] in TOOLS:
            return
        closed = []
        for cell in function.__closure__ or ():
            try:
                closed.append(cell.cell_contents)
            except ValueError:  # not filled yet
                closed.append(None)
        self._later([function.__defaults__, function.__kwdefaults__, *closed, *vars(function).values()])

    def _object(self, item: Any) -> None:
        """The attributes of an object, and of what compiled code keeps out of sight as much as pickle would keep."""
        has_parts = self._attributes(item)
        if _hides(type(item)):
            self._out_of_sight(item)
        elif not has_parts:
            self.leaves.append(Same(item))

    def _exception(self, item: BaseException) -> None:
        """What it says, what it came from and where it was raised: a traceback holds what functions had at hand."""
        self._attributes(item)
        self._later([item.args, item.__cause__, item.__context__, item.__traceback__])
        self._out_of_sight(item)

    def _out_of_sight(self, item: Any) -> None:
        try:
            way = copyreg.dispatch_table.get(type(item))
            kept = item.__reduce_ex__(4) if way is None else way(item)
            parts = [Same(item)] if isinstance(kept, str) else [*kept[:3], *map(list, filter(None, kept[3:5]))]
        except Exception:  # compiled code that tells nothing
            self._unknown(item)
        else:
            self._later(parts)

    def _table(self, table: Mapping[str, Any]) -> None:
        self._later([part for key in sorted(table, key=str) for part in (key, table[key])])

    def _class(self, kind: type) -> None:
        """A class and its bases by identity; of a model's own, and of metaclasses of its own, the attributes too."""
        self.leaves.append([Same(cls) for cls in kind.__mro__])
        self._later([cls for cls in (*kind.__mro__[1:], type(kind)) if _own(cls)])
        if _own(kind):
            self._table({k: v for k, v in vars(kind).items() if not _hidden(k) or isinstance(v, types.FunctionType)})

    def _module(self, module: nn.Module) -> None:
        """Settings, hooks, buffers, which parameters and modules there are, and the code of `forward`."""
        own = vars(module)
        hooks = [*_hooks(own.get("_forward_hooks", {})), *_hooks(own.get("_forward_pre_hooks", {}))]
        held = {key: part for key, part in own.items() if key not in MODULE_KEYS}
        followed = [(key, module._buffers.get(key)) for key in self.followed.get(id(module), ())]
        self.leaves.append([(k, None if p is None else p.shape) for k, p in (*module._parameters.items(), *followed)])
        inside = {key: Same(part) for key, part in module._modules.items()}
        registered = id(module) in self.registered
        hidden = {} if registered else {**module._parameters, **module._modules, **module._buffers}
        self.leaves += [list(inside), _forward(type(module))]
        self._table(held)
        self._later([hooks, list(module._buffers), hidden, type(module)])


def _tensor_bytes(tensor: Tensor) -> Bytes | tuple[object, ...]:
    said = f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)}"
    version = 0 if tensor.is_inference() else tensor._version
    data = tensor.detach()
    if data.layout != torch.strided or data.is_quantized or data.is_nested or data.device.type == "meta":
        return said, Same(tensor), version
    said = f"{said} {data.stride()}"
    if data.numel() * data.element_size() <= WHOLE:
        return Bytes(said, data)
    entries = data.untyped_storage().nbytes() // data.element_size()
    flat = data.as_strided((entries // (step := max(1, entries // SAMPLE)),), (step,), 0)
    return Bytes(said, flat.clone(), (version, data.data_ptr()))


def _forward(kind: type) -> object:
    """The code that runs for objects of a class, or whatever stands there in its place."""
    found = next((vars(cls)["forward"] for cls in kind.__mro__ if "forward" in vars(cls)), None)
    return found.__code__ if isinstance(found, types.FunctionType) else Same(found)


def _hooks(hooks: Mapping[int, Any]) -> list[Any]:
    """Hooks, functions by identity; the library's own only look on."""
    others = [h for h in hooks.values() if not str(getattr(h, "__module__", "")).startswith("normgauge.")]
    return [Same(h) if isinstance(h, (types.FunctionType, functools.partial)) else h for h in others]


def _slots(item: Any) -> Iterator[tuple[str, Any]]:
    """The slots that are filled, by name."""
    for name, place in _places(type(item)):
        try:
            yield name, place.__get__(item)
        except AttributeError:  # not filled yet
            continue


def _places(kind: type) -> Iterator[tuple[str, Any]]:
    for cls in kind.__mro__:
        names = vars(cls).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else tuple(names):
            found = vars(cls).get(f"_{cls.__name__.lstrip('_')}{name}" if _private(name) else name)
            if isinstance(found, types.MemberDescriptorType):
                yield name, found


def _table_of(item: Any) -> dict[str, Any]:
    """The table of an object's attributes, whatever its class answers when it is asked for one."""
    try:
        found = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _stands_for_itself(kind: type) -> bool:
    """Whether objects of a class are compared by identity."""
    if kind is object or (issubclass(kind, FIXED) and not _own(kind)):
        return True
    return any(f"{cls.__module__}.".startswith(BESIDE) for cls in kind.__mro__)


def _hides(kind: type) -> bool:
    """Whether objects of a class hold more than attributes and slots, as those of compiled code may."""
    shown = len(list(_places(kind))) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__itemsize__ > 0 or kind.__basicsize__ > object.__basicsize__ + shown * struct.calcsize("P")


def _private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _hidden(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"


def _own(kind: type) -> bool:
    """Whether a class is a model's own: of neither torch, nor numpy, nor the standard library, nor this one."""
    root = str(kind.__module__).partition(".")[0]
    return root not in TOOLS or kind.__module__ in (
        "__main__",
        "types",
    )  # where those that are made on the way say to be


def lasting(state: State) -> State:
    """Return a state that later changes of the model do not reach."""
    return {name: [_lasts(leaf) for leaf in leaves] for name, leaves in state.items()}


def _lasts(leaf: Any) -> Any:
    return leaf.copied() if isinstance(leaf, Bytes) else leaf


def differing(before: State, now: State) -> list[str]:
    """The paths whose leaves are not the same."""
    return [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]


def not_compared(leaves: list[Any]) -> list[str]:
    """What among the leaves nobody knows how to compare, in words."""
    return list(dict.fromkeys(leaf.what for leaf in leaves if isinstance(leaf, Unknown)))

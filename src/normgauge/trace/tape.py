"""The tape: one run of the model under a function mode, a dispatch mode and a patched module call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from normgauge.trace.step import Step, Trace, Value, backward_slice, function_name, tensors_in
from normgauge.trace.untouched import compiled_inside

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CASTS = {"to", "float", "half", "bfloat16", "double", "type", "type_as", "cpu", "cuda"}
SHAPED_LIKE = {
    f"{kind}_like" for kind in ("zeros", "ones", "full", "empty", "rand", "randn")
} | {f"new_{kind}" for kind in ("zeros", "ones", "full", "empty", "tensor")}  # fmt: skip
ESCAPES = {"item", "__float__", "__int__", "__index__", "__complex__", "tolist", "numpy", "__array__"}


def overlay(old: Tensor, new: Tensor) -> Tensor:
    """Marks the step of a tensor that shares memory with one just overwritten (`Tape.rebind`); never called."""
    return torch.where(new != old, new, old)


class Watch(TorchDispatchMode):
    """Follows, below the level of Python, which memory depends on the input and which is about to be overwritten."""

    def __init__(self, before_write: Callable[[int], None]) -> None:
        super().__init__()
        self.tainted: set[int] = set()
        self.written: set[int] = set()
        self.before_write = before_write

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; saying so keeps torch from importing its compiler (seconds)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        sources = [place(t) for t in tensors_in((args, kwargs))]
        targets = [place(t) for t in written_by(func, args, kwargs)]
        for storage in targets:
            self.before_write(storage)
        out = func(*args, **kwargs)
        results = [place(t) for t in tensors_in(out)]
        if any(s in self.tainted for s in sources):
            self.tainted.update(s for s in (*results, *targets) if s)
        else:  # freed memory comes back: what an untouched op has just filled is clean
            self.tainted.difference_update(r for r in results if r not in sources)
        self.written.update(t for t in targets if t)
        return out


def place(tensor: Tensor) -> int:
    """Where a tensor's memory lies; 0 for none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse and opaque tensors have no storage
        return 0


def written_by(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors an ATen operator declares it writes to."""
    found: list[Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            found.extend(tensors_in(given))
    return found


class Tape(TorchFunctionMode):
    """Writes a `Step` for every leaf module and torch function that touches a value depending on the input."""

    def __init__(self, model: nn.Module, is_leaf: Callable[[nn.Module], bool], expand: Callable[[Any], Any]) -> None:
        super().__init__()
        self.is_leaf, self.expand = is_leaf, expand
        self.names = {id(module): name for name, module in reversed(list(model.named_modules(remove_duplicate=False)))}
        self.path: list[str] = []
        self.leaf_depth = 0
        self.bound: dict[int, Value] = {}  # id(tensor) -> what it holds now
        self.objects: list[Tensor] = []  # keeps every bound tensor alive, so that no id is used twice
        self.by_place: dict[int, list[Tensor]] = {}
        self.count = 0
        self.steps: list[Step] = []
        self.watch = Watch(self.snapshot)
        self.notes: list[str] = []
        self.branches = False
        self.discrete: set[int] = set()  # ids of integer inputs whose embeddings are measured
        self.sources: list[Value] = []
        self.embeddings: list[Any] = []  # (module path, which lookup of the run, weight)
        self.lookups = 0
        self.constants: set[int] = set()  # where the weights and other constants of the steps so far lie
        self.thread = threading.get_ident()

    def bind(self, tensor: Tensor, step: Step | None, position: int = 0) -> Value:
        """Say that ``tensor`` now holds the result of ``step``."""
        value = Value(self.count, tensor, step, position)
        self.count += 1
        if id(tensor) not in self.bound:
            self.objects.append(tensor)
            self.by_place.setdefault(place(tensor), []).append(tensor)
        self.bound[id(tensor)] = value
        self.watch.tainted.add(place(tensor))
        return value

    def keep(self, storage: int) -> None:
        """Copy every value that lies in ``storage``."""
        for tensor in self.by_place.get(storage, ()):
            value = self.bound[id(tensor)]
            if value.tensor is tensor:
                value.tensor = tensor.clone()

    def snapshot(self, storage: int) -> None:
        """Copy every value that lies in ``storage``, which is about to be overwritten."""
        self.keep(storage)
        if storage in self.constants:
            self.lost(f"{self.path[-1] if self.path else 'the model'} overwrites a constant that was used before")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.leaf_depth or threading.get_ident() != self.thread:
            return func(*args, **kwargs)
        leaves = tensors_in((args, kwargs))
        name = function_name(func)
        if name == "embedding":
            self.lookups += 1
            if any(id(t) in self.discrete for t in leaves):
                return self.start_at_embedding(func, args, kwargs)
        if not any(id(t) in self.bound or place(t) in self.watch.tainted for t in leaves):
            out = func(*args, **kwargs)
            return self.follow_discrete(out) if any(id(t) in self.discrete for t in leaves) else out
        if name in SHAPED_LIKE and len(leaves) == 1:
            out = func(*args, **kwargs)  # takes the shape of a value, not its contents
            self.watch.tainted.discard(place(out))
            return out
        if name in ESCAPES or name == "__bool__":
            return self.escape(func, name, args, kwargs)
        if name in CASTS and isinstance(args[0], Tensor) and args[0].is_floating_point():
            return self.cast(func, args, kwargs)
        if kwargs.get("dtype") in FLOATS:
            kwargs = {**kwargs, "dtype": torch.float64}
        expansion = self.expand(func)
        if expansion is not None:
            return self.run_expansion(expansion, lambda: func(*args, **kwargs), args, kwargs)
        self.watch.written.clear()
        frozen = self.freeze(args, kwargs)
        out = func(*args, **kwargs)
        return self.write(func, None, args, kwargs, out, frozen)

    def cast(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A change of precision or place is the identity of the measured function."""
        frozen = self.freeze(args, kwargs)
        out = func(*args, **kwargs)
        if out.dtype not in FLOATS:
            return self.write(func, None, args, kwargs, out, frozen)
        if args[0].dtype == torch.float64:
            return args[0]
        if out is not args[0] and id(args[0]) in self.bound:  # a model traced in its own precision needs the new tensor
            self.objects.append(out)
            self.bound[id(out)] = self.bound[id(args[0])]
        return out

    def call_module(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """What stands in for ``nn.Module.__call__`` while the tape runs."""
        if self.leaf_depth or threading.get_ident() != self.thread:
            return original(module, *args, **kwargs)
        module = compiled_inside(module)
        self.path.append(self.names.get(id(module), self.path[-1] if self.path else ""))
        try:
            leaves = tensors_in((args, kwargs))
            if not any(id(t) in self.bound or place(t) in self.watch.tainted for t in leaves):
                return original(module, *args, **kwargs)
            expansion = self.expand(module)
            if expansion is not None:
                return self.run_expansion(
                    lambda *a, **k: expansion(module, *a, **k), lambda: original(module, *args, **kwargs), args, kwargs
                )
            if not self.is_leaf(module) or any(place(t) in self.watch.tainted for t in own_tensors(module)):
                return original(module, *args, **kwargs)
            self.watch.written.clear()
            frozen = self.freeze(args, kwargs)
            with self.asleep():
                out = original(module, *args, **kwargs)
            return self.write(type(module), module, args, kwargs, out, frozen)
        finally:
            self.path.pop()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Inside, nothing is written down."""
        self.leaf_depth += 1
        try:
            yield
        finally:
            self.leaf_depth -= 1

    def start_at_embedding(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """An integer input is measured from its embedding on."""
        with self.asleep():
            out = func(*args, **kwargs)
        value = self.bind(out, None)
        self.sources.append(value)
        weight = next(t for t in tensors_in((args, kwargs)) if t.is_floating_point())
        self.embeddings.append((self.path[-1] if self.path else "embedding", self.lookups, weight))
        return out

    def follow_discrete(self, out: Any) -> Any:
        """Integers made from an integer input (views, shifts) look up embeddings of it too."""
        for tensor in tensors_in(out):
            if not tensor.is_floating_point() and tensor.dtype != torch.bool:
                self.discrete.add(id(tensor))
                self.objects.append(tensor)
        return out

    def escape(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """A number leaves the tensors: a branch is only noted, anything else cannot be followed."""
        where = (self.path[-1] if self.path else "") or "the model's forward"
        if name == "__bool__":
            self.branches = True
            self.notes.append(f"Python control flow in {where} looked at data; the bound holds for the branch taken.")
        else:
            self.lost(f"{name}() in {where} takes a number out of the graph")
        return func(*args, **kwargs)

    def lost(self, why: str) -> None:
        """Note something that makes every bound beyond this point unknown."""
        if why not in self.notes:
            self.notes.append(why)
        self.escaped = True

    escaped = False

    def run_expansion(self, expansion: Callable[..., Any], original: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        """Run a layer by its written-out equations, and refuse them unless they give what the layer gives."""
        with self.asleep():
            state = torch.get_rng_state()
            expected = original()
            torch.set_rng_state(state)
        with self:
            out = expansion(*args, **kwargs)
        for want, got in zip(tensors_in(expected), tensors_in(out), strict=True):
            if want.shape != got.shape or not torch.allclose(want, got, rtol=1e-6, atol=1e-8, equal_nan=True):
                self.lost(f"the written-out equations of {self.path[-1] if self.path else 'a layer'} disagree with it")
        return out

    def freeze(self, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Value, ...], str]:
        """Arguments with a `Value` for each tensor that depends on the input, taken before the call."""
        leaves, spec = tree_flatten((args, kwargs))
        used: list[Value] = []
        trouble = ""
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                continue
            value = self.bound.get(id(leaf))
            if value is not None:
                leaves[i] = value
                used.append(value)
            elif place(leaf) in self.watch.tainted and leaf.numel():
                trouble = "depends on the input through an operation the tape cannot see"
        frozen_args, frozen_kwargs = tree_unflatten(leaves, spec)
        return tuple(frozen_args), frozen_kwargs, tuple(used), trouble

    def write(self, target: Any, module: nn.Module | None, args: Any, kwargs: Any, out: Any, frozen: Any = None) -> Any:
        """Write a step down and bind what it returned."""
        if frozen is None:
            frozen = self.freeze(args, kwargs)
        frozen_args, frozen_kwargs, used, trouble = frozen
        written = set(self.watch.written)
        results = tensors_in(out)
        touched = [t for t in tensors_in((args, kwargs)) if place(t) in written and place(t) in self.watch.tainted]
        if not results:
            results = touched[:1]
        fresh = [t for t in results if place(t) in written or not any(t is a for a in tensors_in((args, kwargs)))]
        if not fresh:
            return out
        step = Step(
            len(self.steps),
            target,
            module,
            self.path[-1] if self.path else "",
            frozen_args,
            frozen_kwargs,
            used,
            trouble=trouble,
        )
        self.steps.append(step)
        self.keep_constants(step, tensors_in((args, kwargs)), written)
        step.outputs = tuple(self.bind(t, step, i) for i, t in enumerate(fresh))
        for tensor in fresh:
            if place(tensor) in written:
                self.rebind(tensor)
        return out

    def keep_constants(self, step: Step, given: list[Tensor], written: set[int]) -> None:
        """Remember the constants a step used: rules read them later, so they must not change or be exchanged."""
        own = own_tensors(step.module) if step.module is not None else []
        step.state = tuple(own)
        weights = [] if step.module is None else [t for t in step.module._parameters.values() if t is not None]
        for tensor in (*weights, *(t for t in given if t.is_floating_point())):
            if id(tensor) not in self.bound and place(tensor) not in written:
                self.objects.append(tensor)
                self.constants.add(place(tensor))

    def rebind(self, changed: Tensor) -> None:
        """Every other tensor in the memory ``changed`` was written to now holds partly old, partly new contents."""
        new = self.bound[id(changed)]
        for tensor in list(self.by_place.get(place(changed), ())):
            if tensor is changed or not overlaps(tensor, changed):
                continue
            old = self.bound[id(tensor)]
            path = self.path[-1] if self.path else ""
            layout = {"old": geometry(tensor), "new": geometry(changed)}
            step = Step(len(self.steps), overlay, None, path, (old, new), layout, (old, new))
            self.steps.append(step)
            step.outputs = (self.bind(tensor, step),)


def own_tensors(module: nn.Module) -> list[Tensor]:
    """A module's own parameters, buffers and tensor attributes."""
    state = module.__dict__
    return tensors_in([state["_parameters"], state["_buffers"], [v for v in state.values() if isinstance(v, Tensor)]])


def geometry(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Size, stride and offset: where in its storage a tensor lies."""
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())


def overlaps(a: Tensor, b: Tensor) -> bool:
    """Whether the address ranges of two tensors in one storage meet (never a false no)."""

    def ends(t: Tensor) -> tuple[int, int]:
        size, stride, offset = geometry(t)
        return offset, offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))

    (a0, a1), (b0, b1) = ends(a), ends(b)
    return a.numel() > 0 and b.numel() > 0 and a0 <= b1 and b0 <= a1


@contextmanager
def patched_calls(tape: Tape) -> Iterator[None]:
    """Route ``nn.Module.__call__`` through the tape, in this thread only."""
    original = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return tape.call_module(original, module, args, kwargs)

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


def record(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    measured: Tensor,
    pick: Callable[[Any], tuple[Tensor | None, list[str]]],
    is_leaf: Callable[[nn.Module], bool],
    expand: Callable[[Any], Any],
) -> Trace:
    """Run ``model(*args, **kwargs)`` once and return the steps from ``measured`` to the output ``pick`` chooses."""
    tape = Tape(model, is_leaf, expand)
    if measured.is_floating_point():
        tape.sources.append(tape.bind(measured, None))
    else:
        tape.discrete.add(id(measured))
        tape.objects.append(measured)
    with torch.no_grad(), parametrize.cached(), patched_calls(tape), tape.watch, tape:
        returned = model(*args, **kwargs)
    for owned in (*model.parameters(), *model.buffers()):
        tape.keep(place(owned))  # values kept in the model's own memory are overwritten by its next run
    chosen, notes = pick(returned)
    output = None if chosen is None else tape.bound.get(id(chosen))
    trouble = tape.escaped or (chosen is not None and output is None and place(chosen) in tape.watch.tainted)
    if trouble and chosen is not None:
        path = "the model"
        step = Step(
            len(tape.steps),
            overlay,
            None,
            path,
            (),
            {},
            tuple(tape.sources),
            trouble="; ".join(tape.notes) or "an operation the tape cannot see",
        )
        inputs = (output, *tape.sources) if output is not None else tuple(tape.sources)
        step.inputs = inputs
        tape.steps.append(step)
        output = Value(tape.count, chosen, step)
        step.outputs = (output,)
    return Trace(
        sources=tuple(tape.sources),
        output=output,
        steps=() if output is None else backward_slice(output),
        notes=tuple(dict.fromkeys((*tape.notes, *notes))),
        branches=tape.branches,
        embeddings=tuple(tape.embeddings),
    )


__all__ = ["Tape", "overlay", "record", "tree_leaves"]

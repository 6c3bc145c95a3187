"""The tape: one run of the model under a function mode and a dispatch mode, its modules' forwards routed through it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from normgauge.instrument.trace.by_piece import by_piece
from normgauge.instrument.trace.held import Held, memory_geometry, memory_place, own_tensors, strided
from normgauge.instrument.trace.place import TorchRandom, set_torch_random, torch_random
from normgauge.instrument.trace.precision import CASTS, FLOATS, SHOWS, default_eps, imitate_precision, without_eps
from normgauge.instrument.trace.step import Step, Trace, Value, backward_slice, function_name, tensors_in
from normgauge.instrument.trace.threads import ELSEWHERE, hand_overs
from normgauge.instrument.trace.untouched import (
    PLAIN_TENSORS,
    bring_back,
    drawn_outside_torch,
    own_operations,
    random_states,
    reachable_objects,
)
from normgauge.instrument.trace.watch import OperatorWatch

SHAPED_LIKE = {
    f"{kind}_like" for kind in ("zeros", "ones", "full", "empty", "rand", "randn", "randint")
} | {f"new_{kind}" for kind in ("zeros", "ones", "full", "empty", "tensor")}  # fmt: skip
SHAPED_AS = {"expand_as", "view_as", "reshape_as", "type_as"}
COUNTED = {"item", "tolist", "__int__", "__index__"}  # a whole number out of these is one of finitely many paths
DESCRIBED = {  # say something of a tensor that is not its contents
    *("size", "dim", "ndim", "stride", "numel", "nelement", "element_size", "storage_offset", "__len__", "shape"),
    *("dtype", "device", "layout", "is_contiguous", "is_floating_point", "is_complex", "is_signed", "get_device"),
    *("requires_grad", "is_leaf", "grad_fn", "grad", "_version", "names", "has_names", "is_same_size", "output_nr"),
    *("result_type", "can_cast", "is_sparse", "is_cuda", "is_cpu", "is_mps", "is_meta", "is_quantized", "is_nested"),
    *("is_inference", "is_conj", "is_neg", "is_shared", "is_pinned", "is_sparse_csr", "is_mkldnn", "is_xpu", "is_xla"),
    *("nbytes", "itemsize", "register_hook", "retain_grad", "retains_grad", "_backward_hooks", "is_set_to", "_is_view"),
    *("_base", "dim_order", "__hash__", "__dlpack_device__", "name", "__dir__", "is_tensor", "is_distributed"),
}


def overlay(before: Tensor, after: Tensor, *, old: Any, new: Any) -> Tensor:
    """Return a tensor whose memory was partly overwritten: its old contents, with the new ones where they overlap.

    ``old`` and ``new`` are the `memory_geometry` of the two.
    """
    extent = 1 + max(sum((n - 1) * s for n, s in zip(*g[:2], strict=True)) + g[2] for g in (old, new))
    memory = torch.zeros(extent, dtype=before.dtype, device=before.device)
    memory.as_strided(*old).copy_(before)
    memory.as_strided(*new).copy_(after)
    return memory.as_strided(*old).clone()


def recast(x: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    """A copy of a tensor in another precision or place."""
    return x.to(dtype=dtype, device=device, copy=True)


class Tape(TorchFunctionMode):
    """Writes a `Step` for every leaf module and torch function that touches a value depending on the input."""

    def __init__(
        self,
        model: nn.Module,
        is_leaf: Callable[[type[nn.Module]], bool],
        expand: Callable[[Any], Any],
        exact: bool,
        native: torch.dtype,
    ) -> None:
        super().__init__()
        self.is_leaf, self.expand, self.exact, self.native = is_leaf, expand, exact, native
        self.names = {id(module): name for name, module in reversed(list(model.named_modules(remove_duplicate=False)))}
        self.path: list[str] = []
        self.leaf_depth = 0
        self.bound: dict[int, Value] = {}  # id(tensor) -> what it holds now
        self.where: dict[int, Any] = {}  # id(tensor) -> the place and size it had when it was bound
        self.objects: list[Tensor] = []  # keeps every bound tensor alive, so that no id is used twice
        self.by_place: dict[int, list[Tensor]] = {}
        self.count = 0
        self.steps: list[Step] = []
        self.held = Held()
        self.watch = OperatorWatch(self.before_write)
        self.reads: list[str] = []
        self.draws = False
        self.lost_at: list[str] = []
        self.discrete: set[int] = set()  # ids of integer inputs whose embeddings are measured
        self.sources: list[Value] = []
        self.embeddings: list[Any] = []  # (module path, which lookup of the run, weight)
        self.lookups = 0
        self.thread = threading.get_ident()
        self.start = random_states()

    @property
    def here(self) -> str:
        """Where the run is now, in words."""
        return self.module_path or "the model's forward"

    @property
    def module_path(self) -> str:
        """The path of the module that runs now; empty for the model itself."""
        return self.path[-1] if self.path else ""

    def overlaid(self, tensor: Tensor, before: Any, part: Tensor) -> Step:
        """Write a step after which ``tensor`` holds ``before``, with what was written to ``part`` of its memory."""
        new = self.bound[id(part)]
        inputs = (before, new) if isinstance(before, Value) else (new,)
        layout = {"old": memory_geometry(tensor), "new": memory_geometry(part)}
        step = Step(len(self.steps), overlay, None, self.module_path, (before, new), layout, inputs)
        self.steps.append(step)
        return step

    def bind(self, tensor: Tensor, step: Step | None, position: int = 0) -> Value:
        """Say that ``tensor`` now holds the result of ``step``."""
        value = Value(self.count, tensor, step, position)
        self.count += 1
        self.attach(tensor, value)
        return value

    def attach(self, tensor: Tensor, value: Value) -> None:
        """Say that ``tensor`` now holds ``value``."""
        storage = memory_place(tensor)
        if id(tensor) not in self.bound:
            self.objects.append(tensor)
        if not any(t is tensor for t in self.by_place.setdefault(storage, [])):
            self.by_place[storage].append(tensor)
        self.bound[id(tensor)] = value
        self.where[id(tensor)] = (storage, tensor.shape)
        if storage:
            self.watch.tainted.add(storage)

    def followed(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on the input."""
        return id(tensor) in self.bound or memory_place(tensor) in self.watch.tainted

    def untouched(self, tensor: Tensor) -> bool:
        """Whether a fresh result is a constant: no operator that read what depends on the input has made or filled it.

        Of some operands a function takes the precision, the place or the shape alone: ``mask.to(hidden)``, or the
        mask's part of ``broadcast_tensors(mask, hidden)``. What it reads of them is for the operators to say.
        """
        place = memory_place(tensor)
        plain = type(tensor) in PLAIN_TENSORS and strided(tensor)
        return plain and place != 0 and id(tensor) not in self.bound and place not in self.watch.tainted

    def unmoved(self, function: Any, args: Any, kwargs: Any, results: list[tuple[int, Tensor]]) -> bool:
        """Whether results are the same, to the last bit, when all that depends on the input holds something else."""

        def other(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or not self.followed(leaf):
                return leaf
            if leaf.dtype == torch.bool:
                return ~leaf
            return 3 - 2 * leaf if leaf.is_floating_point() or leaf.is_complex() else leaf + 1

        with torch._C.DisableTorchFunction(), self.unwatched():
            args, kwargs = tree_map(other, (args, kwargs))
        try:
            with self.asleep(), self.unwatched():
                again = tensors_in(function(*args, **kwargs))
        except Exception:
            return False
        with torch._C.DisableTorchFunction(), self.unwatched():
            return all(i < len(again) and torch.equal(again[i], result) for i, result in results)

    def keep(self, storage: int) -> None:
        """Copy every value that lies in ``storage``."""
        for tensor in self.by_place.get(storage, ()):
            value = self.bound[id(tensor)]
            if value.tensor is tensor:
                value.tensor = tensor.clone()

    def before_write(self, storage: int) -> None:
        """Copy every value and every constant that lies in ``storage``, which is about to be overwritten."""
        with torch._C.DisableTorchFunction(), self.unwatched():
            self.keep(storage)
            self.held.before_write(storage)

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
        if func in SHOWS and self.exact and self.native != torch.float64 and args[0].dtype == torch.float64:
            self.lost(f"{name}() in {self.here} shows the precision of a copy, not the model's own")
        if not any(map(self.followed, leaves)):
            with self.drawing():
                out = func(*args, **kwargs)
            return self.follow_discrete(out) if any(id(t) in self.discrete for t in leaves) else out
        shapes = tensors_in(args[1:]) if name in SHAPED_AS else []
        if name in SHAPED_LIKE and args and not any(self.followed(t) for t in leaves if t is not args[0]):
            with self.drawing():
                out = func(*args, **kwargs)  # takes the shape of a value, not its contents
            self.watch.tainted.discard(memory_place(out))
            return out
        if name in DESCRIBED and getattr(func, "__name__", "") != "__set__":
            out = func(*args, **kwargs)
            if not isinstance(out, Tensor):
                return out
        if func in CASTS and self.followed(args[0]) and args[0].is_floating_point():
            return self.cast(func, args, kwargs)
        if without_eps(func, args, kwargs):
            args, kwargs = args[:3], {**kwargs, "eps": self.own_eps(args[0])}
        expansion = self.expand(func)
        if expansion is not None:
            with self:  # a mode is off while it handles a function
                return self.run_expansion(expansion, lambda: func(*args, **kwargs), args, kwargs)
        if name == "tensor_split" and any(self.followed(t) for t in leaves[1:]):
            self.read_as(name)
        run = self.begin(args, {k: v for k, v in kwargs.items() if k != "out"}, shapes)
        if kwargs.get("out") is not None:
            run[0][1]["out"] = tree_map(self.held.hold, kwargs["out"])
        try:
            out = func(*args, **kwargs)
        except Exception:
            self.read_as("an error")  # which the program may catch
            raise
        if not tensors_in(out) and not self.watch.written & {memory_place(t) for t in leaves}:
            return self.told(func, name, out)
        return self.write(func, None, args, kwargs, out, run)

    def told(self, func: Any, name: str, out: Any) -> Any:
        """Handle a result that is not a tensor: the program may branch on it, or take data where no tape follows."""
        self.read()
        if getattr(func, "__name__", "") == "__set__" and name not in ("requires_grad", "names"):
            self.lost(f"{self.here} exchanges a tensor's {name}")
        elif out is None:
            pass
        elif isinstance(out, bool) or (name in COUNTED and not any(isinstance(n, float) for n in tree_leaves(out))):
            self.read_as(name)
        else:
            self.lost(f"{name}() in {self.here} takes data out of the tensors")
        return out

    def read(self) -> None:
        """Note what the operators since the last step told the program about the data."""
        for name in self.watch.reads:
            self.read_as(name)
        self.watch.reads.clear()

    def read_as(self, name: str) -> None:
        """Note that the program looked at the data, and may take another path where they are different."""
        name = "a truth value" if name == "__bool__" else name
        said = f"the program in {self.here} looks at the data ({name}): what is proved holds for the path taken"
        if not any(where.startswith(said.partition(" (")[0]) for where in self.reads):
            self.reads.append(said)

    def cast(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Write down a change of precision or device, which the measured function treats as the identity."""
        run = self.begin(args, kwargs, tensors_in(args[1:]))
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor) or out is args[0]:  # the name of a type, or nothing to change
            return out
        if out.dtype not in FLOATS:
            return self.write(func, None, args, kwargs, out, run)
        value = self.bound.get(id(args[0]))
        if value is not None and value.tensor.dtype == out.dtype and value.tensor.device == out.device:
            self.attach(out, value)  # a copy of the same contents
            return out
        (_, _, used, trouble), state = run
        how = (out.dtype, out.device)
        frozen: Any = ((used[0] if used else args[0], *how), {}, used[:1], trouble)
        return self.write(recast, None, (args[0], *how), {}, out, (frozen, state))

    def call_module(self, module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run in place of a module's ``forward``; its hooks run around it and are recorded."""
        if self.leaf_depth or threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        self.path.append(self.names.get(id(module), self.module_path))
        try:
            return self.run_module(module, forward, args, kwargs)
        finally:
            self.path.pop()

    def run_module(self, module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record a module as one step, by its written-out equations, or by the steps inside it."""
        kind = parametrize.type_before_parametrizations(module)  # parametrized modules get another class
        own = getattr(forward, "__func__", None) is type(module).forward  # else patched on the instance
        with torch._C.DisableTorchFunction():  # what the tape looks at is no step
            known = own and any(map(self.followed, tensors_in((args, kwargs))))
            expansion = self.expand(module) or self.expand(kind) if known else None
            strange = any(self.followed(t) or type(t) not in PLAIN_TENSORS for t in own_tensors(module))
            leaf = known and not strange and self.is_leaf(kind)
            if expansion is None and leaf:
                run = self.begin(args, kwargs)
                layer = self.held.layer(module, kind)
                if isinstance(layer, nn.RMSNorm) and layer.eps is None:
                    layer.eps = self.own_eps(args[0])
        if expansion is not None:
            return self.run_expansion(
                lambda *a, **k: expansion(module, *a, **k), lambda: forward(*args, **kwargs), args, kwargs
            )
        if not leaf:
            return forward(*args, **kwargs)
        try:
            with self.asleep():
                out = forward(*args, **kwargs)
        except Exception:
            self.read_as("an error")
            raise
        with torch._C.DisableTorchFunction():
            return self.write(kind, layer, args, kwargs, out, run)

    def own_eps(self, tensor: Tensor) -> float:
        """Return the ε of an RMSNorm that was given none."""
        return default_eps(self.native if self.exact else tensor.dtype)

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Inside, nothing is written down."""
        self.leaf_depth += 1
        try:
            yield
        finally:
            self.leaf_depth -= 1

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Inside, operators belong to the tape and are not watched."""
        before, self.watch.idle = self.watch.idle, True
        try:
            yield
        finally:
            self.watch.idle = before

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside, drawn random numbers belong to no step: the bound holds for the numbers drawn."""
        self.watch.draws = False
        yield
        self.draws |= self.watch.draws
        self.watch.draws = False

    def start_at_embedding(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Start the measurement of an integer input at its embedding."""
        with self.asleep():
            out = func(*args, **kwargs)
        value = self.bind(out, None)
        self.sources.append(value)
        weight = next(t for t in tensors_in((args, kwargs)) if t.is_floating_point())
        self.embeddings.append((self.path[-1] if self.path else "embedding", self.lookups, weight))
        return out

    def follow_discrete(self, out: Any) -> Any:
        """Follow integers made from an integer input (views, shifts), which look up its embeddings too."""
        for tensor in tensors_in(out):
            if not tensor.is_floating_point() and tensor.dtype != torch.bool:
                self.discrete.add(id(tensor))
                self.objects.append(tensor)
        return out

    def lost(self, why: str) -> None:
        """Note something that makes every bound beyond this point unknown."""
        if why not in self.lost_at:
            self.lost_at.append(why)

    def run_expansion(self, expansion: Callable[..., Any], original: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        """Run a layer by its written-out equations, and refuse them unless they give what the layer gives."""
        with self.asleep(), self.unwatched():
            state = torch_random()
            expected = original()
            set_torch_random(state)
        out = expansion(*args, **kwargs)
        with torch._C.DisableTorchFunction(), self.unwatched():
            for want, got in zip(tensors_in(expected), tensors_in(out), strict=True):
                near = {torch.float64: 1e-6, torch.float32: 1e-3}.get(want.dtype, 3e-2)
                if want.shape != got.shape or not torch.allclose(want, got, near, near / 100, equal_nan=True):
                    self.lost(f"the written-out equations of {self.here} disagree with it")
        return out

    def begin(self, args: Any, kwargs: Any, shapes: Sequence[Tensor] = ()) -> tuple[Any, TorchRandom]:
        """Return what a step is given and the random state before it runs; of ``shapes`` only the shape counts."""
        self.read()
        self.watch.written.clear()
        self.watch.draws = False
        return self.freeze(args, kwargs, shapes), torch_random()

    def freeze(
        self, args: Any, kwargs: Any, shapes: Sequence[Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Value, ...], str]:
        """Replace each argument that depends on the input by its `Value`, and every other tensor by a held alias."""
        leaves, spec = tree_flatten((args, kwargs))
        used: list[Value] = []
        trouble = ""
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                continue
            value = self.bound.get(id(leaf))
            if any(leaf is shape for shape in shapes):
                leaves[i] = self.held.hold(leaf)
            elif value is not None:
                leaves[i] = value
                used.append(value)
                if self.where[id(leaf)] != (memory_place(leaf), leaf.shape):
                    trouble = "a tensor's memory was exchanged under it"
            elif memory_place(leaf) in self.watch.tainted and leaf.numel():
                if (value := self.adopted(leaf)) is None:
                    trouble = "depends on the input through an operation the tape cannot see"
                else:
                    leaves[i] = value
                    used.append(value)
            else:
                leaves[i] = self.held.hold(leaf)
            if type(leaf) not in PLAIN_TENSORS and own_operations(leaf):
                trouble = f"{type(leaf).__name__} is a tensor with operations of its own"
        frozen_args, frozen_kwargs = tree_unflatten(leaves, spec)
        return tuple(frozen_args), frozen_kwargs, tuple(used), trouble

    def adopted(self, tensor: Tensor) -> Value | None:
        """Follow a constant that was overwritten through views of it: its old contents with theirs put in."""
        storage = memory_place(tensor)
        parts = [t for t in self.by_place.get(storage, ()) if memory_place(t) == storage and memory_overlaps(t, tensor)]
        if not parts or not strided(tensor):
            return None
        with torch._C.DisableTorchFunction(), self.unwatched():
            contents: Any = tensor.clone()
        before: Any = contents
        for part in sorted(parts, key=lambda t: self.bound[id(t)].index):
            step = self.overlaid(tensor, before, part)
            before = Value(self.count, contents, step)
            self.count += 1
            step.outputs = (before,)
        before.tensor = tensor
        self.attach(tensor, before)
        return before

    def write(self, target: Any, module: nn.Module | None, args: Any, kwargs: Any, out: Any, run: Any) -> Any:
        """Write a step down and bind what it returned."""
        (frozen_args, frozen_kwargs, used, trouble), state = run
        told = bool(self.watch.reads)
        self.read()
        written = set(self.watch.written)
        given, results = tensors_in((args, kwargs)), tensors_in(out)
        picks = [i for i, t in enumerate(results) if memory_place(t) in written or not any(t is a for a in given)]
        if not results:  # an in-place form that returns nothing: what it changed is among what it was given
            changed = [
                i for i, t in enumerate(given) if memory_place(t) in written and memory_place(t) in self.watch.tainted
            ]
            picks = [-1 - i for i in changed[:1]]
        elif not (told or trouble or written or self.watch.draws or module is not None):
            constant = [i for i in picks if self.untouched(results[i])]
            if constant and not self.unmoved(target, args, kwargs, [(i, results[i]) for i in constant]):
                constant = []
            if any(id(t) in self.discrete for t in given):
                self.follow_discrete([results[i] for i in constant])
            picks = [i for i in picks if i not in constant]
        if not picks or not (used or trouble):
            return out
        fresh = [results[i] if i >= 0 else given[-1 - i] for i in picks]
        step = Step(
            len(self.steps),
            target,
            module,
            self.module_path,
            frozen_args,
            frozen_kwargs,
            used or tuple(self.sources),
            trouble=trouble,
            picks=tuple(picks),
            writes=bool(written),
            random=state if self.watch.draws else None,
        )
        self.steps.append(step)
        step.outputs = tuple(self.bind(t, step, i) for i, t in enumerate(fresh))
        for tensor in fresh:
            if memory_place(tensor) in written:
                self.rebind(tensor)
        return out

    def rebind(self, changed: Tensor) -> None:
        """Update every other tensor that shares the memory ``changed`` was written to."""
        for tensor in list(self.by_place.get(memory_place(changed), ())):
            if (
                tensor is changed
                or not memory_overlaps(tensor, changed)
                or memory_place(tensor) != memory_place(changed)
            ):
                continue
            step = self.overlaid(tensor, self.bound[id(tensor)], changed)
            step.outputs = (self.bind(tensor, step),)


def memory_overlaps(a: Tensor, b: Tensor) -> bool:
    """Whether the address ranges of two tensors in one storage meet (never a false no)."""
    if not (strided(a) and strided(b)):
        return True

    def ends(t: Tensor) -> tuple[int, int]:
        size, stride, offset = memory_geometry(t)
        return offset, offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))

    (a0, a1), (b0, b1) = ends(a), ends(b)
    return a.numel() > 0 and b.numel() > 0 and a0 <= b1 and b0 <= a1


@contextmanager
def routed(tape: Tape, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Route the modules' ``forward`` through the tape, on these instances only."""
    before = [(m, m.__dict__.get("forward")) for m in modules if not isinstance(m, torch.jit.ScriptModule)]

    def route(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: tape.call_module(module, forward, args, kwargs)

    try:
        for module, _ in before:
            module.__dict__["forward"] = route(module, module.forward)
        yield
    finally:
        for module, own in before:
            module.__dict__.pop("forward", None)
            if own is not None:
                module.__dict__["forward"] = own


def record_trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    measured: Tensor,
    pick: Callable[[Any], tuple[Tensor, list[str]]],
    is_leaf: Callable[[type[nn.Module]], bool],
    expand: Callable[[Any], Any],
    native: torch.dtype = torch.float64,
    casts: bool = True,
) -> Trace:
    """Run ``model(*args, **kwargs)`` once and return the steps from ``measured`` to the output ``pick`` chooses.

    ``native`` is the precision the model itself works in, where it was given copies in float64; ``casts`` says that its
    program does something about precision.
    """
    weights = (t for t in (measured, *model.parameters()) if t.is_floating_point())
    tape = Tape(model, is_leaf, expand, next(weights, measured).dtype == torch.float64, native)
    if measured.is_floating_point():
        tape.sources.append(tape.bind(measured, None))
    else:
        tape.discrete.add(id(measured))
        tape.objects.append(measured)
    routes = routed(tape, reachable_objects(model).modules)
    imitated = native if casts and tape.exact else None
    pieces, exact = by_piece(measured), imitate_precision(imitated)
    threads = hand_overs(lambda name: tape.lost(f"{ELSEWHERE} ({name} in {tape.here})"))
    with threads, torch.no_grad(), parametrize.cached(), routes, tape.watch, pieces, exact, tape:
        returned = model(*args, **kwargs)
    tape.read()
    tape.draws |= drawn_outside_torch(tape.start)
    if tape.draws and not model.training:
        tape.reads.append("the program draws random numbers: what is proved holds for the ones drawn")
    for owned in (*model.parameters(), *model.buffers()):
        tape.keep(memory_place(owned))  # values kept in the model's own memory are overwritten by its next run
    for owned in model.buffers():
        tape.held.before_write(memory_place(owned))
    chosen, notes = pick(returned)
    output, lost = tape.bound.get(id(chosen)), list(tape.lost_at)
    if output is not None and tape.where[id(chosen)] != (memory_place(chosen), chosen.shape):
        lost.append("the output's memory was exchanged under it")
    if output is None and memory_place(chosen) in tape.watch.tainted:
        output = tape.adopted(chosen)
        if output is None:
            lost.append("the output depends on the input through an operation the tape cannot see")
    if lost and output is None:
        output = Value(tape.count, chosen, None)
    trace = Trace(
        sources=tuple(tape.sources),
        output=output,
        steps=() if output is None else backward_slice(output),
        notes=tuple(dict.fromkeys((*tape.reads, *notes))),
        reads=tuple(tape.reads),
        draws=tape.draws,
        random=partial(bring_back, tape.start),
        native=imitated,
        embeddings=tuple(tape.embeddings),
    )
    return trace.doubted("the model", "; ".join(lost)) if lost and output is not None else trace

"""How parameters enter a model's forward: as the weight, gains or bias of a known map, or in a way that may gate."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from normgauge.control.bounded_norms import BoundedNorm
from normgauge.control.held_state import RUNNING
from normgauge.instrument.trace import untouched
from normgauge.instrument.trace.held import memory_place
from normgauge.instrument.trace.inputs import make_call, named_tensors
from normgauge.instrument.trace.step import function_name, tensors_in
from normgauge.instrument.trace.tape import DESCRIBED, SHAPED_AS, SHAPED_LIKE

SLOPES = frozenset(
    (
        *("linear", "bilinear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "einsum", "tensordot"),
        *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)),
        *("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "embedding", "embedding_bag"),
        *("multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu", "addmm", "baddbmm"),
        *("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
    )
)
"""Functions whose gain grows with the parameter that they are given: its shaking shows whether a plan follows it."""

ADDED = frozenset(
    (
        *("add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__sub__", "__rsub__", "__isub__", "rsub"),
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "copy_", "__setitem__"),
    )
)
"""Functions that put a tensor beside another, or add it: whatever it holds, their gain is the same."""

KEPT = frozenset(
    (
        *("to", "float", "double", "half", "bfloat16", "type", "type_as", "cpu", "cuda", "clone", "contiguous"),
        *("reshape", "flatten", "data", "detach", "requires_grad_", "T", "mT", "t"),
    )
)
"""What leaves the numbers of a tensor as they are, though perhaps elsewhere in memory."""

DATA, WHOLE, COMPUTED = "data", "whole", "computed"


def gating_parameters(model: nn.Module, batch: Any) -> list[str]:
    """Return, in words, where parameters enter in another way than as weights, gains and biases of known maps.

    The model runs once, on copies of its tensors. What a parameter is computed into (a sum with a constant, a
    clamp) may be added to data, and no more. Parametrizations and `BoundedNorm` are asked anew at each call of a cap.
    """
    return list(dict.fromkeys(uses_in(model, batch).found))


def own_statistics(model: nn.Module, batch: Any) -> dict[int, Set[str]]:
    """Return, by the id of a module, which running statistics its own `batch_norm` reads, and nothing else does."""
    uses = uses_in(model, batch)
    return {module: uses.statistics.alone(name) for module, name in uses.names.items()}


def uses_in(model: nn.Module, batch: Any) -> Uses:
    """What a run in eval mode shows, on copies of a model's tensors."""
    call = make_call(model, batch)
    with untouched(model, None, None, False, None), torch.no_grad(), ExitStack() as stack:
        uses = Uses(model)
        for tensor in tensors_in((call.args, call.kwargs)):
            uses.mark(tensor, DATA)
        for module in model.modules():
            stack.enter_context(uses.inside(module))
        with uses, uses.statistics:
            uses.returned(model(*call.args, **call.kwargs))
    return uses


class Statistics(TorchDispatchMode):
    """Which running statistics are read, by their memory: below functions too, as scripted code does it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.places: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        self.own: set[tuple[str, str]] = set()
        self.elsewhere: set[tuple[str, str]] = set()
        self.known = False  # whether what runs below was looked at already
        for path, module in model.named_modules():
            for name in RUNNING:
                if isinstance(buffer := module._buffers.get(name), Tensor):
                    self.places[memory_place(buffer)].add((path, name))

    def alone(self, path: str) -> Set[str]:
        """Those of a module that only its own step reads, or no step."""
        if not {(path, "running_mean"), (path, "running_var")} <= self.own:
            return set()
        return {name for name in RUNNING if (path, name) not in self.elsewhere}

    def look(self, given: list[Tensor]) -> None:
        """Note what is read."""
        for tensor in given:
            self.elsewhere |= self.places.get(memory_place(tensor), set())

    @contextmanager
    def inside(self, func: Any, path: str, args: Any, kwargs: Any) -> Iterator[None]:
        """Inside runs a function that was called by a module."""
        self.known = func is F.batch_norm
        if self.known:
            self._step(path, args, kwargs)
        elif function_name(func) not in DESCRIBED:
            self.look(tensors_in((args, kwargs)))
        try:
            yield
        finally:
            self.known = False

    def _step(self, path: str, args: Any, kwargs: Any) -> None:
        """Note what a `batch_norm` reads as its mean and variance, and what else."""
        for name, tensor in zip(RUNNING[:2], args[1:3], strict=False):
            if isinstance(tensor, Tensor):
                found = self.places.get(memory_place(tensor), set())
                self.own |= found & {(path, name)}
                self.elsewhere |= set() if (path, name) in found else found
        self.look(tensors_in((args[:1], args[3:], kwargs)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.known:
            self.look(tensors_in((args, kwargs)))
        return func(*args, **kwargs)


class Uses(TorchFunctionMode):
    """Follows, by their memory, what depends on data and what on parameters alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.kinds: dict[int, str] = {}
        self.alive: list[Tensor] = []  # so that no memory is used twice
        self.found: list[str] = []
        self.path: list[str] = []
        self.names = {id(module): name for name, module in model.named_modules()}
        self.quiet, self.thread = 0, threading.get_ident()
        self.statistics = Statistics(model)
        for parameter in model.parameters():
            self.mark(parameter, WHOLE)

    def mark(self, tensor: Tensor, kind: str) -> None:
        """Say what a tensor is made of."""
        place = memory_place(tensor)
        if place:
            self.kinds[place] = kind
            self.alive.append(tensor)

    def kind(self, tensor: Tensor) -> str | None:
        """What a tensor is made of; None for a constant."""
        return self.kinds.get(memory_place(tensor))

    def name(self, what: str) -> None:
        """Add a finding."""
        where = self.path[-1] if self.path and self.path[-1] else "the model's forward"
        self.found.append(f"{where}: a parameter enters through {what}, and its gain may change without being seen")

    @contextmanager
    def inside(self, module: nn.Module) -> Iterator[None]:
        """Inside, know when a module runs, and look away in those whose results are asked for anew."""
        hidden = isinstance(module, BoundedNorm | parametrize.ParametrizationList)
        own: Callable[..., Any] = module.forward
        before = vars(module).get("forward")

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.path.append(self.names.get(id(module), ""))
            self.quiet += hidden
            try:
                out = own(*args, **kwargs)
            finally:
                self.quiet -= hidden
                self.path.pop()
            for tensor in tensors_in(out) if hidden else ():
                self.mark(tensor, WHOLE if isinstance(module, parametrize.ParametrizationList) else DATA)
            return out

        if isinstance(module, torch.jit.ScriptModule):
            yield
            return
        vars(module)["forward"] = forward
        try:
            yield
        finally:
            vars(module).pop("forward")
            if before is not None:
                vars(module)["forward"] = before

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self.statistics.inside(func, self.path[-1] if self.path else "", args, kwargs):
            out = func(*args, **kwargs)
        if self.quiet or threading.get_ident() != self.thread:
            return out
        with torch._C.DisableTorchFunction():
            self.look(func, args, kwargs, out)
        return out

    def look(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Note what the result of a function is made of, and whether a parameter enters in another way than known."""
        given, name = tensors_in((args, kwargs)), function_name(func)
        kinds = {self.kind(tensor) for tensor in given}
        entering = kinds & {WHOLE, COMPUTED}
        results = tensors_in(out)
        if name in SHAPED_LIKE or (name in DESCRIBED and not results) or not kinds - {None}:
            return
        if name in SHAPED_AS and self.kind(given[0]) is None:
            return
        if entering and not results and out is not None:
            self.name(f"{name}(), at which the program looks")
        elif DATA in kinds and entering and not self.known(name, args, kwargs, kinds):
            self.name(f"{name}()")
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs
        written = [*tensors_in(kwargs.get("out")), *([args[0]] if writes and isinstance(args[0], Tensor) else [])]
        for tensor in (*results, *written):
            if DATA in kinds:
                self.mark(tensor, DATA)
            elif memory_place(tensor) not in self.kinds or any(tensor is one for one in written):
                self.mark(tensor, WHOLE if entering == {WHOLE} and name in KEPT else COMPUTED)

    def known(self, name: str, args: Any, kwargs: Any, kinds: set[str | None]) -> bool:
        """Whether a parameter may enter here: whole, where the gain grows with it, or added, in any form."""
        if name in ADDED:
            return not isinstance(kwargs.get("alpha"), Tensor)
        if name == "where":
            return self.kind(args[0]) not in (WHOLE, COMPUTED)
        if name == "scaled_dot_product_attention":
            rows = tensors_in((args[:3], [kwargs.get(role) for role in ("query", "key", "value")]))
            return all(self.kind(row) not in (WHOLE, COMPUTED) for row in rows)
        return name in SLOPES and COMPUTED not in kinds

    def returned(self, out: Any) -> None:
        """Say so where nothing that was returned is known to depend on the data."""
        if not any(self.kind(leaf) == DATA for leaf in (*tensors_in(out), *dict(named_tensors(out)).values())):
            self.name("something that could not be followed")

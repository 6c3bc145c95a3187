"""What the tape writes down: values, the steps between them, and the whole trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


@dataclass(eq=False, slots=True)
class Value:
    """One tensor at one moment; ``tensor`` is copied just before something overwrites it.

    Attributes:
        index: position among all values of the trace.
        tensor: the contents, live.
        step: the step that made it; None for the measured input.
        position: which of the step's outputs it is.
    """

    index: int
    tensor: Tensor
    step: Step | None = None
    position: int = 0


@dataclass(eq=False, slots=True)
class Step:
    """One leaf module or torch function applied to at least one value that depends on the measured input.

    Attributes:
        target: the module's type or the function itself; what rules are looked up by.
        module: for a leaf module, the module with the settings and tensors it had when it ran.
        path: module path at which it ran.
        args: positional arguments; a `Value` stands for each tensor that depends on the input, constants are as given.
        kwargs: keyword arguments, likewise.
        inputs: the values among the arguments, in order of appearance, repeated if used twice.
        outputs: the tensors it returned.
        trouble: non-empty when the tape saw something it cannot follow here.
        picks: for each output, which tensor it is among those returned, or, negative, among those given: −1 the first.
        writes: whether it overwrote something.
        random: the state of the random numbers before it, where it drew some.
    """

    index: int
    target: Any
    module: Any  # its attributes depend on the layer
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    trouble: str = ""
    picks: tuple[int, ...] = ()
    writes: bool = False
    random: tuple[Tensor, ...] | None = None

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """Return the argument at ``position`` or called ``name``."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def option(self, position: int, name: str, default: Any = None) -> Any:
        """Return a layer's option, from the module or from the call."""
        return getattr(self.module, name) if self.module is not None else self.get(position, name, default)

    @property
    def kind(self) -> str:
        """Class or function name."""
        if self.module is not None:
            return type(self.module).__name__
        return function_name(self.target)

    @property
    def name(self) -> str:
        """Module path, with the function's name for a functional step."""
        if self.module is not None:
            return self.path or type(self.module).__name__
        if self.target is unfollowed:
            return self.path
        return f"{self.path}.{self.kind}" if self.path else self.kind


@dataclass(eq=False, slots=True)
class Trace:
    """The steps between the sources and the output, in order of execution.

    Attributes:
        sources: the measured input, or the embeddings of an integer input.
        output: the value measured; None when it does not depend on the input.
        steps: only those the output depends on.
        notes: what the reader should know (data-dependent branches, other outputs, ...).
        reads: where the program looked at the data, in words.
        draws: whether random numbers were drawn that no step stands for.
        random: brings the random numbers back to where they stood when the run began.
        native: the precision whose casts the run imitated in float64; None where it had nothing to imitate.
    """

    sources: tuple[Value, ...]
    output: Value | None
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    draws: bool = False
    random: Callable[[], None] | None = None
    native: Any = None
    embeddings: tuple[Any, ...] = ()
    consumers: dict[int, list[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for step in self.steps:
            for value in step.inputs:
                self.consumers.setdefault(value.index, []).append(step)

    @property
    def path_dependent(self) -> bool:
        """Whether other data may take another path through the program; proofs then hold for this path only."""
        return bool(self.reads)

    @property
    def end(self) -> Value:
        """The output of a trace that reaches one."""
        assert self.output is not None
        return self.output

    @property
    def measured(self) -> Tensor:
        """What the network is a function of: its source, or all of them side by side, a row a sample where they agree.

        Several sources are the embeddings of an integer input that is looked up more than once.
        """
        if len(self.sources) == 1:
            return self.sources[0].tensor
        tensors = [source.tensor for source in self.sources]
        return (
            torch.cat([t.flatten(1) for t in tensors], 1)
            if self._by_rows
            else torch.cat([t.flatten() for t in tensors])
        )

    def parted(self, x: Tensor) -> list[Tensor]:
        """A tensor like `measured`, of as many samples as it has, as one tensor a source."""
        if len(self.sources) == 1:
            return [x]
        shapes = [source.tensor.shape for source in self.sources]
        if not self._by_rows:
            parts = x.split([shape.numel() for shape in shapes])
            return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        parts = x.split([shape[1:].numel() for shape in shapes], 1)
        return [part.reshape(-1, *shape[1:]).contiguous() for part, shape in zip(parts, shapes, strict=True)]

    @property
    def _by_rows(self) -> bool:
        """Whether every source has a row for each sample."""
        first = self.sources[0].tensor
        return all(s.tensor.ndim > 1 and s.tensor.shape[0] == first.shape[0] for s in self.sources)

    def rewind(self) -> None:
        """Reset the random state, so that the next run draws the same numbers; does nothing if none were drawn."""
        if self.random is not None and (self.draws or any(step.random is not None for step in self.steps)):
            self.random()

    def doubted(self, name: str, why: str) -> Trace:
        """Return the trace with a last step that cannot be followed, so that nothing is claimed about the output."""
        values = [self.end, *self.sources, *(out for step in self.steps for out in step.outputs)]
        index = max((step.index for step in self.steps), default=-1) + 1
        made = (self.end,) if self.end.step is not None or self.end in self.sources else ()
        last = Step(index, unfollowed, None, name, (), {}, (*made, *self.sources), trouble=why)
        last.outputs = (Value(max(value.index for value in values) + 1, self.end.tensor, last),)
        return replace(self, output=last.outputs[0], steps=(*self.steps, last), consumers={})


def unfollowed(*values: Value) -> None:
    """Marks a step that could not be followed; never called."""


def function_name(function: Callable[..., Any]) -> str:
    """Return a short printable name; a property's getter is named after the property."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", repr(function))
    if name in ("__get__", "__set__") and owner is not None:
        return str(getattr(owner, "__name__", name))
    return str(name)


BARE = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))  # what holds no tensor


def axes_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """Return one axis or several, as torch takes them, as non-negative numbers."""
    return tuple(d % max(ndim, 1) for d in ((dim,) if isinstance(dim, int) else dim))


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor in a nested structure."""
    found: list[Tensor] = []
    _collect(tree, found)
    return found


def _collect(tree: Any, found: list[Tensor]) -> None:
    """Add the tensors of a structure; torch's own walk, many times as slow, is left to the unusual ones."""
    kind = type(tree)
    if isinstance(tree, Tensor):
        found.append(tree)
    elif kind is tuple or kind is list:
        for part in tree:
            _collect(part, found)
    elif kind is dict:
        for part in tree.values():
            _collect(part, found)
    elif kind not in BARE:
        found.extend(leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def backward_slice(output: Value) -> tuple[Step, ...]:
    """The steps ``output`` depends on, in order of execution."""
    wanted: dict[int, Step] = {}
    stack = [output]
    while stack:
        step = stack.pop().step
        if step is not None and step.index not in wanted:
            wanted[step.index] = step
            stack.extend(step.inputs)
    return tuple(wanted[i] for i in sorted(wanted))

"""One run of a model as a graph of ATen operations, weights included.

At this level there are few operations left: `Linear`, `F.linear` and an einsum are all a matrix product, a hand-written
RMSNorm is a square, a mean and a division, and attention is two products with a softmax between them. So a symmetry
that is understood for these few operations is understood however the model was written.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from normgauge.core.errors import InputError

Key = tuple[Any, ...]
NEW = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones",
    "new_full", "new_empty", "new_empty_strided",
}  # fmt: skip  # they read shapes only


@dataclass(eq=False, slots=True)
class GraphValue:
    """A tensor at one moment.

    Attributes:
        index: position among all values.
        shape: its shape.
        name: the weight or buffer it is; empty for anything else.
        role: ``state`` for weights and buffers, ``input``, ``constant``, or ``made`` by a node.
        tensor: the contents, kept for constants and whole numbers only.
        node: what made it.
    """

    index: int
    shape: torch.Size
    name: str = ""
    role: str = "made"
    floating: bool = True
    tensor: Tensor | None = None
    node: Node | None = None


@dataclass(eq=False, slots=True)
class Node:
    """One operation; a `GraphValue` stands for every tensor in its arguments, and ``inputs`` are these values."""

    index: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[GraphValue, ...] = ()
    call: int = -1  # how many operations ran before it
    chosen: bool = False  # whether whole numbers that depend on the batch are among its arguments
    mixed: bool = False  # not run: memory it shares with something that was written to
    inputs: list[GraphValue] = field(init=False)

    @property
    def op(self) -> str:
        """Its name, without overload and without the mark of working in place."""
        name = str(self.func.overloadpacket.__name__)
        return name[:-1] if name.endswith("_") and not name.startswith("__") else name

    def __post_init__(self) -> None:
        self.inputs = [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, GraphValue)]

    def arg(self, position: int, default: Any = None) -> Any:
        """The argument at ``position``, or ``default`` where it was not given."""
        return self.args[position] if position < len(self.args) else default


@dataclass(eq=False, slots=True)
class OperationGraph:
    """Everything one run did, in order.

    Attributes:
        nodes: the operations the output depends on, and those that handed a number to Python.
        values: every tensor.
        output: what the run returned; None when it did not come out of the operations seen.
        state: names of weights and buffers, and the values they are.
    """

    nodes: list[Node]
    values: list[GraphValue]
    output: GraphValue | None
    state: dict[str, GraphValue]
    consumers: dict[int, list[Node]] = field(default_factory=dict)
    from_state: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        from_input: set[int] = set()
        for role, reached in (("input", from_input), ("state", self.from_state)):
            reached.update(v.index for v in self.values if v.role == role)
            for node in self.nodes:
                if any(value.index in reached for value in node.inputs):
                    reached.update(out.index for out in node.outputs)
        for node in self.nodes:
            node.chosen = any(not v.floating and v.index in from_input for v in node.inputs)
            for value in dict.fromkeys(node.inputs):
                self.consumers.setdefault(value.index, []).append(node)

    def weighed(self, value: GraphValue) -> bool:
        """Whether a value depends on the weights."""
        return value.index in self.from_state

    def following(self, carried: Container[int], after: Node | None = None) -> Iterator[tuple[Node, list[GraphValue]]]:
        """Every operation behind ``after`` that reads something carried, and what it reads; ``carried`` may grow."""
        for node in self.nodes:
            active = [v for v in dict.fromkeys(node.inputs) if v.index in carried]
            if active and (after is None or node.index > after.index):
                yield node, active

    def readers(self, value: GraphValue) -> list[Node]:
        """The operations that read ``value``."""
        return self.consumers.get(value.index, [])


class Recorder(TorchDispatchMode):
    """Writes every operation down while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[GraphValue] = []
        self.nodes: list[Node] = []
        self.known: dict[Key, GraphValue] = {}
        self.alive: list[Tensor] = []  # nothing is freed while recording, so no address is used twice
        self.calls = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def bind(self, tensor: Tensor, contents: Tensor | None = None, **about: Any) -> GraphValue:
        """Record that ``tensor`` now holds a new value."""
        value = GraphValue(
            len(self.values), tensor.shape, floating=tensor.is_floating_point(), tensor=contents, **about
        )
        self.values.append(value)
        self.known[key(tensor)] = value
        self.alive.append(tensor)
        return value

    def lookup(self, leaf: Any) -> Any:
        """The value a tensor holds; a tensor never seen before is a constant."""
        if not isinstance(leaf, Tensor):
            return leaf
        return self.known.get(key(leaf)) or self.bind(leaf, role="constant", contents=leaf.detach().clone())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.calls += 1
        if name in ("detach", "alias", "lift_fresh"):
            out = func(*args, **kwargs)
            self.known[key(out)] = self.lookup(args[0])  # another name for the same contents
            self.alive.append(out)
            return out
        if name in NEW:
            return func(*args, **kwargs)
        frozen_args, frozen_kwargs = tree_map(self.lookup, (args, kwargs))
        out = func(*args, **kwargs)
        node = Node(len(self.nodes), func, tuple(frozen_args), frozen_kwargs, call=self.calls)
        if not node.inputs:
            return out
        self.nodes.append(node)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        node.outputs = tuple(
            self.bind(t, node=node, contents=None if t.is_floating_point() else t.detach().clone()) for t in results
        )
        if func._schema.is_mutable and results:
            self.overwritten(results[0], node)
        return out

    def overwritten(self, tensor: Tensor, node: Node) -> None:
        """Other views of memory that was just written to: they now depend on what was written, in an unknown way."""
        place, own = tensor.untyped_storage().data_ptr(), key(tensor)
        for other, value in list(self.known.items()):
            if other[0] == place and other != own and value.node is not node:
                mixed = Node(len(self.nodes), node.func, (value, node.outputs[0]), {}, mixed=True)
                self.nodes.append(mixed)
                fresh = GraphValue(len(self.values), value.shape, node=mixed)
                self.values.append(fresh)
                mixed.outputs = (fresh,)
                self.known[other] = fresh


def key(tensor: Tensor) -> Key:
    """What makes two tensors the same contents: memory, place in it and shape."""
    return (
        tensor.untyped_storage().data_ptr(),
        tensor.storage_offset(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.dtype,
        id(tensor) if tensor.numel() == 0 else 0,
    )


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Run attention by its definition, as separate operations that can be recorded."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def record_graph(run: Callable[[], Tensor], state: Mapping[str, Tensor], given: list[Tensor]) -> OperationGraph:
    """Run once and write everything down.

    Args:
        run: returns the output.
        state: weights and buffers by name.
        given: the tensors of the batch.

    Returns:
        The graph.

    Raises:
        InputError: for a model that cannot run on the batch, with its own words.
    """
    recorder = Recorder()
    named = {}
    for name, tensor in state.items():
        named[name] = recorder.known.get(key(tensor)) or recorder.bind(tensor, name=name, role="state")
    for tensor in given:
        if key(tensor) not in recorder.known:
            recorder.bind(tensor, role="input", contents=tensor.detach().clone())
    try:
        with torch.no_grad(), plain_kernels(), recorder:
            out = run()
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the model does not run on this batch in float64: {error}") from error
    output = recorder.known.get(key(out))
    read_out = [node for node in recorder.nodes if not node.outputs]
    return OperationGraph(needed(output, read_out), recorder.values, output, named)


def needed(output: GraphValue | None, read_out: list[Node]) -> list[Node]:
    """The operations ``output`` depends on, and those whose results Python saw (it may branch on them), in order."""
    found = {node.index: node for node in read_out}
    stack = [value for node in read_out for value in node.inputs]
    stack += [output] if output is not None else []
    while stack:
        node = stack.pop().node
        if node is not None and node.index not in found:
            found[node.index] = node
            stack.extend(node.inputs)
    return [found[i] for i in sorted(found)]

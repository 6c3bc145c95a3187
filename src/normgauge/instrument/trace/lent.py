"""Large weights lent out instead of copied: read in another precision, a moment at a time, and never written to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

LEAST = 2**16
"""Entries of a weight that is worth lending; smaller ones are copied."""

MOST_COPIED = 2**30
"""Bytes of all weights in float64 up to which they are copied: a copy is read faster than a cast."""

ROWS = {getattr(torch.ops.aten, name).default for name in ("embedding", "index_select")}
"""Operators that pick rows of a table: they run before the cast, not after it."""


COPIES = {torch.ops.aten.clone.default, torch.ops.aten._to_copy.default}


class WrittenTo(Exception):
    """A program writes to a weight that was lent to it: it needs a copy."""


class Lent(Tensor):
    """A weight that reads as its copy in ``dtype``, made for each operator that needs it and dropped behind it.

    Casting upwards is exact, so a program computes what it would with a copy of the whole weight. Views of a lent
    weight are lent too. An operator that writes to one raises `WrittenTo`.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, dtype: torch.dtype) -> Lent:
        """Lend ``held`` in ``dtype``."""
        place: Any = {"strides": held.stride(), "storage_offset": held.storage_offset(), "device": held.device}
        made: Lent = Tensor._make_wrapper_subclass(cls, held.size(), dtype=dtype, **place)
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def whole(self) -> Tensor:
        """The weight itself in the precision it is lent in."""
        return self.held.to(self.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Run an operator on casts of the lent weights among its arguments.

        Raises:
            WrittenTo: when it writes to one of them.
        """
        kwargs = kwargs or {}
        if any(isinstance(t, Lent) for t in written_by(func, args, kwargs)):
            raise WrittenTo(f"{func.overloadpacket.__name__} writes to a weight")
        first = args[0] if args and isinstance(args[0], Lent) else None
        if first is not None and func in COPIES:  # casting upwards is exact: one cast does for two
            return (
                func(first.held, *args[1:], **kwargs) if kwargs.get("dtype") else first.held.to(first.dtype, copy=True)
            )
        if first is not None and func in ROWS:
            return func(first.held, *args[1:], **kwargs).to(first.dtype)
        if first is not None and all(part.alias_info is not None for part in func._schema.returns):
            out = func(first.held, *args[1:], **kwargs)
            return tree_map(lambda part: Lent(part, first.dtype) if isinstance(part, Tensor) else part, out)
        args, kwargs = tree_map(lambda leaf: leaf.whole() if isinstance(leaf, Lent) else leaf, (args, kwargs))
        return func(*args, **kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Shape and precisions, not the numbers."""
        return f"Lent({tuple(self.shape)}, {self.held.dtype} as {self.dtype})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy of the weight itself."""
        copy = self.whole().clone()
        return nn.Parameter(copy, self.requires_grad) if isinstance(self, nn.Parameter) else copy

    def data_ptr(self) -> int:
        """Refuse: there is no memory in this precision that a kernel outside torch could read.

        Raises:
            WrittenTo: always.
        """
        raise WrittenTo("a program asks for the address of a weight")

    def tolist(self) -> Any:
        """The numbers, which lie in no memory of this tensor's own."""
        return self.whole().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The numbers as an array."""
        return self.whole().numpy(force=force)


def is_lendable(tensor: Tensor) -> bool:
    """Whether a weight is large, dense and floating."""
    dense = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type != "meta"
    return dense and tensor.is_floating_point() and tensor.numel() >= LEAST


def lends(model: nn.Module) -> bool:
    """Whether the weights of a model are too large to be copied whole in float64."""
    return sum(8 * weight.numel() for weight in model.parameters() if is_lendable(weight)) > MOST_COPIED


class NoWrites(TorchDispatchMode):
    """Inside, an operator that writes to one of the memories ``places`` raises `WrittenTo`."""

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__()
        self.places, self.refused = places, False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; saying so keeps torch from importing its compiler (seconds)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator that writes elsewhere or not at all.

        Raises:
            WrittenTo: for any other.
        """
        kwargs = kwargs or {}
        for tensor in written_by(func, args, kwargs):
            if tensor.untyped_storage().data_ptr() in self.places:
                self.refused = True  # the program may catch the error
                raise WrittenTo(f"{func.overloadpacket.__name__} writes to a weight")
        return func(*args, **kwargs)


def written_by(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors an ATen operator declares it writes to."""
    found: list[Tensor] = []
    if not func._schema.is_mutable:
        return found
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            found.extend(leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor))
    return found

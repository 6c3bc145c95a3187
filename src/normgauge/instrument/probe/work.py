"""What a pass through a network costs, counted and not clocked: a search is then equally long wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from normgauge.instrument.trace.step import tensors_in

PRODUCT, ENTRY, CALL = 6e-11, 1e-9, 5e-6  # seconds in float64 on one thread of a common processor
GRAPH, PULL, PUSH, CLIMB = 1.2, 1.0, 1.0, 4.0  # runs of the network that a graph, Jᵀu, J v and a gradient of ‖Jᵀu‖ take
KINKED_CLIMB = 6.0  # the same gradient where kinks have a bump
MATRICES = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}  # place of the first factor

KINKS = {"relu", "relu_", "leaky_relu", "leaky_relu_"}


@dataclass(slots=True)
class Work:
    """What one run of a function consists of.

    Attributes:
        products: multiplications in matrix products and convolutions.
        entries: numbers read and written.
        calls: operations, each with its own overhead.
        convolutions: how many of them are convolutions.
        kinks: how many of them are units with a kink at 0.
    """

    products: int = 0
    entries: int = 0
    calls: int = 0
    convolutions: int = 0
    kinks: int = 0

    @property
    def seconds(self) -> float:
        """About what it takes; the same number on every machine."""
        return self.arithmetic + CALL * self.calls

    @property
    def arithmetic(self) -> float:
        """The part of it that grows with the batch."""
        return PRODUCT * self.products + ENTRY * self.entries

    def add(self, name: str, given: Any, out: Any) -> None:
        """Count one operation by its name, arguments and result."""
        self.calls += 1
        self.kinks += name in KINKS
        self.entries += sum(tensor.numel() for tensor in tensors_in((given, out)))
        if name in MATRICES:
            self.products += _size(out) * given[MATRICES[name]].shape[-1]
        elif name == "convolution":
            self.convolutions += 1
            image, kernel, transposed = given[0], given[1], given[6]
            self.products += _size(image if transposed else out) * kernel[0].numel()


def _size(out: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_in(out))


class Counting(TorchDispatchMode):
    """Counts the work of what runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a mode that asks to be skipped loads the compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.is_view:
            self.work.calls += 1
        else:
            self.work.add(str(func).split(".")[1], args, out)
        return out


def counted(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Work]:
    """Run a function on copies of ``x``; return its result and the work it was."""
    try:
        with Counting() as counting:
            out = function(x.clone())
    except Exception:  # some programs do not run while every operation is watched
        return function(x.clone()), Work(0, x.numel(), 1)
    return out, counting.work

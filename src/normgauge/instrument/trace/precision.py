"""What a model's program does about precision, and how a copy in float64 does the same."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from normgauge.instrument.trace.inputs import map_tensors
from normgauge.instrument.trace.step import tensors_in

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CASTS = {
    getattr(Tensor, name)
    for name in ("to", "float", "half", "bfloat16", "double", "type", "type_as", "cpu", "cuda")
}  # fmt: skip


DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]
RMS_NORMS = (F.rms_norm, torch.rms_norm)


def default_eps(dtype: torch.dtype) -> float:
    """What an RMSNorm without an ε adds to the mean square of a tensor of ``dtype``: halves are squared in float32."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps


def without_eps(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call is an RMSNorm that leaves its ε open."""
    return func in RMS_NORMS and (args[3] if len(args) > 3 else kwargs.get("eps")) is None


class OwnEps(TorchFunctionMode):
    """Gives an RMSNorm without an ε the one of the model's own precision, not of the copy's."""

    def __init__(self, own: torch.dtype) -> None:
        super().__init__()
        self.eps = default_eps(own)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if without_eps(func, args, kwargs):
            args, kwargs = args[:3], {**kwargs, "eps": self.eps}
        return func(*args, **kwargs)


class Precision(TorchFunctionMode):
    """Notes what a program does about precision while it runs in its own precision.

    Attributes:
        eps: the precision of every tensor that is normalized by an RMSNorm without an ε.
        asked: whether it looks at a tensor's precision, casts tensors or asks for a precision by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eps: set[torch.dtype] = set()
        self.asked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if without_eps(func, args, kwargs):
            self.eps.add(args[0].dtype)
        given = any(_is_one_of(value, FLOATS) for value in (*args, *kwargs.values()))
        self.asked |= func in CASTS or func == DTYPE or given
        return func(*args, **kwargs)


class Widened(TorchFunctionMode):
    """Runs a program whose tensors are copies in float64 as it would run in ``native``.

    A program that looks at a tensor's precision sees ``native``. A change of precision is the identity: the tensor
    itself where the program would get that back, else a copy of it. A precision that is asked for is float64, and
    constants of another one are widened where they do not fit.
    """

    def __init__(self, native: torch.dtype) -> None:
        super().__init__()
        self.native = native

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == DTYPE:
            found = func(*args, **kwargs)
            return self.native if found == torch.float64 else found
        if func in CASTS and args[0].is_floating_point():
            out = func(*args, **kwargs)
            if not isinstance(out, Tensor) or out.dtype not in FLOATS:
                return out
            wider = func is Tensor.double or torch.float64 in (*args[1:], *kwargs.values())
            same = self.native == torch.float64 if wider else out is args[0] or out.dtype == self.native
            return args[0] if same and not kwargs.get("copy") else args[0].clone()
        wide = FLOATS if tensors_in((args, kwargs)) else (self.native,)  # a constant of another precision stays one
        args = tuple(torch.float64 if _is_one_of(value, wide) else value for value in args)
        kwargs = {key: torch.float64 if _is_one_of(value, wide) else value for key, value in kwargs.items()}
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            if not any(t.is_floating_point() and t.dtype != torch.float64 for t in tensors_in((args, kwargs))):
                raise
        args, kwargs = map_tensors(lambda t: t.double() if t.is_floating_point() else t, (args, kwargs))
        return func(*args, **kwargs)


def _is_one_of(value: Any, precisions: tuple[torch.dtype, ...]) -> bool:
    return isinstance(value, torch.dtype) and value in precisions


def imitate_precision(native: torch.dtype | None) -> AbstractContextManager[Any]:
    """Inside, a program runs as it would in ``native``; None changes nothing."""
    return nullcontext() if native is None else Widened(native)

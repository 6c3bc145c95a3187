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

EIGHTS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, *EIGHTS)
CASTS = {
    getattr(Tensor, name)
    for name in ("to", "float", "half", "bfloat16", "double", "type", "type_as", "cpu", "cuda")
}  # fmt: skip


DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]
SIZES = {Tensor.element_size, Tensor.itemsize.__get__}  # type: ignore[attr-defined]
NBYTES = Tensor.nbytes.__get__  # type: ignore[attr-defined]
SHOWS = {Tensor.storage, Tensor.untyped_storage, Tensor.storage_type, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}
"""What shows the memory of a tensor, and with it the precision of the copy, which nothing hides there."""
NAMES = {torch.float32: "Float", torch.float16: "Half", torch.bfloat16: "BFloat16"}
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
        narrowest: what it casts tensors to that is narrower than they are and than ``own``; None where nothing is.
    """

    def __init__(self, own: torch.dtype) -> None:
        super().__init__()
        self.eps: set[torch.dtype] = set()
        self.asked = False
        self._own = own
        self.narrowest: torch.dtype | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if without_eps(func, args, kwargs):
            self.eps.add(args[0].dtype)
        given = any(_is_one_of(value, FLOATS) for value in (*args, *kwargs.values()))
        self.asked |= func in CASTS or func == DTYPE or given or asks(func)
        out = func(*args, **kwargs)
        if func in CASTS and isinstance(out, Tensor) and out.is_floating_point() and args[0].is_floating_point():
            least = min((args[0].dtype, self.narrowest or self._own), key=lambda dtype: dtype.itemsize)
            self.narrowest = out.dtype if out.dtype.itemsize < least.itemsize else self.narrowest
        return out


def asks(func: Any) -> bool:
    """Whether a function tells a program the precision of a tensor."""
    return func in SIZES or func == NBYTES or func in SHOWS or func in (torch.result_type, torch.can_cast)


def described(func: Any, args: Any, kwargs: Any, native: torch.dtype) -> Any:
    """What a question about precision is answered in ``native`` for a tensor in float64; None for other questions."""
    if func in SIZES or func == NBYTES or func is Tensor.type:
        if args[0].dtype != torch.float64:
            return None
        if func in SIZES:
            return native.itemsize
        if func == NBYTES:
            return native.itemsize * args[0].numel()
        if len(args) == 1 and not kwargs:
            return args[0].type().replace("DoubleTensor", f"{NAMES.get(native, 'Double')}Tensor")
    if func in (torch.result_type, torch.can_cast):

        def own(part: Any) -> Any:
            wide = isinstance(part, Tensor) and part.dtype == torch.float64
            return torch.empty(part.shape, dtype=native, device="meta") if wide else part

        return func(*map(own, args), **{key: own(part) for key, part in kwargs.items()})
    return None


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
        if (answer := described(func, args, kwargs, self.native)) is not None:
            return answer
        if func in (torch.promote_types, torch.can_cast):  # of precisions by name: they are the program's own
            return func(*args, **kwargs)
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

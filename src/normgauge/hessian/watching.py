"""What a forward pass does that matters to second derivatives: attention, steps without slope, broken graphs.

Two functions are written out here, since torch differentiates them once only: the second derivative of its weight
normalization takes ‖v‖ for a constant and says nothing, that of hardsigmoid does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

ATTENTION = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})
FLAT = frozenset({"sign", "sgn", "round", "floor", "ceil", "trunc", "fix", "heaviside", "floor_divide"})
NUMBERS = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__bool__"})


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """w = g v/‖v‖ with the norm over all dimensions but ``dim``; −1 for all of them."""
    others = [d for d in range(v.ndim) if dim == -1 or d != dim % v.ndim]
    return v * (g / torch.linalg.vector_norm(v, dim=others, keepdim=True)) if others else v * (g / v.abs())


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x/6 + ½, 0), 1)."""
    return torch.clamp(input / 6 + 0.5, 0.0, 1.0)


WRITTEN_OUT: dict[Any, Callable[..., Tensor]] = {
    torch._weight_norm: weight_norm,
    torch._C._nn.hardsigmoid: hardsigmoid,
    F.hardsigmoid: hardsigmoid,
}


class Watching(TorchFunctionMode):
    """Writes down what a forward pass calls, and writes out what torch cannot differentiate twice.

    Attributes:
        attention: whether an attention kernel was asked for.
        flat: operations whose derivative is zero almost everywhere, met by a tensor that needs one.
        breaks: operations that took a tensor with a gradient and gave one without, in order.
        disabled: whether a tensor that needs a gradient was used while gradients were off.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attention = False
        self.flat: dict[str, None] = {}
        self.breaks: dict[str, None] = {}
        self.disabled = False

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function and look at it."""
        kwargs = kwargs or {}
        name = name_of(func)
        result = WRITTEN_OUT.get(func, func)(*args, **kwargs)
        self.attention |= name in ATTENTION
        if any(tensor.requires_grad for tensor in flat_tensors((*args, *kwargs.values()))):
            self.look(name.rstrip("_") if name[:1] != "_" else name, result)
        return result

    def look(self, name: str, result: Any) -> None:
        """What the function made of a tensor that needs a gradient."""
        given = list(flat_tensors((result,)))
        lost = bool(given) and not any(tensor.requires_grad for tensor in given)
        self.disabled |= lost and not torch.is_grad_enabled()
        if name in FLAT:
            self.flat[name] = None
        if (lost and torch.is_grad_enabled()) or name in NUMBERS:
            self.breaks[name] = None

    def why(self) -> str:
        """Why the loss has no gradient, in a few words."""
        if self.disabled:
            return "gradients are switched off inside the model or the loss (torch.no_grad or inference_mode)"
        if self.breaks:
            return f"{' and '.join(list(self.breaks)[:3])} passes no gradient on"
        return "no operation leads from a parameter to it"


def name_of(func: Any) -> str:
    """``argmax`` for a function or method, ``data`` for a property."""
    name: str = getattr(func, "__name__", str(func))
    return str(func.__self__.__name__) if name == "__get__" else name


def flat_tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among the values and the lists and tuples there."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from flat_tensors(value)

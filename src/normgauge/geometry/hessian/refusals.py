"""What is said of a loss that cannot be differentiated twice, and of one that can.

What a forward pass does that matters to second derivatives is watched: attention, steps without slope, broken graphs.
Two functions are written out, since torch differentiates them once only: the second derivative of its weight
normalization takes ‖v‖ for a constant and says nothing, that of hardsigmoid does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normgauge.core.errors import InputError
from normgauge.instrument.trace.inputs import describe_output
from normgauge.instrument.trace.step import function_name, tensors_in

ATTENTION = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})
FLAT = frozenset({"sign", "sgn", "round", "floor", "ceil", "trunc", "fix", "heaviside", "floor_divide"})
NUMBERS = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__bool__"})


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """w = g v/‖v‖ with the norm over all dimensions but ``dim``; −1 for all of them."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


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
        name = function_name(func)
        result = WRITTEN_OUT.get(func, func)(*args, **kwargs)
        self.attention |= name in ATTENTION
        if any(tensor.requires_grad for tensor in tensors_in([*args, *kwargs.values()])):
            self.look(name.rstrip("_") if name[:1] != "_" else name, result)
        return result

    def look(self, name: str, result: Any) -> None:
        """What the function made of a tensor that needs a gradient."""
        given = tensors_in(result)
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


def checked_loss(loss: Any, where: str, watching: Watching) -> float:
    """The loss as a number.

    Raises:
        InputError: when it is no finite scalar with a gradient.
    """
    if not isinstance(loss, Tensor):
        raise InputError(f"loss: expected a tensor with one entry, got {describe_output(loss)} on {where}")
    if loss.numel() != 1:
        raise InputError(
            f"loss: expected a scalar, got shape {tuple(loss.shape)} on {where}; take its mean over the samples "
            '(reduction="mean")'
        )
    if loss.grad_fn is None:
        raise InputError(f"loss: expected one with a gradient, got one without on {where}: {watching.why()}")
    value = float(loss.detach())
    if not math.isfinite(value):
        raise InputError(f"loss: expected a finite number, got {value} on {where}; its curvature would mean nothing")
    return value


def gradient_notes(
    names: Sequence[str], gradients: Sequence[Tensor | None], watching: Watching, own: list[str], where: str
) -> Iterator[str]:
    """What a reader must know of this gradient.

    Raises:
        InputError: when it is not finite, is cut off, or cannot be differentiated again.
    """
    if any(type(node).__name__ == "Error" for node in nodes(gradients)):
        raise InputError(
            "an operation of the model or the loss has no second derivative: its backward is marked with "
            "@once_differentiable; torch would leave its part out and say nothing"
        )
    flat = ", ".join(watching.flat)
    if not all(bool(torch.isfinite(g.detach()).all()) for g in gradients if g is not None):
        raise InputError(f"loss: its gradient on {where} is not finite; its curvature would mean nothing")
    if flat and not any(bool(g.detach().any()) for g in gradients if g is not None):
        raise InputError(f"loss: no gradient reaches the parameters on {where}: the derivative of {flat} is zero")
    if flat:
        yield f"the derivative of {flat} is zero almost everywhere: curvature behind it is not seen"
    if own:
        yield (
            f"{abridged_names(own)} has a backward written by hand: its second derivative is right only where that can "
            "be differentiated itself"
        )
    unused = [name for name, g in zip(names, gradients, strict=True) if g is None]
    if unused:
        yield f"the loss does not depend on {abridged_names(unused)}: zero rows of the Hessian"


def first_notes(model: nn.Module, mode: str, frozen: list[str]) -> Iterator[str]:
    """What is known before anything is run."""
    if frozen:
        yield f"frozen parameters are not part of it: {abridged_names(frozen)}"
    dropped = [n for n, m in model.named_modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0]
    if mode == "train" and dropped:
        yield f"dropout draws one mask a batch and holds it: {abridged_names(dropped)}"


def abridged_names(names: list[str], most: int = 4) -> str:
    """A few names and how many more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def nodes(tensors: Iterable[Tensor | None]) -> Iterator[Any]:
    """Every node of the graph behind some tensors."""
    stack: list[Any] = [tensor.grad_fn for tensor in tensors if tensor is not None]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack += [following for following, _ in node.next_functions]


def own_functions(loss: Tensor) -> list[str]:
    """Names of the functions of the user's own in the graph of the loss."""
    own = [type(node).__name__ for node in nodes([loss]) if isinstance(node, torch.autograd.function.BackwardCFunction)]
    return sorted({name.removesuffix("Backward") for name in own})


def forward_failure(error: Exception, where: str, seen: list[str]) -> str:
    """What went wrong in the forward; ``seen`` ends with the normalizer called last."""
    if isinstance(error, ValueError) and "more than 1" in str(error) and seen:
        return (
            f"{where} has one value a channel at {seen[-1]}, which has no variance in train mode; give larger batches "
            '(drop_last=True for a last one of one sample) or mode="eval"'
        )
    return f"the model or the loss raised {type(error).__name__} on {where}: {' '.join(str(error).split())}"[:400]

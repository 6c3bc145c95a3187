"""What the curvature is measured on, and the graph of one batch's gradient, kept to be differentiated again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset, IterableDataset

from normgauge.core.errors import InputError, NormgaugeError
from normgauge.geometry.hessian.refusals import (
    Watching,
    checked_loss,
    first_notes,
    forward_failure,
    gradient_notes,
    own_functions,
)
from normgauge.instrument.rules.tried import of_module
from normgauge.instrument.trace.inputs import check_initialized, describe_output, make_call, named_tensors
from normgauge.instrument.trace.untouched import cast_tree, untouched, unwrap

ATTENTION_NOTE = "attention runs on torch's math kernel: the fused ones have no second derivative"
MODES = ("eval", "train")
SAMPLES = 256  # of a data set in one batch
Loss = Callable[..., Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """How the loss is evaluated: the model, what to call, on which batches, in which mode and precision."""

    model: nn.Module
    batches: list[Any]
    call: Callable[[nn.Module, Any], Any]
    mode: str
    dtype: torch.dtype
    native: torch.dtype
    device: torch.device
    seed: int
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss: Loss | None,
        batches: Any,
        *,
        objective: Callable[[nn.Module, Any], Any] | None = None,
        mode: str = "train",
        dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> Setting:
        """Check what was given; the arguments are those of `normgauge.geometry.hessian.product.Product`.

        Raises:
            InputError: for anything that cannot be measured.
        """
        model, data = unwrap(model), as_batches(batches)
        if mode not in MODES:
            raise InputError(f"mode: expected eval or train, got {mode!r}")
        if (loss is None) == (objective is None):
            raise InputError("expected either loss(output, target) or objective=f with f(model, batch), and one only")
        if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
            raise InputError("expected a Python model, got one with compiled (torch.jit) parts; give it uncompiled")
        check_initialized(model)
        everything = dict(model.named_parameters())
        trained = {name: p for name, p in everything.items() if p.requires_grad}
        if not everything:
            raise InputError(
                "model: expected parameters, got a model without any; there is nothing to differentiate by"
            )
        if not trained:
            raise InputError(
                f"model: all {len(everything)} parameters are frozen; set requires_grad on those that count"
            )
        first = next(iter(trained.values()))
        own = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        call: Any = objective if loss is None else partial(_paired, loss)
        shapes = tuple(p.shape for p in trained.values())
        notes = tuple(first_notes(model, mode, [name for name in everything if name not in trained]))
        return cls(
            model, data, call, mode, dtype or own, first.dtype, first.device, seed, tuple(trained), shapes, notes
        )

    def shares(self) -> list[float]:
        """The share of each batch in the mean over all samples."""
        sizes = [size_of(batch, i) for i, batch in enumerate(self.batches)]
        return [size / math.fsum(sizes) for size in sizes]

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Changes when a parameter or buffer is written to."""
        return tuple((id(t), t._version) for t in (*self.model.parameters(), *self.model.buffers()))

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, the model holds copies in the wanted precision and mode, and kernels that differentiate twice."""
        with ExitStack() as stack:
            stack.enter_context(untouched(self.model, self.dtype, self.device, self.mode == "train", self.native))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(torch.enable_grad())
            if any(isinstance(module, nn.RNNBase) for module in self.model.modules()):
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # its recurrent kernels stop at one
            torch.manual_seed(self.seed)
            yield


@dataclasses.dataclass(slots=True)
class GradientGraph:
    """One batch's loss and its gradient, still attached to copies of the parameters."""

    parameters: Sequence[Tensor]
    gradients: tuple[Tensor | None, ...]
    loss: float
    notes: tuple[str, ...]

    def times(self, chosen: list[int], pieces: list[Tensor]) -> list[Tensor | None]:
        """The block of the chosen parameters times a vector given in pieces."""
        pairs = [(self.gradients[i], piece) for i, piece in zip(chosen, pieces, strict=True)]
        live = [(g, piece) for g, piece in pairs if g is not None and g.requires_grad]
        if not live:  # a loss that is linear in them
            return [None] * len(chosen)
        parameters, (slopes, along) = [self.parameters[i] for i in chosen], zip(*live, strict=True)
        return list(_gradient(slopes, parameters, along, retain_graph=True))


def build_graph(setting: Setting, index: int, shift: Sequence[Tensor] = (), keep: bool = True) -> GradientGraph:
    """Run the model on one batch and take the gradient of its loss.

    Args:
        setting: the model and how it is called.
        index: of the batch.
        shift: what to add to the parameters first, one tensor each.
        keep: keep the graph of the gradient, to differentiate it again.

    Returns:
        The graph, or the gradient alone.

    Raises:
        InputError: when the loss is no finite scalar with a gradient, or the forward fails.
        NormgaugeError: whatever of ours the forward raises.
    """
    watching, where = Watching(), f"batch {index}"
    with setting.lent():
        named = dict(setting.model.named_parameters())
        parameters = [named[name] for name in setting.names]
        with torch.no_grad():
            for parameter, piece in zip(parameters, shift, strict=bool(shift)):
                parameter.add_(piece)
        seen = _follow_normalizers(setting.model)
        try:
            with watching:
                loss = setting.call(setting.model, cast_tree(setting.batches[index], setting.dtype, setting.device))
        except NormgaugeError:
            raise
        except Exception as error:
            raise InputError(forward_failure(error, where, seen)) from error
        value = checked_loss(loss, where, watching)
        own = own_functions(loss)
        gradients = _gradient(loss, parameters, create_graph=keep)
    notes = [ATTENTION_NOTE] if watching.attention else []
    return GradientGraph(
        parameters, gradients, value, (*notes, *gradient_notes(setting.names, gradients, watching, own, where))
    )


def _gradient(
    of: Any, by: Sequence[Tensor], along: Sequence[Tensor] | None = None, **options: Any
) -> tuple[Tensor | None, ...]:
    """Gradients as torch.autograd.grad gives them; None for a tensor that nothing depends on.

    Raises:
        InputError: when an operation has no second derivative.
    """
    try:
        return torch.autograd.grad(of, by, along, allow_unused=True, **options)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise InputError(f"an operation of the model or the loss has no second derivative: {text}"[:400]) from error


def _paired(loss: Loss, model: nn.Module, batch: Any) -> Any:
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise InputError(
            f"batches: expected pairs (input, target), got {describe_output(batch)}; for batches of another form give "
            "objective=f with f(model, batch) instead of a loss"
        )
    given = make_call(model, batch[0])
    return loss(model(*given.args, **given.kwargs), batch[1])


def _follow_normalizers(model: nn.Module) -> list[str]:
    """A list that always ends with the normalizer called last; its hooks leave with the copies."""
    seen: list[str] = []
    for name, module in model.named_modules():
        form = of_module(module)
        if form is not None and form.kind in ("batch", "instance"):
            module.register_forward_pre_hook(lambda *_, name=name: seen.append(name))
    return seen


def as_batches(data: Any, size: int = SAMPLES) -> list[Any]:
    """Data in any of the accepted forms, as a list of batches.

    Args:
        data: a list or loader of batches, one batch (a pair of tensors, or a mapping), or a data set of single
            samples, which is cut into batches in its own order. A loader is read once, so one that shuffles or
            augments gives every product the same samples.
        size: samples a batch, for a data set.

    Returns:
        The batches, at least one.

    Raises:
        InputError: when there is none, or the data cannot be read.
    """
    if isinstance(data, Mapping) or is_pair(data):
        return [data]
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=size)
    if isinstance(data, Tensor) or not isinstance(data, Iterable):
        raise InputError(
            f"batches: expected batches of (input, target), got {describe_output(data)}; give one batch as [(x, y)]"
        )
    batches = list(data)
    if not batches:
        raise InputError("batches: expected at least one batch, got none; is the loader used up, or the data empty?")
    return batches


def is_pair(data: Any) -> bool:
    """Whether this is one batch (input, target) and not a sequence of batches."""
    return isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor)


def size_of(batch: Any, index: int) -> int:
    """The number of samples in a batch: the length of its target, else of its first tensor.

    Raises:
        InputError: when it holds none.
    """
    tensors = [tensor for _, tensor in named_tensors(batch[1] if is_pair(batch) else batch)]
    tensors = [tensor for tensor in tensors if tensor.ndim > 0] or tensors
    if not tensors:
        raise InputError(f"batch {index}: expected tensors, got {describe_output(batch)}")
    size = len(tensors[0]) if tensors[0].ndim else 1
    if size == 0:
        raise InputError(f"batch {index}: expected at least one sample, got shape {tuple(tensors[0].shape)}")
    return size

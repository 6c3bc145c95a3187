"""The graph of one batch's gradient, kept so that it can be differentiated again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.errors import InputError, NormgaugeError
from normgauge.hessian.batches import is_pair
from normgauge.hessian.refusals import about, checked, failed, first_notes, no_parameters, no_second, own_functions
from normgauge.hessian.watching import Watching
from normgauge.trace.inputs import check_initialized, describe, make_call
from normgauge.trace.untouched import cast_tree, untouched

ATTENTION_NOTE = "attention runs on torch's math kernel: the fused ones have no second derivative"
MODES = ("eval", "train")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """How the loss is evaluated: the model, what to call, in which mode and precision."""

    model: nn.Module
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
        loss: Callable[..., Tensor] | None,
        objective: Callable[[nn.Module, Any], Tensor] | None,
        mode: str,
        dtype: torch.dtype | None,
        seed: int,
    ) -> Setting:
        """Check what was given.

        Raises:
            InputError: for anything that cannot be measured.
        """
        if mode not in MODES:
            raise InputError(f"mode: expected eval or train, got {mode!r}")
        if (loss is None) == (objective is None):
            raise InputError("expected either loss(output, target) or objective=f with f(model, batch), and one only")
        if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
            raise InputError("expected a Python model, got one with compiled (torch.jit) parts; give it uncompiled")
        check_initialized(model)
        everything = dict(model.named_parameters())
        trained = {name: p for name, p in everything.items() if p.requires_grad}
        if not trained:
            raise InputError(no_parameters(everything))
        first = next(iter(trained.values()))
        own = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        call = objective if objective is not None else _paired(loss)
        shapes = tuple(p.shape for p in trained.values())
        notes = tuple(first_notes(model, mode, [name for name in everything if name not in trained]))
        return cls(model, call, mode, dtype or own, first.dtype, first.device, seed, tuple(trained), shapes, notes)

    def values(self) -> Mapping[str, Tensor]:
        """The parameters as they are now."""
        return dict(self.model.named_parameters())

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
class Graph:
    """One batch's loss and its gradient, still attached to copies of the parameters."""

    parameters: Sequence[Tensor]
    gradients: tuple[Tensor | None, ...]
    loss: float
    notes: tuple[str, ...]

    def times(self, chosen: list[int], pieces: list[Tensor]) -> list[Tensor | None]:
        """The block of the chosen parameters times a vector given in pieces.

        Raises:
            InputError: when an operation has no second derivative.
        """
        pairs = [(self.gradients[i], piece) for i, piece in zip(chosen, pieces, strict=True)]
        live = [(g, piece) for g, piece in pairs if g is not None and g.requires_grad]
        if not live:  # a loss that is linear in them
            return [None] * len(chosen)
        try:
            return list(
                torch.autograd.grad(
                    [g for g, _ in live],
                    [self.parameters[i] for i in chosen],
                    [piece for _, piece in live],
                    retain_graph=True,
                    allow_unused=True,
                )
            )
        except RuntimeError as error:
            raise InputError(no_second(error)) from error


def build(setting: Setting, batch: Any, where: str, shift: Sequence[Tensor] | None = None, keep: bool = True) -> Graph:
    """Run the model on one batch and take the gradient of its loss.

    Args:
        setting: the model and how it is called.
        batch: one batch.
        where: its name in messages.
        shift: what to add to the parameters first, one tensor each.
        keep: keep the graph of the gradient, to differentiate it again.

    Returns:
        The graph, or the gradient alone.

    Raises:
        InputError: when the loss is no finite scalar with a gradient, or the forward fails.
        NormgaugeError: whatever of ours the forward raises.
    """
    watching = Watching()
    with setting.lent():
        named = dict(setting.model.named_parameters())
        parameters = [named[name] for name in setting.names]
        _move(parameters, shift)
        seen = _follow_normalizers(setting.model)
        try:
            with watching:
                loss = setting.call(setting.model, cast_tree(batch, setting.dtype, setting.device))
        except NormgaugeError:
            raise
        except Exception as error:
            raise InputError(failed(error, where, seen)) from error
        value = checked(loss, where, watching)
        own = own_functions(loss)
        try:
            gradients = torch.autograd.grad(loss, parameters, create_graph=keep, allow_unused=True)
        except RuntimeError as error:
            raise InputError(no_second(error)) from error
    notes = [ATTENTION_NOTE] if watching.attention else []
    return Graph(parameters, gradients, value, (*notes, *about(setting.names, gradients, watching, own, where)))


def _move(parameters: Sequence[Tensor], shift: Sequence[Tensor] | None) -> None:
    if shift is not None:
        with torch.no_grad():
            for parameter, piece in zip(parameters, shift, strict=True):
                parameter.add_(piece)


def _paired(loss: Callable[..., Tensor] | None) -> Callable[[nn.Module, Any], Any]:
    assert loss is not None

    def call(model: nn.Module, batch: Any) -> Any:
        if not is_pair(batch) and not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise InputError(
                f"batches: expected pairs (input, target), got {describe(batch)}; for batches of another form give "
                "objective=f with f(model, batch) instead of a loss"
            )
        given = make_call(model, batch[0])
        return loss(model(*given.args, **given.kwargs), batch[1])

    return call


def _follow_normalizers(model: nn.Module) -> list[str]:
    """A list that always ends with the normalizer called last; its hooks leave with the copies."""
    seen: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase):
            module.register_forward_pre_hook(lambda *_, name=name: seen.append(name))
    return seen

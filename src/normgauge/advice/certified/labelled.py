"""What may be given: a batch with labels or without, and a network that gives one number a class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError
from normgauge.instrument.session import Session
from normgauge.instrument.trace.inputs import Call, argument_name


def split_labels(batch: Any, labels: Any) -> tuple[Any, Any]:
    """A batch that is a pair (inputs, class numbers) in two; labels given beside it are taken as they are."""
    if labels is not None or not isinstance(batch, tuple | list) or len(batch) != 2:
        return batch, labels
    first, second = batch
    named = isinstance(second, Tensor) and second.ndim == 1 and not second.is_floating_point()
    return (first, second) if named and isinstance(first, Tensor) and first.ndim > 1 else (batch, None)


def check_inputs(call: Call) -> None:
    """Refuse samples that cannot be moved a little.

    Raises:
        InputError: saying what was expected.
    """
    name, tensor = argument_name(call.name), call.measured
    if not tensor.is_floating_point():
        raise InputError(
            f"{name}: expected real numbers, got {tensor.dtype}, which have no small changes; convert the batch with "
            ".float(), or give the part of the model behind its embedding"
        )
    if tensor.ndim < 2:
        raise InputError(
            f"{name}: expected samples along the first axis, got shape {tuple(tensor.shape)}; give one "
            "sample as x[None]"
        )


def checked_outputs(session: Session) -> Tensor:
    """The outputs in float64, (samples, classes).

    Raises:
        InputError: for outputs of another form or that are no numbers, samples that influence each other, and chance.
    """
    parts = session.composed(Scope.parse("point"))
    outputs = session.trace.end.tensor.detach().double()
    if session.together and session.samples > 1:
        raise InputError(
            "expected a network that treats samples one by one, got one in which those of a batch influence each "
            "other; give one sample at a time"
        )
    if session.trace.draws or any(step.random is not None for step in session.trace.steps):
        raise InputError(
            "expected a network whose output its input decides, got one that draws random numbers in eval mode; take "
            "them out, or pass what is drawn as an input"
        )
    first = session.samples == 1 or parts.flows[session.trace.end.index].axis == 0
    if outputs.ndim != 2 or outputs.shape[0] != session.samples or outputs.shape[1] < 2 or not first:
        raise InputError(
            f"output: expected one number for each of two classes or more, (samples, classes), got shape "
            f"{tuple(outputs.shape)} for {session.samples} samples; one number alone names no class: put a 0 "
            "beside it for the other class, or name another output"
        )
    if not bool(outputs.isfinite().all()):
        raise InputError("output: expected finite numbers, got NaN or infinity; the network has diverged on this batch")
    return outputs


def checked_labels(labels: Any, samples: int, classes: int) -> Tensor | None:
    """The labels as a tensor of class numbers; None where none were given.

    Raises:
        InputError: for anything but one class number for each sample.
    """
    if labels is None:
        return None
    try:
        given = torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"labels: expected one class number a sample, got {type(labels).__name__} ({error})") from None
    whole = not given.is_floating_point() and not given.is_complex() and given.dtype != torch.bool
    if not whole or given.shape != (samples,):
        raise InputError(
            f"labels: expected {samples} class numbers, one a sample, got {given.dtype} of shape {tuple(given.shape)}; "
            "one-hot labels become numbers by .argmax(1)"
        )
    if bool((given < 0).any()) or bool((given >= classes).any()):
        raise InputError(
            f"labels: expected class numbers from 0 to {classes - 1}, as the network has {classes} outputs, got "
            f"{int(given.min())} to {int(given.max())}"
        )
    return given.long()

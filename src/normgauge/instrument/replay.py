"""The model as a function of the one tensor that is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normgauge.core.errors import InputError
from normgauge.instrument.trace.by_piece import by_piece
from normgauge.instrument.trace.inputs import Call, map_tensors, pick_output
from normgauge.instrument.trace.precision import imitate_precision
from normgauge.instrument.trace.step import Trace, function_name
from normgauge.instrument.trace.true_slopes import TrueSlopes


class Substitute(TorchFunctionMode):
    """Puts tensors in the place of the results of some embedding lookups, by which of all they are, counted from 1."""

    def __init__(self, tensors: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.tensors, self.count = tensors, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function_name(func) == "embedding":
            self.count += 1
            if self.count in self.tensors:
                return self.tensors[self.count]
        return func(*args, **(kwargs or {}))


def replay_model(model: nn.Module, call: Call, trace: Trace, output: str | None) -> Callable[[Tensor], Tensor]:
    """Return the model as a function of the measured tensor alone, or of all its embeddings for an integer input."""
    measured = None if trace.embeddings else call.measured
    alone = len(call.args) == 1 and call.args[0] is measured and not call.kwargs  # a search asks so a thousand times

    def run(x: Tensor) -> Tensor:
        trace.rewind()
        args, kwargs = (x,), {}
        if not alone:
            args, kwargs = map_tensors(lambda leaf: x if leaf is measured else leaf, (call.args, call.kwargs))
        given = zip(trace.embeddings, trace.parted(x), strict=True) if trace.embeddings else ()
        lookup = Substitute({which: part for (_, which, _), part in given}) if trace.embeddings else nullcontext()
        slopes = TrueSlopes() if torch.is_grad_enabled() else nullcontext()
        with by_piece(x), slopes, imitate_precision(trace.native), lookup:
            return pick_output(call_model(model, args, kwargs), output)[0]

    return run


def call_model(model: nn.Module, args: Any, kwargs: Any) -> Any:
    """Call the model; an error it raises is reported as the model's own.

    Raises:
        InputError: with the model's words.
    """
    try:
        return model(*args, **kwargs)
    except Exception as error:
        raise InputError(f"the model's forward raised {type(error).__name__}: {error}") from error

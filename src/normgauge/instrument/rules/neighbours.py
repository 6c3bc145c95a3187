"""What stands beside a normalizer in a trace: the linear map that feeds it, and whatever it feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from normgauge.instrument.rules.normalizer import Normalizer, of_step
from normgauge.instrument.trace.step import Step, Trace, Value

PASSING = ("Dropout", "dropout", "Identity", "contiguous")  # every entry stays in its channel, at its scale
IsMap = Callable[[Step], bool]


def making_map(value: Value, is_map: IsMap) -> Step | None:
    """The linear map that made a value, also through steps that pass it on; None where something else did."""
    step = value.step
    while step is not None and step.kind in PASSING and len(step.inputs) == 1:
        step = step.inputs[0].step
    return step if step is not None and len(step.inputs) == 1 and is_map(step) else None


def reading_steps(trace: Trace, value: Value) -> list[Step]:
    """The steps that read a value, each once."""
    return list({step.index: step for step in trace.consumers.get(value.index, ())}.values())


def fed_normalizers(trace: Trace, native: torch.dtype, is_map: IsMap) -> Iterator[tuple[Step, Step, Normalizer]]:
    """Every linear map whose output a normalizer alone reads: the map, the normalizer's step, and what that is."""
    for step in trace.steps:
        form = of_step(step, native)
        first = None if form is None else making_map(step.inputs[0], is_map)
        if form is not None and first is not None and reading_steps(trace, first.outputs[0]) == [step]:
            yield first, step, form

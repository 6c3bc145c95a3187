"""How far the float64 output of a traced network may lie from the exact one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.instrument.local.one_sample import swept_sample
from normgauge.instrument.rules.flow import CHANCES, INF
from normgauge.instrument.session import Session
from normgauge.instrument.slopes import noise_of_output


@dataclass(frozen=True, slots=True)
class OutputRounding:
    """What float64 may have done to the output.

    Attributes:
        proved: ‖computed − exact‖ at most, one entry a sample; inf where it is not enclosed.
        measured: what moves of a few units in the last place do to the whole output, four times over; no proof.
    """

    proved: Tensor
    measured: float


def output_rounding(session: Session) -> OutputRounding:
    """Enclose the rounding of the output where it can be carried through every step, and measure it in any case."""
    proved = torch.full((session.samples,), INF, dtype=torch.float64)
    if session.exact and not session.together and not any(step.trouble for step in session.trace.steps):
        parts = session.composed(Scope.parse("point"))
        for sample in range(session.samples):
            swept = swept_sample(session, parts, sample, 0.0)
            if swept is None:  # a step that is not followed at one sample is not at the others
                break
            proved[sample] = swept.value_error
            session.cache.setdefault(CHANCES, []).append(swept.chance)
    return OutputRounding(proved, noise_of_output(session))

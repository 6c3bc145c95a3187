"""How fast the margins f_y − f_i can change near a sample: what an engine offers, and what composition says."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.rounding import dot_error, log_root
from normgauge.instrument.assembly import find_missing
from normgauge.instrument.balance import folded_bound
from normgauge.instrument.local.effort import spending_of
from normgauge.instrument.rules.flow import INF, Matrix, chain_gains
from normgauge.instrument.session import Session
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.trace.step import backward_slice

LATTICE = 4  # radii an octave at which a ball is measured, for all samples at once


class MarginBounds(Protocol):
    """An engine that proves bounds of the margins over a ball around one sample.

    Attributes:
        name: what a result calls it.
        tries: radii that a search may ask it for, at each sample.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 (an attribute)

    @property
    def tries(self) -> int: ...  # noqa: D102

    def hint(self, sample: int) -> float:
        """A radius from which on a ball is likely to be too much for this engine; infinite where there is none."""

    def __call__(self, sample: int, radius: float, target: int) -> Tensor | None:
        """log L_i(r) for each class i, (f_target − f_i)(x₀) − (f_target − f_i)(x) ≤ L_i ‖x − x₀‖ on ‖x − x₀‖ ≤ r.

        Args:
            sample: the place of x₀ in the batch.
            radius: r; infinite for all inputs.
            target: the class.

        Returns:
            One entry a class, on the CPU; None where nothing is proved.
        """


class Slopes(NamedTuple):
    """log bounds of the whole map and of all before its last matrix, one entry a sample or one in all."""

    whole: Tensor
    body: Tensor | None


class Head(NamedTuple):
    """A last linear layer, and what lies before it; None where that is the input itself."""

    weight: Tensor
    body: Session | None


@dataclass(slots=True)
class ComposedBounds:
    """Margins from the composed bound: L_i = min(√2 L, ‖w_y − w_i‖ L_body).

    Holds:  over the ball asked for and a little beyond: balls are measured at a few radii an octave, for all samples at
            once; an infinite one is the global scope.
    """

    session: Session
    name: str = "composition"
    known: dict[float, Slopes | None] = field(default_factory=dict)
    head: Head | None = None

    def __post_init__(self) -> None:
        self.head = last_matrix(self.session)

    @property
    def tries(self) -> int:
        """As the effort allows."""
        return spending_of(self.session).margins.tries

    def hint(self, sample: int) -> float:
        """None: it costs the same everywhere."""
        return INF

    def __call__(self, sample: int, radius: float, target: int) -> Tensor | None:
        """log L_i for each class; None where the composition has no bound."""
        reach = lattice_above(radius)
        if reach not in self.known:
            self.known[reach] = self.slopes(Scope.parse("global") if reach == INF else Scope("ball", reach))
        found = self.known[reach]
        if found is None:
            return None
        classes = self.session.trace.end.tensor.shape[1]
        logs = (entry_of(found.whole, sample) + log_root(2)).expand(classes).clone()
        if self.head is not None and found.body is not None:
            rows = row_logs(self.head.weight, target)
            logs = torch.minimum(logs, chain_gains(rows, entry_of(found.body, sample)))
        logs[target] = -INF
        return logs

    def slopes(self, scope: Scope) -> Slopes | None:
        """The proved slopes in a scope; None where a step has no rule or the path depends on the data."""
        whole = proved_slope(self.session, scope)
        if whole is None or self.head is None:
            return None if whole is None else Slopes(whole, None)
        return Slopes(whole, torch.zeros_like(whole) if self.head.body is None else proved_slope(self.head.body, scope))


def proved_slope(session: Session, scope: Scope) -> Tensor | None:
    """log of the bound of a traced map, balanced over all inputs and folded in a ball; None where it is not proved.

    With the least effort it is folded everywhere.
    """
    parts = session.composed(scope)
    missing = find_missing(session, parts)
    if missing.unknown or missing.no_bound or session.trace.path_dependent:
        return None
    # balancing anew in every ball took 15 times as long on two small networks: radii 7 % larger in sum, and equal
    balanced = scope.kind == "global" and session.options.effort != "quick"
    return (session.bounds(parts)[1] if balanced else folded_bound(parts)).log_upper


def last_matrix(session: Session) -> Head | None:
    """The last step where it is a matrix applied to each sample, and the network before it."""
    trace = session.trace
    step = trace.end.step
    if step is None or len(step.inputs) != 1 or step.inputs[0].tensor.ndim != 2:
        return None
    form = session.composed(Scope.parse("point")).transfers[trace.end.index].gains[0].form
    if not isinstance(form, Matrix):
        return None
    before = step.inputs[0]
    if before in trace.sources:
        return Head(to_double(form.weight), None)
    shorter = dataclasses.replace(trace, output=before, steps=backward_slice(before), consumers={})
    return Head(to_double(form.weight), dataclasses.replace(session, trace=shorter))


def entry_of(logs: Tensor, sample: int) -> Tensor:
    """The entry of a sample, where there is one for each; else the one there is."""
    return logs[sample if len(logs) > 1 else 0]


def row_logs(weight: Tensor, target: int) -> Tensor:
    """log ‖w_y − w_i‖ from above, for each row i."""
    lengths = torch.linalg.vector_norm(weight[target] - weight, dim=1)
    return (lengths * (1 + dot_error(weight.shape[1]))).log().cpu()


def lattice_above(radius: float) -> float:
    """The smallest 2^(k/4) that is not below the radius; infinity as it is.

    >>> lattice_above(1.0), lattice_above(1.1) == 2**0.25, lattice_above(math.inf)
    (1.0, True, inf)
    """
    if math.isinf(radius):
        return radius
    step = math.ceil(LATTICE * math.log2(radius))
    while 2.0 ** (step / LATTICE) < radius:  # log2 of a radius just above is rounded
        step += 1
    return float(2.0 ** (step / LATTICE))

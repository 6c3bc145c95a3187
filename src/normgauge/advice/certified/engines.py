"""The engines that certify radii: composition, the loop transformation, and the slopes that a ball leaves open."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.advice.certified.margin_bounds import ComposedBounds, MarginBounds
from normgauge.core.bound import Scope
from normgauge.core.rounding import TINY
from normgauge.instrument.local.effort import spending_of
from normgauge.instrument.local.headline import LOOP, OPEN_UNITS
from normgauge.instrument.local.one_sample import FAILURES, one_run, open_entries, swept_sample
from normgauge.instrument.local.standing import opening_radii
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.loop import RowLoops
from normgauge.instrument.one_map import is_one_map
from normgauge.instrument.rules.flow import CHANCES, INF, log_vector
from normgauge.instrument.session import Session

ALL_INPUTS = -1  # place of a sweep that holds for all samples
AMPLE = 4.0  # a margin so many times larger than its bound times the radius needs no better bound


@dataclass(slots=True)
class OpenUnitBounds:
    """Margins from the slopes that a ball leaves open (`instrument.local`), each class with its own row of multipliers.

    L_i² = n_i M⁻¹ n_iᵀ with n_i = (e_y − e_i)ᵀ[J R]; the multipliers suit the classes by what each margin allows.
    """

    session: Session
    name: str = OPEN_UNITS
    known: dict[int, Swept | None] = field(default_factory=dict)
    hints: list[float] | None = None

    @property
    def tries(self) -> int:
        """As the effort allows."""
        return spending_of(self.session).margins.balls

    def hint(self, sample: int) -> float:
        """The radius of the ball that is likely to open as many units as are allowed."""
        if self.hints is None:
            self.hints = opening_radii(self.session, spending_of(self.session).margins.units)
        return self.hints[sample]

    def __call__(self, sample: int, radius: float, target: int) -> Tensor | None:
        """log L_i for each class; None where the network is not followed, or that takes too long."""
        swept, spending = self.swept(sample, radius), spending_of(self.session).margins
        outputs = self.session.trace.end.tensor.detach().double().cpu()
        classes = outputs.shape[1]
        if swept is None or swept.target.shape[0] != classes:
            return None
        others = torch.arange(classes) != target
        rows = (torch.eye(classes, dtype=torch.float64)[target] - torch.eye(classes, dtype=torch.float64))[others]
        gaps = (outputs[sample, target] - outputs[sample])[others].clamp_min(TINY)
        found = swept.row_bounds(rows)
        rivals = torch.ones_like(gaps, dtype=torch.bool) if found is None else found * radius > gaps / AMPLE
        if bool(rivals.any()):  # classes that may still win: multipliers that suit these
            wanted = rows[rivals] / gaps[rivals, None] * float(gaps[rivals].min())
            better = swept.improved(spending.gap, spending.steps, wanted).row_bounds(rows)
            found = better if found is None or better is None else torch.minimum(found, better)
        if found is None:
            return None
        logs = torch.full((classes,), -INF, dtype=torch.float64)
        logs[others] = log_vector(found)
        return logs

    def swept(self, sample: int, radius: float) -> Swept | None:
        """The network over the ball; over all inputs once for all samples."""
        session = self.session
        if session.together or session.trace.path_dependent or not session.exact:
            return None
        inputs, spending = session.trace.sources[0].tensor[0].numel(), spending_of(session).margins
        if inputs * one_run(session) / session.samples > spending.seconds:
            return None
        parts = session.once("samples", lambda: session.composed(Scope.parse("point")))
        if not math.isinf(radius):
            return self.counted(swept_sample(session, parts, sample, radius, spending.units))
        if ALL_INPUTS not in self.known:
            few = open_entries(session) <= spending.units and is_one_map(session)
            self.known[ALL_INPUTS] = self.counted(swept_sample(session, parts, 0, INF, spending.units)) if few else None
        return self.known[ALL_INPUTS]

    def counted(self, swept: Swept | None) -> Swept | None:
        """What was swept, its chance of being wrong added to the session's."""
        if swept is not None:
            self.session.cache.setdefault(CHANCES, []).append(swept.chance)
        return swept


@dataclass(slots=True)
class LoopBounds:
    """Margins over all inputs by the loop transformation (`instrument.loop`), each pair with weights of its own.

    Holds:  everywhere; so a pair is bounded once for all samples, and a search needs one try.
    """

    session: Session
    name: str = LOOP
    tries: int = 1
    loops: RowLoops | None = None
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        session, spending = self.session, spending_of(self.session).margins
        # all units with multipliers of their own are better
        if session.together or spending.loop is None or open_entries(session) <= spending.units:
            return
        parts = session.composed(Scope.parse("global"))
        with contextlib.suppress(*FAILURES):
            self.loops = RowLoops.of(session, parts, session.bounds(parts)[1], spending.loop)

    def hint(self, sample: int) -> float:
        """None: it holds everywhere."""
        return INF

    def __call__(self, sample: int, radius: float, target: int) -> Tensor | None:
        """log L_i for each class; None where the network is not followed or too large."""
        if self.loops is None:
            return None
        classes = self.session.trace.end.tensor.shape[1]
        logs = [-INF if i == target else self.pair(min(i, target), max(i, target)) for i in range(classes)]
        return torch.tensor(logs, dtype=torch.float64)

    def pair(self, first: int, second: int) -> float:
        """log of the bound of f_first − f_second."""
        if (first, second) not in self.known and self.loops is not None:
            row = torch.zeros(self.session.trace.end.tensor.shape[1], dtype=torch.float64)
            row[first], row[second] = 1.0, -1.0
            found = None
            with contextlib.suppress(*FAILURES):
                found = self.loops.bound(row)
            self.known[first, second] = INF if found is None else found.total
        return self.known[first, second]


ENGINES: tuple[Callable[[Session], MarginBounds], ...] = (ComposedBounds, LoopBounds, OpenUnitBounds)
"""What radii are proved with, one after the other: each begins where those before it ended, so the cheap come first."""

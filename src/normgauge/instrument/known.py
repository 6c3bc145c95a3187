"""What is known of a scope so far: each stage of a measurement adds to it, and it makes a reading at any time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch

from normgauge.core.reading import Reading
from normgauge.instrument.assembly import Findings, make_reading
from normgauge.instrument.balance import plain_bound
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.headline import Headline, headline
from normgauge.instrument.probe.search import Found
from normgauge.instrument.rules.flow import INF
from normgauge.instrument.session import Session
from normgauge.instrument.slopes import excused_slopes, largest_slope
from normgauge.instrument.stretch import SteepestWalk, follow_steepest


class Known:
    """The rules' own bound at first, and no slope."""

    def __init__(
        self, session: Session, parts: Composition, missing: Findings, everywhere: Mapping[int, float]
    ) -> None:
        self.session, self.parts, self.missing, self.everywhere = session, parts, missing, everywhere
        self.folded = self.best = plain_bound(parts)
        self.top = Headline(self.best.log_upper)
        self.found = Found(torch.full_like(self.best.log_upper, -INF), -INF, "none: it was not looked for", 0, 0)
        self.walk, self.notes = SteepestWalk(), list[str]()

    def stages(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """What is still to do, in order, by name."""
        return ("balance", self.balance), ("local", self.tighten), ("lower", self.search), ("lower", self.follow)

    def balance(self) -> None:
        """Choose weights of the channels."""
        self.folded, self.best = self.session.bounds(self.parts)
        self.top = Headline(self.best.log_upper)

    def tighten(self) -> None:
        """Look for a bound below the balanced one."""
        self.top = headline(self.session, self.parts, self.best)

    def search(self) -> None:
        """Look for slopes."""
        found = largest_slope(self.session, self.parts, self.top.steepest, self.top.log_lower)
        self.found = excused_slopes(self.session, found, self.parts, self.top.log_upper)

    def follow(self) -> None:
        """Follow the steepest direction."""
        self.walk = follow_steepest(self.session, self.best, self.found)

    def reading(self) -> Reading:
        """Everything known, as plain numbers and words."""
        made = make_reading(
            self.session, self.parts, self.folded, self.best, self.top, self.found, self.walk, self.missing,
            self.everywhere,
        )  # fmt: skip
        return dataclasses.replace(made, notes=(*made.notes, *self.notes)) if self.notes else made

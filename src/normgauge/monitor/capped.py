"""What a budget of capacity takes while a network trains: which layers are at their cap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.sheet import Sheet


class Budget(Protocol):
    """What is asked of a budget; `normgauge.cap` makes one."""

    @property
    def budget(self) -> float:
        """Decades that the bound is held under."""

    @property
    def taken(self) -> Mapping[str, float]:
        """Decades it has taken from each layer in all, by name."""

    @property
    def in_reach(self) -> bool:
        """Whether it can be kept."""


class CapWatch:
    """Reads off a budget what it took since the reading before.

    Args:
        budget: of the run; None where it has none.
    """

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self._before: dict[str, float] = {}

    def put(self, sheet: Sheet, layers: Sequence[WatchedLayer]) -> None:
        """Write down what has been taken from each layer in all."""
        taken = {} if self._budget is None else self._budget.taken
        for row, layer in enumerate(layers):
            if layer.name in taken:
                sheet.put(sheet.layers[row], "capped", taken[layer.name])

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Yield what is to be said, and the key under which it is said once: each layer when it first meets its cap."""
        if self._budget is None:
            return
        limit = f"the budget of 10^{self._budget.budget:g}"
        if not self._budget.in_reach:
            yield f"{limit} is out of reach: what has no weight to take from exceeds it; nothing is taken.", "reach"
        now = dict(self._budget.taken)
        grown = {name: all_of_it - self._before.get(name, 0.0) for name, all_of_it in now.items()}
        self._before = now
        for name in sorted((n for n, decades in grown.items() if decades > 0.0), key=lambda n: -grown[n]):
            sentence = f"{name} is at its cap: {limit} took {grown[name]:.2g} decades from it since the last reading."
            yield f"{sentence} It would be larger if it could; training goes on.", f"cap {name}"

"""The gains of the normalizers: dying at once, or decaying."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.sheet import Row
from normgauge.monitor.signs.sign import Level
from normgauge.monitor.thresholds import GAMMA_DEAD, GAMMA_DECAY, GAMMA_JUMP, GAMMA_SHRUNK, GAMMA_TOUCHED, SETTLED


class Gains:
    """‖γ‖ of every normalizer against its level and its start."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = {row: place for row, place in enumerate(places) if place.role == "norm" and place.shape}
        self._levels = {row: Level() for row in self._places}
        self._starts: dict[int, float] = {}

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare every gain."""
        left = {}
        for row, place in self._places.items():
            size = seen.rows[row].get("frobenius")
            if size is None or not math.isfinite(size):
                continue
            factor = self._levels[row].factor(size)
            if factor < GAMMA_DEAD:
                yield self._dead(seen, place.name, size, self._levels[row].value)
                continue
            step = self._levels[row].factor(seen.rows[row].get("update", 0.0)) if self._levels[row].settled else 0.0
            if step > GAMMA_JUMP:
                yield self._jump(seen, place.name, step)
            self._levels[row].see(size)
            if self._levels[row].count == 1:
                self._starts[row] = size
            if row in self._starts and self._starts[row] > 0.0:
                left[row] = size / self._starts[row]
        yield from self._decay(seen, left)

    def _dead(self, seen: Seen, name: str, size: float, level: float) -> Alarm:
        sentence = (
            f"{name}: ‖γ‖ fell from {level:.3g} to {size:.3g} at step {seen.step}, so nothing passes this normalizer "
            "and no gradient reaches what lies before it. Look at what writes to γ (pruning, an optimizer group, a "
            "loaded state)."
        )
        return Alarm(seen.step, "dead_normalizer", name, sentence, size / level, GAMMA_DEAD)

    def _jump(self, seen: Seen, name: str, step: float) -> Alarm:
        sentence = (
            f"{name}: γ changed by {step:.0%} of its norm in the step at {seen.step}. It was overwritten, or zeroed "
            "and driven back by an exploding gradient: look at what writes to γ, and at the σ behind it."
        )
        return Alarm(seen.step, "gamma_jump", name, sentence, step, GAMMA_JUMP)

    def _decay(self, seen: Seen, left: dict[int, float]) -> Iterator[Alarm]:
        """Weight decay on γ: known from the optimizer, else inferred when all of them shrink."""
        if not left or min(level.count for level in self._levels.values()) < SETTLED:
            return
        worst = min(left, key=lambda row: left[row])
        taken = max(_taken(seen.rows[row]) for row in left)
        if taken > GAMMA_DECAY and left[worst] < GAMMA_TOUCHED:
            how, threshold = f"weight decay takes {taken:.2%} of it each step", GAMMA_TOUCHED
        elif len(left) >= 2 and max(left.values()) < GAMMA_SHRUNK:
            how, threshold = "all gains shrink together, which looks like weight decay on γ (inferred)", GAMMA_SHRUNK
        else:
            return
        name = self._places[worst].name
        sentence = (
            f"{name}: ‖γ‖ has come down to {left[worst]:.0%} of its start; {how}. The network loses its gains layer by "
            "layer: put the parameters of normalizers in an optimizer group with weight_decay=0."
        )
        yield Alarm(seen.step, "gamma_decay", "", sentence, left[worst], threshold)


def _taken(row: Row) -> float:
    return row.get("rate", 0.0) * row.get("weight_decay", 0.0)

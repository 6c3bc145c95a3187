"""The scale-free gradient ‖w‖‖∇‖ of every layer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.signs.sign import Level
from normgauge.monitor.thresholds import GRADIENT_EXPLODED, GRADIENT_READINGS, GRADIENT_VANISHED


class Gradients:
    """Explosion against a layer's own level; vanishing as a share of the network's, for all fade as a loss falls."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = {row: p for row, p in enumerate(places) if p.role in ("matrix", "conv")}
        self._sizes: dict[int, Level] = defaultdict(Level)
        self._shares: dict[int, Level] = defaultdict(Level)
        self._odd: dict[int, int] = defaultdict(int)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare every layer; the worst one is named."""
        sizes = {row: seen.rows[row].get("scale_free_gradient", math.nan) for row in self._places}
        sizes = {row: size for row, size in sizes.items() if math.isfinite(size)}
        largest = max(sizes.values(), default=0.0)
        if not largest:
            return
        for row, size in sizes.items():
            up, down = self._sizes[row].factor(size), self._shares[row].factor(size / largest)
            odd = up > GRADIENT_EXPLODED or down < GRADIENT_VANISHED
            self._odd[row] = self._odd[row] + 1 if odd else 0
            if not odd:
                self._sizes[row].see(size)
                self._shares[row].see(size / largest)
        odd_ones = [row for row in sizes if self._odd[row] >= GRADIENT_READINGS]
        if odd_ones:
            yield self._say(seen, max(odd_ones, key=lambda row: self._sizes[row].factor(sizes[row])), sizes, largest)

    def _say(self, seen: Seen, row: int, sizes: dict[int, float], largest: float) -> Alarm:
        name, up = self._places[row].name, self._sizes[row].factor(sizes[row])
        if up > GRADIENT_EXPLODED:
            sentence = (
                f"{name}: ‖w‖‖∇‖ = {sizes[row]:.3g} is {up:.2g} times its level, whatever the scale of the weights. "
                "The gradient explodes there first; clip it, lower the learning rate, and look at the alarms before "
                "this one."
            )
            return Alarm(seen.step, "gradient_explosion", name, sentence, up, GRADIENT_EXPLODED)
        share = sizes[row] / largest
        sentence = (
            f"{name}: its share of the network's scale-free gradient fell to {share:.1e}; it was "
            f"{self._shares[row].value:.1e}. Nothing reaches it any more: look for dead units, a γ of 0 or a saturated "
            "layer behind it."
        )
        return Alarm(
            seen.step, "gradient_vanishing", name, sentence, share, GRADIENT_VANISHED * self._shares[row].value
        )

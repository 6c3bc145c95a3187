"""The size of a layer's weights against the other layers'."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.signs.sign import Level, median
from normgauge.monitor.thresholds import SCALE_GREW, SCALE_KEPT, SCALE_LARGE, SCALE_ODD, SCALE_SMALL


class WeightScale:
    """A layer whose rows are far longer or shorter than those of the others and than 1, or that grows alone."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = {row: p for row, p in enumerate(places) if p.role in ("matrix", "conv") and p.shape}
        self._levels = {row: Level() for row in self._places}
        self._first = True

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare root mean square row norms, ‖W‖_F/√rows; at first also those before the first step."""
        sizes = {row: seen.rows[row].get("frobenius", 0.0) for row in self._places}
        if self._first:
            self._first = False
            yield from self._among(seen, {row: place.size for row, place in self._places.items()})
        yield from self._among(seen, sizes)
        yield from self._alone(seen, sizes)

    def _among(self, seen: Seen, norms: Mapping[int, float]) -> Iterator[Alarm]:
        """Those far from the others; a layer that starts at 0 is meant to."""
        sizes = {
            row: norm / math.sqrt(self._places[row].shape[0]) for row, norm in norms.items() if 0.0 < norm < math.inf
        }
        if len(sizes) < 2:
            return
        middle = median(list(sizes.values())) or 0.0  # of all: one odd layer among three or more does not move it far
        for row, size in sizes.items():
            others = middle if len(sizes) > 2 else sum(sizes.values()) - size
            large = size > SCALE_LARGE * others and size > SCALE_ODD
            if large or (size < SCALE_SMALL * others and size < 1 / SCALE_ODD):
                yield self._odd(seen, row, size, others)

    def _alone(self, seen: Seen, norms: Mapping[int, float]) -> Iterator[Alarm]:
        """One that left its level while the others kept theirs."""
        factors = {row: self._levels[row].factor(norm) for row, norm in norms.items() if math.isfinite(norm)}
        moved = [row for row, factor in factors.items() if not 1 / SCALE_KEPT < factor < SCALE_KEPT]
        for row, factor in factors.items():
            if moved == [row] and factor > SCALE_GREW:
                name = self._places[row].name
                sentence = (
                    f"{name}: its weights have norm {norms[row]:.3g}, {factor:.1f} times their level, while those of "
                    "the other layers stay. Something drives this layer alone: look at its gradient and its optimizer "
                    "group."
                )
                yield Alarm(seen.step, "weight_scale", name, sentence, factor, SCALE_GREW)
            else:
                self._levels[row].see(norms[row])

    def _odd(self, seen: Seen, row: int, size: float, others: float) -> Alarm:
        name = self._places[row].name
        if row in seen.pairs:
            kept = "hardly moves in proportion" if size > others else "is turned over in a few steps, and ε decides"
            why = f"the normalizer behind it hides that from the output, but the layer {kept}"
        else:
            why = "no normalizer behind it evens that out: outputs and gradients are off by the same factor"
        sentence = (
            f"{name}: the rows of its weight have norm {size:.3g}, those of the other layers {others:.3g}; {why}. "
            "Check its initialization, or what was loaded into it."
        )
        threshold = SCALE_LARGE if size > others else SCALE_SMALL
        return Alarm(seen.step, "weight_scale", name, sentence, size / others, threshold)

"""The layers: the size of their weights and of their scale-free gradients, and how fast their product grows."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from normgauge.monitor.signs.sign import Alarm, Level, Place, Seen, Sign, Streak, median
from normgauge.monitor.thresholds import (
    CAPACITY_DECADES,
    CAPACITY_READINGS,
    CAPACITY_STEPS,
    GRADIENT_ALIKE,
    GRADIENT_EXPLODED,
    GRADIENT_READINGS,
    GRADIENT_VANISHED,
    MEMORY,
    RATE_APART,
    SCALE_GREW,
    SCALE_KEPT,
    SCALE_LARGE,
    SCALE_ODD,
    SCALE_SMALL,
    START_READINGS,
    TURN,
    TURN_APART,
)
from normgauge.render.numbers import plural, shortened_names

SHOWN = 3  # most other layers named in a sentence


class WeightScale(Sign):
    """A layer whose rows are far longer or shorter than those of the others and than 1, or that grows alone."""

    _first = True

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare root mean square row norms, ‖W‖_F/√rows; at first also those before the first step."""
        # a layer that began at 0 is small on purpose, and a copy of another network is synchronized on purpose
        kept = ((row, place) for row, place in self._rows("matrix", "conv").items() if place.shape and place.size)
        places = {row: place for row, place in kept if seen.facts.of(row).held != 0}
        sizes = {row: seen.rows[row].get("frobenius", 0.0) for row in places}
        if self._first:
            self._first = False
            yield from self._among(seen, {row: place.size for row, place in places.items()})
        yield from self._among(seen, sizes)
        yield from self._alone(seen, sizes)

    def _among(self, seen: Seen, norms: Mapping[int, float]) -> Iterator[Alarm]:
        """Alarms about layers far from the others; a norm of 0 is left out, since layers may start there on purpose."""
        sizes = {
            row: norm / math.sqrt(self._places[row].shape[0]) for row, norm in norms.items() if 0.0 < norm < math.inf
        }
        if len(sizes) < 2:
            return
        middle = median(list(sizes.values())) or 0.0  # of all: one odd layer among three or more does not move it far
        odd: list[tuple[int, float, float]] = []
        for row, size in sizes.items():
            others = middle if len(sizes) > 2 else next(one for k, one in sizes.items() if k != row)
            grown = norms[row] > SCALE_GREW * self._places[row].size  # by its steps: it did not begin so
            large = size > SCALE_LARGE * others and size > SCALE_ODD and not grown
            if large or (size < SCALE_SMALL * others and size < 1 / SCALE_ODD):
                odd.append((row, size, others))
        if odd:
            yield self._say(seen, *odd[0], [row for row, _, _ in odd[1:]], among=len(sizes) > 2)

    def _alone(self, seen: Seen, norms: Mapping[int, float]) -> Iterator[Alarm]:
        """Alarm about a layer that left its level while all others kept theirs."""
        factors = {row: self._levels[row].factor(norm) for row, norm in norms.items() if math.isfinite(norm)}
        moved = [row for row, factor in factors.items() if not 1 / SCALE_KEPT < factor < SCALE_KEPT]
        for row, factor in factors.items():
            if moved == [row] and factor > SCALE_GREW and self._stands_out(row, norms):
                name = self._places[row].name
                sentence = (
                    f"{name}: its weights have norm {norms[row]:.3g}, {factor:.3g} times their level, while those of "
                    f"the other layers stay within {SCALE_KEPT:g} times theirs."
                )
                advice = "Look at its gradient and its optimizer group."
                yield Alarm(seen.step, "weight_scale", name, sentence, factor, SCALE_GREW, advice)
            else:
                self._levels[row].see(norms[row])

    def _stands_out(self, row: int, norms: Mapping[int, float]) -> bool:
        """Whether its rows are longer than those of the others: a head that began small only catches up."""
        sizes = {k: norm / math.sqrt(self._places[k].shape[0]) for k, norm in norms.items()}
        return sizes[row] > SCALE_KEPT * (median([size for k, size in sizes.items() if k != row]) or 0.0)

    def _say(self, seen: Seen, row: int, size: float, others: float, more: Sequence[int], *, among: bool) -> Alarm:
        """The alarm; what the other layers make of it is not known, so only what follows straight behind is said."""
        name = self._places[row].name
        why = "a" if row in seen.pairs else "no"
        shared = f" Also far from it: {shortened_names([self._places[k].name for k in more], SHOWN)}." if more else ""
        sentence = (
            f"{name}: the rows of its weight have norm {size:.3g}, those of the {'median' if among else 'other'} layer "
            f"{others:.3g}; {why} normalizer follows straight behind it.{shared}"
        )
        threshold = SCALE_LARGE if size > others else SCALE_SMALL
        advice = "Check its initialization, or what was loaded into it."
        return Alarm(seen.step, "weight_scale", name, sentence, size / others, threshold, advice)


class RateApart(Sign):
    """A layer whose learning rate is far above that of the others of its optimizer, and that its steps replace."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare rate and ‖Δw‖/‖w‖ of every matrix and convolution with those of the median of the others."""
        turns, sizes = {}, {}
        for row, place in self._rows("matrix", "conv").items():
            numbers, kept = seen.rows[row], seen.facts.of(row).learns and place.size > 0.0
            if kept and numbers.get("rate") and numbers.get("frobenius") and "update" in numbers:
                turns[row] = numbers["update"] / numbers["frobenius"]
                sizes[row] = numbers["frobenius"] / math.sqrt(place.shape[0])
        for row, turn in turns.items():
            own = seen.facts.of(row).owner
            others = [
                k for k in turns if seen.facts.of(k).owner == own and seen.rows[k]["rate"] < seen.rows[row]["rate"]
            ]
            if len(others) < START_READINGS or not TURN < turn < math.inf:
                continue
            rate, step, size = (
                median(list(values)) or 0.0
                for values in (
                    [seen.rows[k]["rate"] for k in others],
                    [turns[k] for k in others],
                    [sizes[k] for k in others],
                )
            )
            apart = seen.rows[row]["rate"] / rate
            if apart > RATE_APART and turn > TURN_APART * step and sizes[row] > SCALE_KEPT * size:
                yield self._say(seen, row, turn, rate, step, apart)
                return

    def _say(self, seen: Seen, row: int, turn: float, rate: float, step: float, apart: float) -> Alarm:
        own = seen.rows[row]["rate"]
        alike = [place.name for k, place in enumerate(self._places) if seen.rows[k].get("rate") == own]
        sentence = (
            f"{shortened_names(alike, SHOWN)}: the learning rate is {own:.3g}, that of the median of slower layers "
            f"{rate:.3g}; the step at {seen.step} moved {self._places[row].name} by {turn:.0%} of the norm it has now, "
            f"the median of those by {step:.1%}."
        )
        advice = "Look at the parameter groups of the optimizer, and at the learning rate of the group that holds it."
        began = min(seen.story.rate_set, seen.step)
        return Alarm(seen.step, "rate_apart", self._places[row].name, sentence, apart, RATE_APART, advice, began)


class Gradients(Sign):
    """Gradients that explode against their own level, or vanish as a share of all (which fade as a loss falls)."""

    rank = "symptom"

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._shares: dict[int, Level] = defaultdict(Level)
        self._odd = Streak()
        self._lowest: dict[int, float] = {}
        self._rose: dict[int, int] = {}  # since when each is so far above the lowest it was

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare every layer, and name the worst."""
        known = ((row, seen.rows[row].get("scale_free_gradient")) for row in self._rows("matrix", "conv"))
        sizes = {row: size for row, size in known if size is not None}
        self._note(sizes, seen.step)
        sizes = {row: size for row, size in sizes.items() if math.isfinite(size)}
        largest = max(sizes.values(), default=0.0)
        if not largest:
            return
        for row, size in sizes.items():
            up, down = self._levels[row].factor(size), self._shares[row].factor(size / largest)
            odd = up > GRADIENT_EXPLODED or down < GRADIENT_VANISHED
            self._odd.see(odd, seen.step, row)
            if not odd:
                self._levels[row].see(size)
                self._shares[row].see(size / largest)
        odd_ones = [row for row in sizes if self._odd.now(row)[0] >= GRADIENT_READINGS]
        if odd_ones:
            yield self._say(seen, max(odd_ones, key=lambda row: self._levels[row].factor(sizes[row])), sizes, largest)

    def _note(self, sizes: Mapping[int, float], step: int) -> None:
        """Remember since when each is far above its lowest, also where a level was not known or grew with it."""
        for row, size in sizes.items():
            lowest = self._lowest.get(row, size)
            if math.isfinite(size) and not size > GRADIENT_EXPLODED * lowest:
                self._rose.pop(row, None)
                self._lowest[row] = min(lowest, size) or lowest
            else:
                self._rose.setdefault(row, step)

    def _order(self, row: int) -> str:
        """Whether the gradient rose in this layer first, by the readings."""
        own = self._rose.get(row, math.inf)
        earlier = sorted((step, other) for other, step in self._rose.items() if step < own)
        if earlier:
            step, other = earlier[0]
            more = f" and {plural(len(earlier) - 1, 'other')}" if len(earlier) > 1 else ""
            where = f"{self._places[other].name}{more}"
            return f"It is largest there, against its level, and not first: it rose in {where} before, at step {step}."
        others = sum(step == own for step in self._rose.values()) - 1
        if others > 0:
            return f"It is largest there, against its level; {plural(others, 'other layer')} rose at the same reading."
        return "By the readings it rose there first."

    def _say(self, seen: Seen, row: int, sizes: dict[int, float], largest: float) -> Alarm:
        name, up = self._places[row].name, self._levels[row].factor(sizes[row])
        _, began = self._odd.now(row)
        factors = [self._levels[k].factor(size) for k, size in sizes.items()]
        if len(factors) > 1 and min(factors) * GRADIENT_ALIKE > up > GRADIENT_EXPLODED:
            sentence = (
                f"‖w‖‖∇‖ of all {len(factors)} matrices and convolutions is {min(factors):.2g} to {up:.2g} times its "
                f"level at step {seen.step}: it rose in all alike."
            )
            advice = "Look at the loss and what multiplies it; clip the gradient, or lower the learning rate."
            return Alarm(seen.step, "gradient_explosion", "", sentence, up, GRADIENT_EXPLODED, advice, began)
        if up > GRADIENT_EXPLODED:
            sentence = (
                f"{name}: ‖w‖‖∇‖ = {sizes[row]:.3g} at step {seen.step} is {up:.2g} times its level, whatever the "
                f"scale of the weights. {self._order(row)}"
            )
            advice = "Clip the gradient, or lower the learning rate."
            return Alarm(seen.step, "gradient_explosion", name, sentence, up, GRADIENT_EXPLODED, advice, began)
        share = sizes[row] / largest
        sentence = (
            f"{name}: its share of the network's scale-free gradient fell to {share:.1e}; it was "
            f"{self._shares[row].value:.1e}."
        )
        advice = "Look for dead units, a γ of 0 or a saturated layer behind it."
        limit = GRADIENT_VANISHED * self._shares[row].value
        return Alarm(seen.step, "gradient_vanishing", name, sentence, share, limit, advice, began)


class Capacity(Sign):
    """Fast growth of the product of the folded gains, which does not depend on the scale before normalizers."""

    rank = "symptom"

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._readings = 0
        self._past: deque[tuple[int, float, list[float | None]]] = deque(maxlen=MEMORY)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the product with its lowest value in the last readings."""
        total = seen.totals.get("log10_folded")
        self._readings += 1
        if total is None or not math.isfinite(total) or self._readings <= CAPACITY_READINGS:
            return
        while self._past and self._past[0][0] < seen.step - CAPACITY_STEPS:
            self._past.popleft()
        gains = [row.get("folded") for row in seen.rows[: len(self._places)]]
        since, before, then = min(self._past, key=lambda past: past[1], default=(seen.step, total, gains))
        self._past.append((seen.step, total, gains))
        factors = sum(gain is not None for gain in gains)
        limit = CAPACITY_DECADES * max(factors, 2)
        if total - before <= limit:
            return
        layer, decades = self._fastest(gains, then)
        sentence = (
            f"the folded product grew by {total - before:.1f} decades between steps {since} and {seen.step}, most in "
            f"{layer or 'no single layer'} ({decades:.1f})."
        )
        advice = "Lower the learning rate, or clip the gradient."
        yield Alarm(seen.step, "capacity_growth", layer, sentence, total - before, limit, advice)

    def _fastest(self, gains: Sequence[float | None], then: Sequence[float | None]) -> tuple[str, float]:
        growth = [
            (math.log10(now / old), place.name)
            for now, old, place in zip(gains, then, self._places, strict=False)
            if now and old
        ]
        decades, name = max(growth, default=(0.0, ""))
        return name, decades

"""The normalizers: one that is missing, σ against ε and its level, gains that die or decay, stale statistics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from normgauge.monitor.sheet import Row
from normgauge.monitor.signs.decay import mainly_decayed, share_decayed, share_of_maps
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign
from normgauge.monitor.thresholds import (
    EPS_SHARE,
    EPS_USUAL,
    GAMMA_DEAD,
    GAMMA_DECAY,
    GAMMA_JUMP,
    GAMMA_SHRUNK,
    GAMMA_TOUCHED,
    SETTLED,
    SIGMA_FACTOR,
    STATISTICS,
    STATISTICS_FROZEN,
    STATISTICS_READINGS,
    STATISTICS_STEPS,
    STATISTICS_STILL,
    WIRING_READINGS,
)

CONSTANT = 1e-4  # share of ε below which σ² counts as 0
Gap = tuple[str, str, int]  # an existing layer beside the gap, what is missing, how many sisters have it


class MissingNormalizer(Sign):
    """One block of a series, or one layer in a row of normalized ones, that has no normalizer."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._gaps = list(_odd_blocks(self._places))
        self._readings = 0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Name the layers without a normalizer, once the wiring was seen."""
        self._readings += 1
        if seen.step < 2:
            return
        if not self._gaps and self._readings <= WIRING_READINGS:
            self._gaps = list(self._odd_layers(seen))
        for layer, missing, sisters in self._gaps:
            sentence = (
                f"{layer} has no normalizer where {sisters} sister blocks have one ({missing}). Inferred from the "
                "wiring."
            )
            advice = "Add it; if it is meant, ignore this."
            yield Alarm(seen.step, "missing_normalizer", layer, sentence, 0.0, float(sisters), advice, 1)
            return

    def _odd_layers(self, seen: Seen) -> Iterator[Gap]:
        """The only layer of its role without a normalizer, if it lies between layers that have one."""
        for role in ("matrix", "conv"):
            rows = [i for i, place in enumerate(self._places) if place.role == role]
            paired = [i in seen.pairs for i in rows]
            if paired.count(True) < 2:
                continue
            first, last = paired.index(True), len(paired) - 1 - paired[::-1].index(True)
            inside = [i for i, has in zip(rows[first:last], paired[first:last], strict=True) if not has]
            shapes = {self._places[i].shape for i, has in zip(rows, paired, strict=True) if has}
            if len(inside) == 1 and self._places[inside[0]].shape in shapes:  # heads, codes and shortcuts have others
                yield self._places[inside[0]].name, "a normalizer straight behind it", paired.count(True)


def _odd_blocks(places: Sequence[Place]) -> Iterator[Gap]:
    """Series of numbered blocks in which all but one have a normalizer of the same name.

    Blocks with the first or the last layer of the network are expected to be plain, wherever they are kept.
    """
    maps = [place.name for place in places if place.role in ("matrix", "conv")]
    ends = {*maps[:1], *maps[-1:]}
    norms: dict[tuple[str, str], set[str]] = defaultdict(set)
    blocks: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    shapes: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    behind: dict[tuple[str, str], int] = {}  # how many layers of a sister come before the normalizer
    for place in places:
        parts = place.name.split(".")
        for k, part in enumerate(parts):
            if not part.isdigit():
                continue
            series, inside = ".".join(parts[:k]), ".".join(parts[k + 1 :])
            if place.role == "norm" and inside:
                norms[series, inside].add(part)
                behind[series, inside] = len(blocks[series][part])
            elif place.role in ("matrix", "conv"):
                blocks[series][part].append(place.name)
                shapes[series, part].append(place.shape)
    for (series, inside), having in norms.items():
        lacking = [part for part, layers in blocks[series].items() if layers and part not in having]
        if len(having) < 2 or len(lacking) != 1 or ends & set(blocks[series][lacking[0]]):
            continue
        alike = any(shapes[series, part] == shapes[series, lacking[0]] for part in having)
        outer = lacking[0] in (*list(blocks[series])[:1], *list(blocks[series])[-1:])
        if alike or not outer:  # the first or last of a series that has other shapes is made otherwise on purpose
            name = ".".join(filter(None, (series, lacking[0], inside)))
            layers = blocks[series][lacking[0]]
            yield layers[min(behind[series, inside], len(layers) - 1)], name, len(having)


class Epsilon(Sign):
    """Normalizers in which ε outweighs σ²."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare ε with the mean of σ² + ε."""
        for place, row in zip(self._places, seen.rows, strict=False):
            eps, sigma = row.get("eps", 0.0), row.get("sigma_rms", math.nan)
            if place.role != "norm" or not sigma > 0.0 or eps < EPS_SHARE * sigma**2:
                continue
            share, rest = eps / sigma**2, max(sigma**2 - eps, 0.0)
            if eps > EPS_USUAL:
                kind, advice = "eps_dominates", "Lower ε."
                why = "ε is far larger than usual (1e-5)"
            else:
                kind, advice = "sigma_collapse", "Look at the layer in front, dead or too small."
                why = "what comes in is nearly constant"
            sentence = f"{place.name}: ε = {eps:.3g} makes {share:.0%} of σ² + ε, σ² itself is {rest:.2g}; {why}."
            if kind == "sigma_collapse" and rest < CONSTANT * eps:
                sentence = (
                    f"{place.name}: what comes in is constant (σ² = {rest:.2g} beside ε = {eps:.3g}), so that next to "
                    "nothing of it comes out."
                )
            if kind == "eps_dominates" or seen.story.worse:
                yield Alarm(seen.step, kind, place.name, sentence, share, EPS_SHARE, advice)


class SigmaShift(Sign):
    """σ that leaves its level by a large factor.

    Where a weight goes straight into the normalizer, σ/‖w‖ is compared: growing weights alone are a change of gauge.
    """

    rank = "symptom"

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare σ of every normalizer with its level."""
        feeding = {norm: layer for layer, norm in seen.pairs.items()}
        for row, place in self._rows("norm").items():
            size = _free(seen.rows, row, feeding.get(row))
            if size is None:
                continue
            level = self._levels[row]
            factor = level.factor(size)
            if 1 / SIGMA_FACTOR < factor < SIGMA_FACTOR:
                level.see(size)
                continue
            collapse = factor < 1
            layer = feeding.get(row)
            over = "" if layer is None else f", both over the norm of {self._places[layer].name} in front of it"
            sentence = (
                f"{place.name}: σ = {seen.rows[row]['sigma_rms']:.3g} at step {seen.step} is {factor:.2g} times its "
                f"level{over}: it {'collapsed' if collapse else 'exploded'}."
            )
            kind, limit = ("sigma_collapse", 1 / SIGMA_FACTOR) if collapse else ("sigma_explosion", SIGMA_FACTOR)
            advice = "Look at the layers in front of it and at the input."
            yield Alarm(seen.step, kind, place.name, sentence, factor, limit, advice)


def _free(rows: Sequence[Row], norm: int, feeding: int | None) -> float | None:
    sigma = rows[norm].get("sigma_rms")
    weight = None if feeding is None else rows[feeding].get("frobenius")
    if sigma is None or not 0.0 < sigma < math.inf:
        return None
    return sigma / weight if weight else sigma


class Gains(Sign):
    """‖γ‖ of every normalizer against its level and its start."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._starts: dict[int, float] = {}

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare ‖γ‖ of every normalizer with its level and its start."""
        left = {}
        for row, place in self._rows("norm").items():
            if not place.shape:
                continue
            size, level = seen.rows[row].get("frobenius"), self._levels[row]
            if size is None or not math.isfinite(size) or not seen.facts.of(row).learns or not place.size:
                continue  # a copy that is synchronized jumps on purpose; a gain that began at 0 has no level
            if level.factor(size) < GAMMA_DEAD:
                yield self._dead(seen, row, size, level.value)
                continue
            step = level.factor(seen.rows[row].get("update", 0.0)) if level.settled else 0.0
            if step > GAMMA_JUMP:
                yield self._jump(seen, place.name, step)
            level.see(size)
            if level.count == 1:
                self._starts[row] = size
            if self._starts.get(row, 0.0) > 0.0:
                left[row] = size / self._starts[row]
        yield from self._decay(seen, left)

    def _dead(self, seen: Seen, row: int, size: float, level: float) -> Alarm:
        name, passes = self._places[row].name, "little" if size else "nothing"
        sentence = (
            f"{name}: ‖γ‖ is down to {size:.3g} at step {seen.step}, from {level:.3g}, so that {passes} passes this "
            f"normalizer; {self._reached(seen, row)}."
        )
        advice = "Look at what writes to γ (pruning, an optimizer group, a loaded state)."
        return Alarm(seen.step, "dead_normalizer", name, sentence, size / level, GAMMA_DEAD, advice)

    def _reached(self, seen: Seen, row: int) -> str:
        """What is known of the gradient before a normalizer: that of the layer that feeds it, or is heard before it."""
        order = list(seen.order)
        before = next((layer for layer, norm in seen.pairs.items() if norm == row), None)
        if before is None and row in order[1:]:
            before = order[order.index(row) - 1]
        slope = None if before is None else seen.rows[before].get("gradient")
        if before is None or slope is None:
            return "what gradient reaches the layers before it was not seen, and a skip may carry some"
        seen_at = f"at that step {self._places[before].name}, before it, had a gradient of {slope:.3g}"
        return seen_at if before in seen.pairs else f"{seen_at}, and a skip may carry some past it"

    def _jump(self, seen: Seen, name: str, step: float) -> Alarm:
        sentence = f"{name}: γ changed by {step:.0%} of its usual norm in the step at {seen.step}."
        advice = "Look at what writes to γ, at its gradient, and at its learning rate."
        return Alarm(seen.step, "gamma_jump", name, sentence, step, GAMMA_JUMP, advice)

    def _decay(self, seen: Seen, left: dict[int, float]) -> Iterator[Alarm]:
        """Alarm about weight decay on γ, known from the optimizer, or inferred where all gains shrink."""
        if not left or min(level.count for level in self._levels.values()) < SETTLED:
            return
        worst = min(left, key=lambda row: left[row])
        taken = max(share_decayed(seen, row) for row in left)
        known = all("weight_decay" in seen.rows[row] for row in left)
        mainly = mainly_decayed(taken, seen.step, left[worst])
        if share_of_maps(seen, self._places) > GAMMA_DECAY or (known and not mainly):
            return  # that of all weights is another sign's, and what decay did not do is none of its
        if taken > GAMMA_DECAY and left[worst] < GAMMA_TOUCHED and mainly:
            how, threshold = f"weight decay takes {taken:.2%} of it each step", GAMMA_TOUCHED
        elif len(left) >= 2 and max(left.values()) < GAMMA_SHRUNK:
            how, threshold = "all gains shrink together, which looks like weight decay on γ (inferred)", GAMMA_SHRUNK
        else:
            return
        name = self._places[worst].name
        sentence = f"{name}: ‖γ‖ has come down to {left[worst]:.0%} of its start; {how}."
        advice = "Put the parameters of normalizers in an optimizer group with weight_decay=0."
        yield Alarm(seen.step, "gamma_decay", "", sentence, left[worst], threshold, advice)


class StaleStatistics(Sign):
    """Running σ² that stand still, or that belong to other data."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._apart: dict[int, int] = defaultdict(int)
        self._still: dict[int, int] = defaultdict(int)
        self._last: dict[int, float] = {}

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the running statistics of every normalizer with those of the batch."""
        for row, place in self._rows("norm").items():
            # in eval mode as a whole, that is what is to be said
            if "running" in seen.rows[row] and seen.facts.of(row).learns and seen.story.eval_since is None:
                yield from self._one(seen, row, place.name, seen.rows[row])

    def _one(self, seen: Seen, row: int, name: str, numbers: Row) -> Iterator[Alarm]:
        running, frozen = numbers["running"], "batch" in numbers
        batch = numbers["batch"] if frozen else numbers.get("sigma_rms", 0.0) ** 2 - numbers.get("eps", 0.0)
        moved = frozen or running != self._last.get(row)
        self._last[row] = running
        self._still[row] = 0 if moved else self._still[row] + 1
        if batch > 0.0:
            arrived = seen.step >= STATISTICS_STEPS / (seen.facts.of(row).momentum or 0.1)
            apart = not 1 / STATISTICS < running / batch < STATISTICS and (frozen or arrived)
            self._apart[row] = self._apart[row] + 1 if apart else 0
        if self._apart[row] >= (STATISTICS_FROZEN if frozen else STATISTICS_READINGS):
            use = (
                "it normalizes with the running ones (eval mode while training)"
                if frozen
                else "evaluation will use them"
            )
            sentence = (
                f"{name}: the running σ² is {running:.3g}, that of the batch {batch:.3g}; {use}. They belong to other "
                "data or are not updated."
            )
            advice = "Put it in train mode, give momentum about 0.1, or recompute them."
            yield Alarm(seen.step, "stale_statistics", name, sentence, running / batch, STATISTICS, advice)
        elif self._still[row] >= STATISTICS_STILL:
            sentence = (
                f"{name}: the running statistics have not moved in {self._still[row]} readings although it trains; "
                f"evaluation will use σ² = {running:.3g} where the batch has {batch:.3g}."
            )
            limit, advice = float(STATISTICS_STILL), "Is its momentum 0?"
            yield Alarm(seen.step, "stale_statistics", name, sentence, float(self._still[row]), limit, advice)

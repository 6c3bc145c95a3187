"""σ of the normalizers: against ε, and against its own level."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.sheet import Row
from normgauge.monitor.signs.sign import Level
from normgauge.monitor.thresholds import EPS_SHARE, EPS_USUAL, SIGMA_FACTOR


class Epsilon:
    """ε that decides instead of σ²."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare ε with the mean of σ² + ε."""
        for place, row in zip(self._places, seen.rows, strict=False):
            eps, sigma = row.get("eps", 0.0), row.get("sigma_rms", math.nan)
            if place.role != "norm" or not sigma > 0.0 or eps < EPS_SHARE * sigma**2:
                continue
            share, rest = eps / sigma**2, max(sigma**2 - eps, 0.0)
            if eps > EPS_USUAL:
                why, kind = (
                    "ε is far larger than usual (1e-5), and the layer hardly normalizes: lower ε",
                    "eps_dominates",
                )
            else:
                why, kind = (
                    "what comes in is nearly constant: look at the layer in front, dead or too small",
                    "sigma_collapse",
                )
            sentence = f"{place.name}: ε = {eps:.3g} makes {share:.0%} of σ² + ε, σ² itself is {rest:.2g}; {why}."
            yield Alarm(seen.step, kind, place.name, sentence, share, EPS_SHARE)


class Sigma:
    """σ that leaves its level by a large factor.

    Where a weight goes straight into the normalizer, σ/‖w‖ is compared: growing weights alone are a change of gauge.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = {row: place for row, place in enumerate(places) if place.role == "norm"}
        self._levels: dict[int, Level] = defaultdict(Level)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare every normalizer."""
        feeding = {norm: layer for layer, norm in seen.pairs.items()}
        for row, place in self._places.items():
            size = _free(seen.rows, row, feeding.get(row))
            if size is None:
                continue
            level = self._levels[row]
            factor = level.factor(size)
            if 1 / SIGMA_FACTOR < factor < SIGMA_FACTOR:
                level.see(size)
                continue
            collapse = factor < 1
            what = (
                "collapsed: what comes in hardly varies"
                if collapse
                else "exploded: what comes in has far outgrown its weights"
            )
            sentence = (
                f"{place.name}: σ = {seen.rows[row]['sigma_rms']:.3g} is {factor:.2g} times its level (against the "
                f"norm of the weights in front); it {what}. Look at the layers in front of it and at the input."
            )
            kind = "sigma_collapse" if collapse else "sigma_explosion"
            yield Alarm(seen.step, kind, place.name, sentence, factor, 1 / SIGMA_FACTOR if collapse else SIGMA_FACTOR)


def _free(rows: Sequence[Row], norm: int, feeding: int | None) -> float | None:
    sigma = rows[norm].get("sigma_rms")
    weight = None if feeding is None else rows[feeding].get("frobenius")
    if sigma is None or not 0.0 < sigma < math.inf:
        return None
    return sigma / weight if weight else sigma

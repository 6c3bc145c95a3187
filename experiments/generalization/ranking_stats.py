"""How well one list of numbers ranks another: Kendall, granulated Kendall, sign error over pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DRAWS = 200


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its bootstrap standard error; ``n`` says of how many networks or groups."""

    value: float
    error: float
    n: int


def signs(values: Sequence[float]) -> Floats:
    """sign(xᵢ − xⱼ) of all pairs."""
    x = np.asarray(values, dtype=np.float64)
    return (x[:, None] > x[None, :]).astype(np.float64) - (x[:, None] < x[None, :])  # by comparison: ∞ ties with ∞


def tau_b(x: Sequence[float], y: Sequence[float]) -> float:
    """Kendall's τ_b: concordant pairs minus discordant ones, over the geometric mean of the pairs without ties.

    >>> round(tau_b([1, 2, 3, 4], [1, 2, 4, 3]), 6), tau_b([1, 2], [1, 1])
    (0.666667, nan)
    """
    a, b = signs(x), signs(y)
    return float(_tau(np.ones((1, len(a))), a * b, a * a, b * b)[0])


def kendall(x: Sequence[float], y: Sequence[float], *, seed: int = 0, draws: int = DRAWS) -> Estimate | None:
    """Kendall's τ_b with ties, and its standard error from networks drawn anew; None where a list is all ties."""
    a, b = signs(x), signs(y)
    both, own, other = a * b, a * a, b * b
    value = tau_b(x, y)
    if math.isnan(value):
        return None
    counts = np.random.default_rng(seed).multinomial(len(a), np.full(len(a), 1 / len(a)), size=draws).astype(float)
    spread = _tau(counts, both, own, other)
    return Estimate(value, float(np.nanstd(spread, ddof=1)), len(a))


def binned_kendall(
    x: Sequence[float], y: Sequence[float], by: Sequence[float], bins: int = 12, *, seed: int = 0, draws: int = DRAWS
) -> Estimate | None:
    """τ_b of the pairs whose third number falls into the same bin; bins hold equally many."""
    order = np.argsort(np.asarray(by), kind="stable")
    owner = np.empty(len(order), dtype=int)
    owner[order] = np.arange(len(order)) * bins // max(1, len(order))
    same = (owner[:, None] == owner[None, :]).astype(float)
    a, b = signs(x) * same, signs(y) * same
    both, own, other = a * b, a * a, b * b
    value = _tau(np.ones((1, len(a))), both, own, other)[0]
    if math.isnan(value):
        return None
    counts = np.random.default_rng(seed).multinomial(len(a), np.full(len(a), 1 / len(a)), size=draws).astype(float)
    return Estimate(float(value), float(np.nanstd(_tau(counts, both, own, other), ddof=1)), len(a))


def _tau(counts: Floats, both: Floats, own: Floats, other: Floats) -> Floats:
    """τ_b for each row of counts: how often each network was drawn."""
    top, left, right = (np.einsum("bi,bi->b", counts @ matrix, counts) for matrix in (both, own, other))
    scale = np.sqrt(left * right)
    return np.divide(top, scale, out=np.full_like(top, math.nan), where=scale > 0)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two networks that differ in one hyperparameter.

    Attributes:
        first, second: their places.
        axis: the hyperparameter.
        group: all other hyperparameters and the kind.
        change: the kind, the hyperparameter and its two values.
    """

    first: int
    second: int
    axis: str
    group: Hashable
    change: tuple[Hashable, ...]


def pairs(rows: Sequence[Mapping[str, Hashable]], axes: Sequence[str]) -> list[Pair]:
    """Every pair that differs in one of the axes and nothing else; seeds are the same in both."""
    found = []
    for axis in axes:
        groups = defaultdict(list)
        for place, row in enumerate(rows):
            groups[tuple((k, v) for k, v in sorted(row.items()) if k != axis)].append(place)
        for group, places in groups.items():
            for i, j in combinations(places, 2):
                values = sorted((rows[i][axis], rows[j][axis]), key=str)
                found.append(Pair(i, j, axis, (axis, group), (rows[i].get("kind"), axis, *values)))
    return found


def granulated(
    x: Sequence[float], y: Sequence[float], among: Sequence[Pair], *, seed: int = 0, draws: int = DRAWS
) -> Estimate | None:
    """Ψ: Kendall over one hyperparameter with the others held, averaged over these and then over hyperparameters."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for pair in among:
        groups[pair.group].append(_agreement(x, y, pair))
    by_axis: dict[str, list[float]] = defaultdict(list)
    for pair_group, values in groups.items():
        by_axis[pair_group[0]].append(sum(values) / len(values))  # type: ignore[index]
    if not by_axis:
        return None
    value = float(np.mean([np.mean(v) for v in by_axis.values()]))
    random = np.random.default_rng(seed)
    spread = [np.mean([np.mean(random.choice(v, len(v))) for v in by_axis.values()]) for _ in range(draws)]
    return Estimate(value, float(np.std(spread, ddof=1)), len(groups))


def sign_error(
    x: Sequence[float], y: Sequence[float], among: Sequence[Pair], *, seed: int = 0, draws: int = DRAWS
) -> Estimate | None:
    """Mean over environments, pairs that differ in one hyperparameter, of ½(1 − sign Δx · sign Δy)."""
    errors = [(1 - _agreement(x, y, pair)) / 2 for pair in among]
    if not errors:
        return None
    random = np.random.default_rng(seed)
    spread = [np.mean(random.choice(errors, len(errors))) for _ in range(draws)]
    return Estimate(float(np.mean(errors)), float(np.std(spread, ddof=1)), len(errors))


def worst_change(x: Sequence[float], y: Sequence[float], among: Sequence[Pair]) -> tuple[float, str] | None:
    """The change of one hyperparameter whose effect is foretold worst: its mean sign error and its name."""
    by_change: dict[tuple[Hashable, ...], list[float]] = defaultdict(list)
    for pair in among:
        by_change[pair.change].append((1 - _agreement(x, y, pair)) / 2)
    if not by_change:
        return None
    means = {" ".join(map(str, change)): sum(v) / len(v) for change, v in by_change.items()}
    name = max(sorted(means), key=lambda key: means[key])
    return means[name], name


def _agreement(x: Sequence[float], y: Sequence[float], pair: Pair) -> float:
    a, b = x[pair.first] - x[pair.second], y[pair.first] - y[pair.second]
    return float(np.sign(a) * np.sign(b))

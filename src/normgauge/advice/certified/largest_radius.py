"""The largest radius that a bound certifies: a search in which every radius tried ends in a proof."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.advice.certified.margin_bounds import MarginBounds
from normgauge.core.rounding import log_joined, size_down, step_down

INF = math.inf
BEYOND = 1.25  # of the distance of an attack: a bound that certifies more than the distance shows that it is wrong
CLOSE = 1.01  # ends of the search this close are one
HALF = CLOSE**0.5
STRIDE = 4.0  # between radii, while only one end is known
NEAR = 1.5  # ends of the search this close: what the lower one allows is tried at once
MORE = 1.5  # a step beyond what passed, where balls are dear
EDGE = 0.05  # of the way between two radii that a third keeps from both
LARGEST = 690.0  # log of what a radius may be; beyond, it is infinite
Point = tuple[float, float]  # R and q(R)


def certified_by(room: Tensor, logs: Tensor | None) -> float:
    """The largest r with room_i > L_i r for every class, inside whatever ball the bounds L_i hold on; 0 without bounds.

    Args:
        room: (classes,) margins less all rounding; inf at the class itself.
        logs: (classes,) log L_i.
    """
    if logs is None or not bool((room > 0).all()):
        return 0.0
    free = torch.isinf(room) | (logs == -INF)
    least = float(
        torch.where(free, INF, room.log() - log_joined(logs, 4)).nan_to_num(nan=-INF, posinf=INF, neginf=-INF).min()
    )
    return max(0.0, step_down(size_down(math.exp(least)))) if least < LARGEST else INF


def largest_radius(
    bounds: MarginBounds, sample: int, target: int, room: Tensor, certified: float, attacked: float | None
) -> float:
    """The largest radius certified within the tries of an engine.

    Let q(R) be what the bounds on the ball of radius R certify. They hold on every smaller ball around the same point
    too, so min(R, q(R)) is proved for any R. q falls as R grows, up to what is lost in computing it, so the best radius
    lies where R = q(R): above every R that passes and below every one that does not.

    Args:
        bounds: the engine.
        sample: its place in the batch.
        target: the class whose margins are meant.
        room: as for `certified_by`.
        certified: what is certified already.
        attacked: the distance at which an attack succeeded, if one did.

    Returns:
        The largest radius that passed, ``certified`` where none is larger.
    """
    best, high = certified, INF if attacked is None else BEYOND * attacked
    passed: Point | None = None
    failed: Point | None = None
    for count in range(bounds.tries):
        if high <= CLOSE * best:
            break
        radius = INF if count == 0 else next_radius(best, high, passed, failed, bounds.hint(sample))
        allowed = certified_by(room, bounds(sample, radius, target))
        best = max(best, min(radius, allowed))
        if allowed >= radius:
            high, passed = min(high, max(radius, allowed)), (radius, allowed)
        else:
            high, failed = min(high, radius), (radius, allowed)
    return best


def next_radius(best: float, high: float, passed: Point | None, failed: Point | None, hint: float = INF) -> float:
    """The radius to try next.

    Just above what is certified first: where nothing passes there, nothing larger will. Then between both ends, where a
    straight line through log q(R) − log R at the last radius that passed and the last that did not is zero. Where an
    engine hints at a radius, that is tried first, then a little more or half of it: its balls are dear.

    Args:
        best: what is certified.
        high: what is hopeless.
        passed: the last R that passed with its q(R).
        failed: the last R that did not, with its q(R).
        hint: of the engine.
    """
    if best < hint < high and passed is None:
        return hint
    if hint < INF and passed is None and best < high / 2 < hint:
        return high / 2
    if not best:
        return high / STRIDE if math.isfinite(high) else 1.0
    if passed is None:
        return best * CLOSE
    if math.isinf(high):
        return STRIDE * best
    if failed is None or math.isinf(failed[0]) or not failed[1]:
        near = high == passed[1] < NEAR * best
        middle = high / HALF if near else math.sqrt(best) * math.sqrt(high)
        return middle if math.isinf(hint) else min(middle, MORE * best)
    above, below = (math.log(q) - math.log(radius) for radius, q in (passed, failed))
    share = min(max(above / (above - below), EDGE), 1 - EDGE)
    return float(math.exp(math.log(passed[0]) + share * (math.log(failed[0]) - math.log(passed[0]))))

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
STRIDE = 4.0  # between radii, while only one end is known
LARGEST = 690.0  # log of what a radius may be; beyond, it is infinite


def certified_by(room: Tensor, logs: Tensor | None) -> float:
    """The largest r with room_i > L_i r for every class, inside whatever ball the bounds L_i hold on; 0 without bounds.

    Args:
        room: (classes,) margins less all rounding; inf at the class itself.
        logs: (classes,) log L_i.
    """
    if logs is None or not bool((room > 0).all()):
        return 0.0
    free = torch.isinf(room) | (logs == -INF)
    least = float(torch.where(free, INF, room.log() - log_joined(logs, 4)).nan_to_num(nan=-INF).min())
    return step_down(size_down(math.exp(least))) if least < LARGEST else INF


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
    for count in range(bounds.tries):
        radius = next_radius(count, best, high)
        if radius is None:
            break
        allowed = certified_by(room, bounds(sample, radius, target))
        best = max(best, min(radius, allowed))
        high = min(high, max(radius, allowed)) if allowed >= radius else min(high, radius)
    return best


def next_radius(count: int, best: float, high: float) -> float | None:
    """The radius to try: all inputs first, then just above what is certified, then between both ends; None at the end.

    Where nothing passes just above, nothing larger will, and the search is over.
    """
    if high <= CLOSE * best:
        return None
    if count == 0:
        return INF
    if best > 0:
        return best * CLOSE if count == 1 else math.sqrt(best) * math.sqrt(min(high, STRIDE**2 * best))
    return high / STRIDE if math.isfinite(high) else 1.0

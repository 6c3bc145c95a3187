"""Robust error: the share of inputs that are wrong, or that a small change could make wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from torch import Tensor

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import EXACT, joined_conditions
from normgauge.certificates.facts.slopes import MarginSlopes, local_slopes
from normgauge.core.certificate import Row, RowKind, promised_row

BALLS = 512  # measured in one run of the gauge
ROUNDING = 1e-5  # of the largest output: what float32 may lose in a network and its copies
NO_RADIUS = "give radius=R, the l2 length of the changes of an input that must not matter"
NO_FLOATS = "inputs that are no real numbers have no small changes"


def robust_rows(case: Case, slopes: MarginSlopes, plain: Row) -> Iterator[Row]:
    """Clopper-Pearson on the samples that are wrong or not proved to stay right.

    A right sample stays right under every change up to r where its margin exceeds r times the slope of the margin,
    over all inputs or in the ball around it. Samples that stay right but are not proved to are counted as mistakes,
    so the count is at least the binomial one.

    Args:
        case: the network, its data and the radius.
        slopes: proved slopes of the margin.
        plain: the hold-out row by Clopper and Pearson: where it does not apply, neither does this one.

    Yields:
        ``robust.holdout``.
    """
    blank = dataclasses.replace(
        plain,
        key="robust.holdout",
        name="Robust error" if case.radius is None else f"Robust error, changes up to {case.radius:g}",
        family="robust",
        quantity="robust error",
        condition=joined_conditions(plain.condition, EXACT),
        terms=(),
        formula="largest p with P(Bin(n, p) ≤ #{margin ≤ slope·r}) ≥ δ",
        source="Tsuzuku et al. 2018; Clopper & Pearson 1934",
    )
    if case.radius is None:
        reason = NO_RADIUS
    elif plain.kind is RowKind.NOT_APPLICABLE or case.holdout is None:
        reason = plain.reason
    else:
        reason = slopes.gap if case.holdout.take([0]).is_floating_point() else NO_FLOATS
    yield (
        dataclasses.replace(blank, kind=RowKind.NOT_APPLICABLE, value=None, reason=reason)
        if reason
        else _row(case, slopes, blank)
    )


def _row(case: Case, slopes: MarginSlopes, blank: Row) -> Row:
    assert case.held is not None and case.holdout_logits is not None
    margins = case.held
    room = (margins - ROUNDING * case.holdout_logits.double().abs().amax(1)).clamp(min=0)
    good = certified_samples(case, room, slopes)
    n, wrong, bad = len(good), int((margins <= 0).sum()), int((~good).sum())
    value = clopper_pearson(bad, n, math.log(case.delta))
    median = float(room.median())
    reason = (
        f"no sample is proved to stay right: a margin of {median:.3g}, the median, over the proved slope "
        f"{slopes.balanced:.3g} allows changes up to {median / slopes.balanced:.2g}; give a smaller radius"
    )
    terms = (
        ("wrong on the hold-out", wrong / n),
        ("right, not proved to stay so", (bad - wrong) / n),
        ("price of its size", value - bad / n),
    )
    return promised_row(blank, value=value, terms=terms, additive=True, reason=reason if bad == n else "")


def certified_samples(case: Case, room: Tensor, slopes: MarginSlopes) -> Tensor:
    """Which hold-out samples are proved to stay right: (n,).

    Args:
        case: the network, its hold-out and the radius.
        room: (n,) by how much each is right, 0 where it is wrong.
        slopes: proved slopes; where the one over all inputs does not suffice, that of the ball around a sample may.
    """
    assert case.holdout is not None and case.radius is not None
    good = room > slopes.balanced * case.radius
    left = ((room > 0) & ~good).nonzero().squeeze(1)
    for places in left.split(BALLS) if len(left) else ():
        case.progress("proving which predictions cannot be changed", float(places[0]) / len(room))
        steep = local_slopes(case.model, case.holdout.take(places), (case.radius,))
        if steep is not None:
            good[places] = room[places] > steep[0] * case.radius
    return good

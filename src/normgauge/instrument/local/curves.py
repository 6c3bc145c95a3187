"""Slopes of elementwise functions on intervals: where their kinks are, how fast the slope changes between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, size_up
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.rules.activation import Turns, activation_of, clamp_limits, slope_range
from normgauge.instrument.trace.step import Step

INF = math.inf
DIGITS = 1e-12  # of a slope that autograd gives in float64: a few operations


@dataclass(frozen=True, slots=True)
class Curve:
    """What is known of the slope of φ.

    Attributes:
        low: its smallest value anywhere.
        high: its largest.
        kinks: where it jumps.
        bend: sup|φ''| away from the kinks.
    """

    low: float
    high: float
    kinks: tuple[float, ...] = ()
    bend: float = 0.0

    def distance(self, here: Tensor) -> Tensor:
        """How far an entry may move, in float64, with no change of slope; 0 where the slope changes everywhere."""
        if self.bend:
            return torch.zeros_like(here)
        gaps = [(here - kink).abs() for kink in self.kinks]
        return torch.stack(gaps).amin(0) if gaps else torch.full_like(here, INF)


def curve_of(step: Step, rule: str) -> Curve:
    """The curve of an elementwise step.

    Raises:
        NotCarried: for a function that is not in the tables, or options that are not plain numbers.
    """
    ends = slope_range(step, rule)
    turns = _turns(step, rule)
    if ends is None or turns is None:
        raise NotCarried("an activation whose slopes are not known here")
    return Curve(*ends, *turns)


def _turns(step: Step, rule: str) -> Turns | None:
    """Where the slope jumps, and how fast it changes elsewhere; None where that is not known."""
    if rule == "activation.modulus":
        return () if "neg" in step.kind else (0.0,), 0.0
    if rule == "activation.clamp":
        limits = [limit for limit in clamp_limits(step) if limit is not None]
        plain = [float(limit) for limit in limits if isinstance(limit, int | float)]
        return (tuple(filter(math.isfinite, plain)), 0.0) if len(plain) == len(limits) else None
    row = activation_of(step) if rule == "activation.activation" else None
    return row.turns(step) if row is not None and row.turns is not None and row.holds(step) else None


def slopes_around(curve: Curve, here: Tensor, slope: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Middle and half-width of the slopes of φ over [here − reach, here + reach], entry by entry.

    Without a kink in the interval |φ'(x) − φ'(here)| ≤ bend·reach; with one, every slope the function has.

    Args:
        curve: of φ.
        here: centres.
        slope: φ' there, in float64.
        reach: half-widths of the intervals, ≥ 0.
    """
    kinked = torch.zeros_like(here, dtype=torch.bool)
    for kink in curve.kinks:
        kinked |= (here - kink).abs() <= reach
    smooth = curve.bend * reach
    rounding = 0.0 if not curve.bend else DIGITS
    half = torch.where(kinked, (curve.high - curve.low) / 2, smooth + rounding)
    middle = torch.where(kinked, (curve.high + curve.low) / 2, slope)
    low, high = (middle - half).clamp_min(curve.low), (middle + half).clamp_max(curve.high)
    narrow = (high - low) / 2 < half
    middle, half = torch.where(narrow, (high + low) / 2, middle), torch.where(narrow, size_up((high - low) / 2), half)
    return middle, half


def secants_around(curve: Curve, here: Tensor, slope: Tensor, reach: Tensor, error: float) -> tuple[Tensor, Tensor]:
    """Middle and half-width of (φ(x) − φ(here))/(x − here) for |x − here| ≤ reach: means of slopes on the way.

    The slope is that at the centre for the first d of the way, d the distance to the nearest kink; of a smooth function
    it leaves it by bend·|x − here|, half as much in the mean.

    Args:
        curve: of φ.
        here: centres, which may be ``error`` off.
        slope: φ' there, in float64.
        reach: half-widths of the intervals, ``error`` included.
        error: of the centres.
    """
    middle, half = slopes_around(curve, here, slope, reach / 2 + error if curve.bend and not curve.kinks else reach)
    if curve.bend:
        return middle, half
    part = (1 - (curve.distance(here) - error).clamp_min(0.0) / reach.clamp_min(TINY)).clamp_min(0.0)
    low, high = slope + part * (curve.low - slope), slope + part * (curve.high - slope)
    return (low + high) / 2, size_up((high - low) / 2)

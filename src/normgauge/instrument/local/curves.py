"""Slopes of elementwise functions on intervals: where their kinks are, how fast the slope changes between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, size_up
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.rules.activation import activation_of
from normgauge.instrument.trace.step import Step, Value

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


SMOOTH = {
    "GELU": Curve(-0.128905, 1.128905, bend=0.797885),
    "GELU tanh": Curve(-0.128994, 1.128994, bend=0.797885),
    "SiLU": Curve(-0.099840, 1.099840, bend=0.5),
    "Mish": Curve(-0.112527, 1.088499, bend=0.644205),
    "Tanh": Curve(0.0, 1.0, bend=0.769801),
    "Sigmoid": Curve(0.0, 0.25, bend=0.0962251),
    "Softplus": Curve(0.0, 1.0, bend=0.25),
    "LogSigmoid": Curve(0.0, 1.0, bend=0.25),
    "Softsign": Curve(0.0, 1.0, bend=2.0),
    "Tanhshrink": Curve(0.0, 1.0, bend=0.769801),
    "sin": Curve(-1.0, 1.0, bend=1.0),
    "cos": Curve(-1.0, 1.0, bend=1.0),
    "erf": Curve(0.0, 1.128380, bend=0.967883),
    "Hardswish": Curve(-0.5, 1.5, (-3.0, 3.0), 1 / 3),
    "SELU": Curve(0.0, 1.758100, (0.0,), 1.758100),
}
"""By the first name torch has for a function; every number is rounded outwards in its last digit."""


def curve_of(step: Step, rule: str) -> Curve:
    """The curve of an elementwise step.

    Raises:
        NotCarried: for a function that is not in the tables, or options that are not plain numbers.
    """
    if rule == "activation.modulus":
        return Curve(-1.0, -1.0) if "neg" in step.kind else Curve(-1.0, 1.0, (0.0,))
    if rule == "activation.clamp":
        return _clamped(step)
    if rule != "activation.activation":
        raise NotCarried(f"{step.kind} is not an activation whose slopes are known here")
    row = activation_of(step)
    name = row.names.split()[0]
    if name in ("ReLU", "ReLU6"):
        return Curve(0.0, 1.0, (0.0,) if name == "ReLU" else (0.0, 6.0))
    if name == "LeakyReLU":
        slope = float(step.option(1, "negative_slope", 0.01))
        return Curve(min(slope, 1.0), max(slope, 1.0), (0.0,))
    if name == "PReLU":
        slopes = torch.as_tensor(step.option(1, "weight")).detach().double()
        return Curve(min(float(slopes.min()), 1.0), max(float(slopes.max()), 1.0), (0.0,))
    if name == "Softshrink":
        edge = float(step.option(1, "lambd", 0.5))
        return Curve(0.0, 1.0, (-edge, edge))
    if name == "Hardsigmoid":
        return Curve(0.0, 0.1666666717, (-3.0, 3.0))
    if name in ("ELU", "CELU"):
        return _exponential(step, name)
    if name == "Softplus":
        beta = float(step.option(1, "beta", 1.0))
        return Curve(0.0, size_up(1.0), bend=size_up(abs(beta) / 4))
    name = "GELU tanh" if name == "GELU" and row.text == "tanh form" else name
    if name not in SMOOTH:
        raise NotCarried(f"{step.kind} is not an activation whose slopes are known here")
    return SMOOTH[name]


def _exponential(step: Step, name: str) -> Curve:
    alpha = float(step.option(1, "alpha", 1.0))
    if name == "CELU":  # exp(x/α) for x < 0
        return Curve(0.0, 1.0, bend=size_up(1 / alpha)) if alpha > 0 else _refused(step)
    ends = (0.0, 1.0, alpha)
    return Curve(min(ends), max(ends), (0.0,), size_up(abs(alpha)))


def _refused(step: Step) -> Curve:
    raise NotCarried(f"{step.kind} with these parameters")


def _clamped(step: Step) -> Curve:
    if step.module is not None:
        limits = (step.module.min_val, step.module.max_val)
    elif "clamp_max" in step.kind:
        limits = (None, step.get(1, "max"))
    elif "hardtanh" in step.kind:
        limits = (step.get(1, "min_val", -1.0), step.get(2, "max_val", 1.0))
    else:
        limits = (step.get(1, "min"), step.get(2, "max"))
    if any(isinstance(v, Tensor | Value) for v in limits):
        raise NotCarried("a clamp whose limits are tensors")
    return Curve(0.0, 1.0, tuple(float(v) for v in limits if v is not None and math.isfinite(v)))


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

"""Enclosures of a function of one variable and of its derivative: on boxes, and on tails that reach to infinity.

Both kinds of number answer to the same operations, so one program of recorded steps (`scalar`) runs on either.
On a tail, where overflow and 0·∞ would end plain intervals, a function is enclosed by [a, b]·t^p·e^(qt) for all t ≥ M.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import torch
from torch import Tensor

from normgauge.core.rounding import LOOSE, STEPS, TINY

INF = math.inf


@dataclass(frozen=True, slots=True)
class Box:
    """One interval [lo, hi] for each entry; operations round outwards."""

    lo: Tensor
    hi: Tensor

    def number(self, value: float) -> Box:
        """The box of one number, at every entry."""
        return Box(torch.full_like(self.lo, value), torch.full_like(self.lo, value))

    def __add__(self, other: Box, /) -> Box:
        return widened_box(self.lo + other.lo, self.hi + other.hi)

    def __neg__(self) -> Box:
        return Box(-self.hi, -self.lo)

    def __mul__(self, other: Box, /) -> Box:
        if other is self:
            return self.power(2.0)
        ends = torch.stack([a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)])
        lost = ends.isnan().any(0)  # 0·∞
        return widened_box(torch.where(lost, -INF, ends.amin(0)), torch.where(lost, INF, ends.amax(0)))

    def inverse(self) -> Box:
        """1/x; the whole line where x may be 0."""
        across = (self.lo <= 0) & (self.hi >= 0)
        return widened_box(torch.where(across, -INF, 1 / self.hi), torch.where(across, INF, 1 / self.lo))

    def power(self, p: float) -> Box:
        """x^p; the whole line where it is not defined."""
        if p < 0:
            return self.power(-p).inverse()
        if p == int(p):
            low, high = self.lo.pow(p), self.hi.pow(p)
            if int(p) % 2 == 0:
                across = (self.lo <= 0) & (self.hi >= 0)
                low, high = torch.where(across, 0.0, torch.minimum(low, high)), torch.maximum(low, high)
                found = widened_box(low, high)
                return Box(found.lo.clamp_min(0.0), found.hi)
            return widened_box(low, high)
        wrong = self.lo < 0
        found = widened_box(self.lo.clamp_min(0.0).pow(p), self.hi.clamp_min(0.0).pow(p))
        return Box(torch.where(wrong, -INF, found.lo.clamp_min(0.0)), torch.where(wrong, INF, found.hi))

    def exp(self) -> Box:
        """e^x."""
        found = widened_box(self.lo.exp(), self.hi.exp())
        return Box(found.lo.clamp_min(0.0), found.hi)

    def log(self) -> Box:
        """log x; the whole line where x may be negative."""
        wrong = self.lo < 0
        found = widened_box(self.lo.clamp_min(0.0).log(), self.hi.clamp_min(0.0).log())
        return Box(torch.where(wrong, -INF, found.lo), torch.where(wrong, INF, found.hi))

    def absolute(self) -> Box:
        """|x|."""
        across = (self.lo <= 0) & (self.hi >= 0)
        ends = self.lo.abs(), self.hi.abs()
        return Box(torch.where(across, 0.0, torch.minimum(*ends)), torch.maximum(*ends))

    def sign(self) -> Box:
        """The sign of x: both signs and all between where x may be 0."""
        return Box(torch.where(self.lo > 0, 1.0, -1.0), torch.where(self.hi < 0, -1.0, 1.0))

    def clamped(self, low: float, high: float) -> Box:
        """min(max(x, low), high)."""
        return Box(self.lo.clamp(low, high), self.hi.clamp(low, high))

    def inside(self, low: float, high: float) -> Box:
        """1 where low < x < high, 0 beyond, anything between where x may be on both sides."""
        surely = (self.lo > low) & (self.hi < high)
        never = (self.hi < low) | (self.lo > high)
        return Box(torch.where(surely, 1.0, 0.0), torch.where(never, 0.0, 1.0))

    def squash(self, name: str) -> tuple[Box, Box]:
        """tanh, sigmoid, erf, sin or cos, and the derivative."""
        one = self.number(1.0)
        if name in ("sin", "cos"):
            turned = {"sin": (torch.sin, torch.cos, 1.0), "cos": (torch.cos, torch.sin, -1.0)}[name]
            value, slope = (self._wave(wave) for wave in turned[:2])
            return value, slope if turned[2] > 0 else -slope
        function = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf}[name]
        value = widened_box(function(self.lo), function(self.hi))
        value = Box(value.lo.clamp_min(0.0 if name == "sigmoid" else -1.0), value.hi.clamp_max(1.0))
        if name == "erf":
            return value, (-self.power(2.0)).exp() * self.number(2 / math.sqrt(math.pi))
        slope = value * (one + -value) if name == "sigmoid" else one + -value.power(2.0)
        return value, Box(slope.lo.clamp_min(0.0), slope.hi)

    def _wave(self, function: Callable[[Tensor], Tensor]) -> Box:
        """A wave of slope at most 1 over a box: its value in the middle and half the width of the box."""
        middle, half = (self.lo + self.hi) / 2, (self.hi - self.lo) / 2 * (1 + LOOSE)
        found = widened_box((function(middle) - half).clamp_min(-1.0), (function(middle) + half).clamp_max(1.0))
        lost = ~half.isfinite()
        return Box(torch.where(lost, -1.0, found.lo), torch.where(lost, 1.0, found.hi))


def widened_box(lo: Tensor, hi: Tensor) -> Box:
    """The box [lo, hi] rounded outwards; an end that is not a number becomes infinite."""
    lo, hi = lo - LOOSE * lo.abs() - TINY, hi + LOOSE * hi.abs() + TINY
    return Box(lo.nan_to_num(nan=-INF, posinf=INF, neginf=-INF), hi.nan_to_num(nan=INF, posinf=INF, neginf=-INF))


@dataclass(frozen=True, slots=True)
class Tail:
    """f(t) in [lo, hi]·t^p·e^(qt) for all t ≥ start ≥ 1.

    Attributes:
        lo, hi: the factor.
        p: power of t.
        q: rate of the exponential, exact.
        start: where the tail begins.
        exact: coefficients of f where it is a polynomial in t of degree 2 at most, exact; None elsewhere.
    """

    lo: float
    hi: float
    p: float
    q: Fraction
    start: float
    exact: tuple[Fraction, Fraction, Fraction] | None = None

    @classmethod
    def variable(cls, start: float, sign: int = 1) -> Tail:
        """t itself, or −t."""
        return cls._polynomial((Fraction(0), Fraction(sign), Fraction(0)), start)

    @classmethod
    def _polynomial(cls, c: tuple[Fraction, Fraction, Fraction], start: float) -> Tail:
        degree = max((i for i in range(3) if c[i]), default=0)
        if not any(c):
            return cls(0.0, 0.0, 0.0, Fraction(0), start, c)
        rest = sum(abs(float(c[i])) * start ** (i - degree) for i in range(degree)) * (1 + LOOSE)
        lead = float(c[degree])
        low = lead - sum(max(-float(c[i]), 0.0) * start ** (i - degree) for i in range(degree))
        high = lead + sum(max(float(c[i]), 0.0) * start ** (i - degree) for i in range(degree))
        slack = LOOSE * (abs(lead) + rest)
        return cls(low - slack if rest else lead, high + slack if rest else lead, float(degree), Fraction(0), start, c)

    def _new(self, lo: float, hi: float, p: float = 0.0, q: Fraction = Fraction(0)) -> Tail:
        lo, hi = lo - LOOSE * abs(lo), hi + LOOSE * abs(hi)
        lost = math.isnan(lo) or math.isnan(hi)
        return Tail(-INF if lost else lo, INF if lost else hi, p, q, self.start)

    def number(self, value: float) -> Tail:
        """A constant."""
        if not math.isfinite(value):
            return self._new(-INF, INF)
        return self._polynomial((Fraction(value), Fraction(0), Fraction(0)), self.start)

    def __neg__(self) -> Tail:
        c = None if self.exact is None else (-self.exact[0], -self.exact[1], -self.exact[2])
        return Tail(-self.hi, -self.lo, self.p, self.q, self.start, c)

    def __add__(self, other: Tail, /) -> Tail:
        if self.exact is not None and other.exact is not None:
            a, b = self.exact, other.exact
            return self._polynomial((a[0] + b[0], a[1] + b[1], a[2] + b[2]), self.start)
        if self.lo == self.hi == 0:
            return other
        if other.lo == other.hi == 0:
            return self
        big, small = (self, other) if (self.q, self.p) >= (other.q, other.p) else (other, self)
        if (small.q, small.p) == (big.q, big.p):
            return self._new(big.lo + small.lo, big.hi + small.hi, big.p, big.q)
        if not all(map(math.isfinite, (small.lo, small.hi))):
            return self._new(-INF, INF)
        share = peak(small.p - big.p, small.q - big.q, self.start)  # t^p·e^(qt) of the smaller over that of the larger
        return self._new(big.lo + min(0.0, small.lo * share), big.hi + max(0.0, small.hi * share), big.p, big.q)

    def __mul__(self, other: Tail, /) -> Tail:
        if self.exact is not None and other.exact is not None:
            a, b = self.exact, other.exact
            if not (a[2] and (b[1] or b[2])) and not (b[2] and a[1]):
                return self._polynomial(
                    (a[0] * b[0], a[0] * b[1] + a[1] * b[0], a[0] * b[2] + a[1] * b[1] + a[2] * b[0]), self.start
                )
        if other is self:
            return self.power(2.0)
        pairs = [(a, b) for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        ends = [a * b for a, b in pairs]
        if any(math.isnan(end) for end in ends):
            return self._new(-INF, INF)
        lost = {math.copysign(1.0, end) for (a, b), end in zip(pairs, ends, strict=True) if end == 0 != a and b}
        low, high = min(ends) - TINY * (-1.0 in lost), max(ends) + TINY * (1.0 in lost)  # underflow
        return self._new(low, high, self.p + other.p, self.q + other.q)

    def inverse(self) -> Tail:
        """1/f; the whole line where f may be 0."""
        if self.lo <= 0 <= self.hi:
            return self._new(-INF, INF)
        return self._new(1 / self.hi, 1 / self.lo, -self.p, -self.q)

    def power(self, p: float) -> Tail:
        """f^p; the whole line where it is not defined."""
        whole = p == int(p)
        if p == 2 and self.exact is not None and not self.exact[2]:
            return self * Tail(self.lo, self.hi, self.p, self.q, self.start, self.exact)
        if p < 0:
            return self.power(-p).inverse()
        if self.lo < 0 and not whole:
            return self._new(-INF, INF)
        try:
            ends = [self.lo**p, self.hi**p]
        except OverflowError:
            return self._new(-INF, INF)
        low, high = min(ends), max(ends)
        low -= TINY * (low == 0 > self.lo)  # underflow
        high += TINY * (high == 0 and (self.lo < 0 or self.hi > 0))
        if whole and int(p) % 2 == 0 and self.lo < 0 < self.hi:
            low = 0.0
        return self._new(low, high, self.p * p, self.q * Fraction(p))

    def exp(self) -> Tail:
        """e^f: of a straight line exactly, of a falling parabola by a line above it, else by the supremum of f."""
        if self.exact is not None:
            c, b, a = self.exact
            try:
                if not a:
                    height = math.exp(float(c))
                    return self._new(
                        height * (1 - LOOSE * (1 + abs(float(c)))), height * (1 + LOOSE * (1 + abs(float(c)))), 0.0, b
                    )
                fall = b + 2 * a * Fraction(self.start)
                if a < 0 and fall < 0:  # f + κt falls on the tail for κ = −f'(start)/2
                    top = c + b * Fraction(self.start) + a * Fraction(self.start) ** 2 - fall / 2 * Fraction(self.start)
                    return self._new(0.0, math.exp(float(top)) * (1 + LOOSE * (1 + abs(float(top)))), 0.0, fall / 2)
            except OverflowError:
                return self._new(-INF, INF)
        highest = self.highest()
        if highest > 700:
            return self._new(-INF, INF)
        return self._new(0.0, math.exp(highest) * (1 + LOOSE * (1 + abs(highest))))

    def log(self) -> Tail:
        """log f = log of the factor + p·log t + q·t, in multiples of t unless f stays between constants."""
        if self.lo <= 0 or self.hi == INF:
            return self._new(-INF, INF)
        low, high = math.log(self.lo), math.log(self.hi)
        slack = LOOSE * (1 + abs(low) + abs(high))
        if self.p == 0 and self.q == 0:
            return self._new(low - slack, high + slack)
        rate, turn = float(self.q), self.p / math.e  # 0 ≤ log t ≤ t/e for t ≥ 1
        ends = [low / self.start, high / self.start, 0.0]
        floor = rate + min(turn, 0.0) + min(ends[0], 0.0) - slack
        return self._new(floor, rate + max(turn, 0.0) + max(ends[1], 0.0) + slack, 1.0)

    def absolute(self) -> Tail:
        """|f|."""
        if self.lo >= 0:
            return self
        if self.hi <= 0:
            return -self
        return self._new(0.0, max(-self.lo, self.hi), self.p, self.q)

    def sign(self) -> Tail:
        """The sign of f: both signs and all between where f may be 0."""
        return self._new(1.0 if self.lo > 0 else -1.0, -1.0 if self.hi < 0 else 1.0)

    def clamped(self, low: float, high: float) -> Tail:
        """min(max(f, low), high); between the ends of f and the limits where f may be on both sides of one."""
        least, most = -(-self).highest(), self.highest()
        if least >= low and most <= high:
            return self
        if most <= low or least >= high:
            return self.number(low if most <= low else high)
        return self._new(max(least, low), min(most, high))

    def inside(self, low: float, high: float) -> Tail:
        """1 where low < f < high, 0 beyond, anything between where both may be."""
        least, most = -(-self).highest(), self.highest()
        if least > low and most < high:
            return self.number(1.0)
        return self.number(0.0) if most < low or least > high else self._new(0.0, 1.0)

    def squash(self, name: str) -> tuple[Tail, Tail]:
        """tanh, sigmoid, erf, sin or cos, and the derivative; far out the first three are flat."""
        if name in ("sin", "cos"):
            return self._new(-1.0, 1.0), self._new(-1.0, 1.0)
        steepness = {"tanh": 1.0, "sigmoid": 0.25, "erf": 1.13}[name]
        bottom = 0.0 if name == "sigmoid" else -1.0
        grows = self.q >= 0 and self.p >= 1
        if grows and (self.lo > 0 or self.hi < 0):  # |f| ≥ a·t
            a = min(abs(self.lo), abs(self.hi)) * self.start ** (self.p - 1) * (1 - LOOSE)
            reach = a * self.start
            rate, top = {
                "tanh": (2 * a, 4.0), "sigmoid": (a, 1.0), "erf": (min(a * a * self.start, 1e6), 1.13),
            }[name]  # fmt: skip
            off = {
                "tanh": 2 * math.exp(-2 * reach),
                "sigmoid": math.exp(-reach),
                "erf": math.exp(-min(reach**2, 700.0)),
            }
            value = self._new(1 - off[name], 1.0) if self.lo > 0 else self._new(bottom, bottom + off[name])
            return value, self._new(0.0, top, 0.0, -Fraction(rate))
        return self._new(bottom, 1.0), self._new(0.0, steepness)

    def highest(self) -> float:
        """Supremum of the upper end on the tail."""
        if self.hi == INF:
            return INF
        if self.hi <= 0:
            floor = tail_infimum(self.p, self.q, self.start)
            return self.hi * floor if floor else 0.0
        return self.hi * peak(self.p, self.q, self.start)


def peak(p: float, q: Fraction, start: float) -> float:
    """Supremum of t^p·e^(qt) on t ≥ start."""
    if q > 0 or (q == 0 and p > 0):
        return INF
    return _value(p, q, start if q == 0 or p <= 0 else max(start, p / -float(q)), STEPS)


def tail_infimum(p: float, q: Fraction, start: float) -> float:
    """Infimum of t^p·e^(qt) on t ≥ start."""
    if q < 0 or (q == 0 and p < 0):
        return 0.0
    return _value(p, q, start if q == 0 or p >= 0 else max(start, -p / float(q)), -STEPS)


def _value(p: float, q: Fraction, t: float, slack: float) -> float:
    """t^p·e^(qt), rounded up for a positive ``slack`` and down for a negative one."""
    exponent = p * math.log(t) + float(q) * t
    exponent += slack * (1 + abs(p * math.log(t)) + abs(float(q) * t))
    if exponent > 709:
        return INF if slack > 0 else 1e308
    return math.exp(exponent) * (1 + slack) + (TINY if slack > 0 else 0.0)


Enclosure = TypeVar("Enclosure", Box, Tail)
"""Either kind of number."""

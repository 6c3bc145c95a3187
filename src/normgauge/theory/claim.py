"""A claim with its check, and the few words a check is written in.

A check is a generator: it draws a fresh instance, computes the quantity the claim is about by brute force (autograd,
singular values, simulation) and yields one finding for every comparison:

    equals(what, measured, predicted=..., published=...)   measured = predicted up to rounding (or ``rel``); of tensors,
                                                           ``along`` a random one
    below(what, measured, predicted=..., published=...)    measured <= predicted: a bound that holds
    refutes(what, measured, published=...)                 the printed number is wrong here, by more than ``by``
    exceeds(what, measured, published=...)                 the printed upper bound is too small, by more than ``by``
    moves(what, before, after)                             the printed number moves though the function does not
    shown(what, fact)                                      a fact without a number

and ``Curve`` for a small plot. What is *measured* must never come out of the formula it is compared with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from normgauge.core.claim import READ, Comparison, ComparisonKind, Curve, Entry, Outcome
from normgauge.theory.draw import Draw

Found = Iterator[Comparison | Curve]
Check = Callable[[Draw], Found]
Number = float | Tensor  # a tensor of one entry


class Absent(Exception):
    """Raised by a check whose data are missing; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry with its check, if it has one."""

    entry: Entry
    check: Check | None = None

    @property
    def id(self) -> str:
        """The id of the entry."""
        return self.entry.id

    def run(self, seed: int = 0) -> Outcome:
        """Check this claim on instances drawn from ``seed``; an exception becomes the outcome's problem."""
        if self.check is None:
            return Outcome(self.entry, seed, absent=READ)
        start, found, problem, absent = time.process_time(), list[Comparison | Curve](), "", ""
        draw = Draw(seed, self.id)
        try:
            found = list(self.check(draw))
        except Absent as error:
            absent = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        return Outcome(
            self.entry,
            seed,
            findings=tuple(f for f in found if isinstance(f, Comparison)),
            curves=tuple(c for c in found if isinstance(c, Curve)),
            seconds=time.process_time() - start,
            problem=problem,
            absent=absent,
            recipe=f"{self.check.__module__}.{self.check.__name__}",
            drawn=() if absent else tuple(draw.drawn),
        )


def equals(
    what: str,
    measured: Number,
    *,
    predicted: Number,
    published: Number | None = None,
    rel: float = 1e-9,
    scale: Number | None = None,
    along: Tensor | None = None,
) -> Comparison:
    """Measured equals predicted within ``rel``, relative to the larger of both (or to ``scale``, for zeros).

    Of two tensors, all entries at once: what counts is their product with a random one of the same shape, ``along``.
    """
    if along is not None:
        measured, predicted = (measured * along).sum(), (predicted * along).sum()
    measured, predicted = float(measured), float(predicted)
    measured += 0.0  # −0 is 0
    size = float(scale) if scale is not None else max(abs(measured), abs(predicted))
    error = 0.0 if measured == predicted else abs(measured - predicted) / size
    return Comparison(ComparisonKind.EQUAL, what, measured, predicted, _float(published), error <= rel, error)


def below(
    what: str, measured: Number, *, predicted: Number, published: Number | None = None, rel: float = 1e-9
) -> Comparison:
    """Measured is at most predicted, with ``rel`` for rounding; ``error`` is the excess, negative with room."""
    measured, predicted = float(measured), float(predicted)
    error = _apart(measured, predicted)
    return Comparison(ComparisonKind.BELOW, what, measured, predicted, _float(published), error <= rel, error)


def refutes(what: str, measured: Number, *, published: Number, by: float = 1e-3) -> Comparison:
    """The printed number differs from the measured one by more than ``by``, relative to the larger of both."""
    measured, published = float(measured), float(published)
    error = abs(_apart(measured, published))
    passed = error > by or math.isnan(published)
    return Comparison(ComparisonKind.REFUTES, what, measured, None, published, passed, error)


def exceeds(what: str, measured: Number, *, published: Number, by: float = 1e-3) -> Comparison:
    """The measured number is above a printed upper bound by more than ``by``, relatively: the bound is no bound."""
    measured, published = float(measured), float(published)
    error = _apart(measured, published)
    return Comparison(ComparisonKind.REFUTES, what, measured, None, published, error > by, error)


def moves(what: str, before: Number, after: Number, *, by: float = 0.1) -> Comparison:
    """The printed number changes by more than ``by``, relatively, under a change that leaves the function alone."""
    before, after = float(before), float(after)
    error = abs(_apart(after, before))
    return Comparison(ComparisonKind.MOVES, what, after, None, before, error > by, error)


def shown(what: str, fact: bool) -> Comparison:
    """A fact that was observed on this instance."""
    return Comparison(ComparisonKind.SHOWN, what, 1.0 if fact else 0.0, 1.0, None, bool(fact), 0.0 if fact else 1.0)


def _apart(a: float, b: float) -> float:
    """(a − b)/max(|a|, |b|); ±1 where one of both is infinite."""
    if a == b:
        return 0.0
    if math.isinf(a) or math.isinf(b):
        return math.copysign(1.0, a - b) if not math.isnan(a - b) else math.nan
    return (a - b) / max(abs(a), abs(b))


def _float(value: Number | None) -> float | None:
    return None if value is None else float(value)

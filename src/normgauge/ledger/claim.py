"""A claim of a paper with a check of its own, and the few words a check is written in.

A check is a generator: it draws a fresh instance, computes the quantity the claim is about by brute force (autograd,
singular values, simulation) and yields one finding for every comparison:

    equal(what, measured, predicted=..., published=...)    measured = predicted up to rounding (or ``rel``)
    below(what, measured, predicted=..., published=...)    measured <= predicted: a bound that holds
    refutes(what, measured, published=...)                 the printed number is wrong here, by more than ``by``
    moves(what, before, after)                             the printed number moves though the function does not
    shown(what, fact)                                      a fact without a number

and ``Curve`` for a small plot. What is *measured* must never come out of the formula it is compared with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from normgauge.core.claim import Curve, Finding, Kind, Outcome, Verdict
from normgauge.ledger.draw import Draw

Check = Callable[[Draw], Iterator[Finding | Curve]]
Number = float | Tensor  # a tensor of one entry


@dataclass(frozen=True, slots=True)
class Claim:
    """One published claim; the fields are those of `Outcome`, with the check in place of its findings."""

    id: str
    source: str
    statement: str
    verdict: Verdict
    correction: str
    check: Check | None = None
    experiment: str = ""
    backs: tuple[str, ...] = ()

    @property
    def checked(self) -> str:
        """How: here, by an experiment, or only by reading (nothing in it can be computed)."""
        return "here" if self.check else self.experiment or "reading"

    def run(self, seed: int = 0) -> Outcome:
        """Check this claim on instances drawn from ``seed``; an exception becomes the outcome's problem."""
        start, found, problem = time.process_time(), list[Finding | Curve](), ""
        try:
            found = list(self.check(Draw(seed, self.id))) if self.check else []
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        return Outcome(
            self.id,
            self.source,
            self.statement,
            self.verdict,
            self.correction,
            backs=self.backs,
            checked=self.checked,
            seed=seed,
            findings=tuple(f for f in found if isinstance(f, Finding)),
            curves=tuple(c for c in found if isinstance(c, Curve)),
            seconds=time.process_time() - start,
            problem=problem,
        )


class Family:
    """The claims of one file, in the order of the paper."""

    def __init__(self, letter: str, paper: str) -> None:
        self.letter = letter
        self.paper = paper
        self.claims: list[Claim] = []

    def add(
        self,
        number: str,
        where: str,
        verdict: Verdict,
        statement: str,
        correction: str,
        *,
        backs: Sequence[str] = (),
    ) -> Callable[[Check], Check]:
        """Register the decorated check as that of claim ``letter.number``."""

        def register(check: Check) -> Check:
            self._put(Claim(*self._head(number, where), statement, verdict, correction, check, backs=tuple(backs)))
            return check

        return register

    def trained(
        self, number: str, where: str, verdict: Verdict, statement: str, correction: str, experiment: str
    ) -> None:
        """Register a claim that takes training to check; ``experiment`` names what does, as ``reproduce`` knows it."""
        self._put(Claim(*self._head(number, where), statement, verdict, correction, experiment=experiment))

    def read(self, number: str, where: str, verdict: Verdict, statement: str, reason: str) -> None:
        """Register a claim in which nothing can be computed; ``reason`` says why."""
        self._put(Claim(*self._head(number, where), statement, verdict, reason))

    def _head(self, number: str, where: str) -> tuple[str, str]:
        return f"{self.letter}.{number}", f"{self.paper}, {where}"

    def _put(self, claim: Claim) -> None:
        if any(other.id == claim.id for other in self.claims):
            raise ValueError(f"claim {claim.id} is registered twice")
        self.claims.append(claim)


def equal(
    what: str,
    measured: Number,
    *,
    predicted: Number,
    published: Number | None = None,
    rel: float = 1e-9,
    scale: Number | None = None,
) -> Finding:
    """Measured equals predicted within ``rel``, relative to the larger of both (or to ``scale``, for zeros)."""
    measured, predicted = float(measured), float(predicted)
    size = float(scale) if scale is not None else max(abs(measured), abs(predicted))
    error = 0.0 if measured == predicted else abs(measured - predicted) / size
    return Finding(Kind.EQUAL, what, measured, predicted, _float(published), error <= rel, error)


def below(
    what: str, measured: Number, *, predicted: Number, published: Number | None = None, rel: float = 1e-9
) -> Finding:
    """Measured is at most predicted, with ``rel`` for rounding; ``error`` is the excess, negative with room."""
    measured, predicted = float(measured), float(predicted)
    error = _apart(measured, predicted)
    return Finding(Kind.BELOW, what, measured, predicted, _float(published), error <= rel, error)


def refutes(what: str, measured: Number, *, published: Number, by: float = 1e-3) -> Finding:
    """The printed number differs from the measured one by more than ``by``, relative to the larger of both."""
    measured, published = float(measured), float(published)
    error = abs(_apart(measured, published))
    passed = error > by or math.isnan(published)
    return Finding(Kind.REFUTES, what, measured, None, published, passed, error)


def exceeds(what: str, measured: Number, *, published: Number, by: float = 1e-3) -> Finding:
    """The measured number is above a printed upper bound by more than ``by``, relatively: the bound is no bound."""
    measured, published = float(measured), float(published)
    error = _apart(measured, published)
    return Finding(Kind.REFUTES, what, measured, None, published, error > by, error)


def moves(what: str, before: Number, after: Number, *, by: float = 0.1) -> Finding:
    """The printed number changes by more than ``by``, relatively, under a change that leaves the function alone."""
    before, after = float(before), float(after)
    error = abs(_apart(after, before))
    return Finding(Kind.MOVES, what, after, None, before, error > by, error)


def shown(what: str, fact: bool) -> Finding:
    """A fact that was observed on this instance."""
    return Finding(Kind.SHOWN, what, 1.0 if fact else 0.0, 1.0, None, bool(fact), 0.0 if fact else 1.0)


def _apart(a: float, b: float) -> float:
    """(a − b)/max(|a|, |b|); ±1 where one of both is infinite."""
    if a == b:
        return 0.0
    if math.isinf(a) or math.isinf(b):
        return math.copysign(1.0, a - b) if not math.isnan(a - b) else math.nan
    return (a - b) / max(abs(a), abs(b))


def _float(value: Number | None) -> float | None:
    return None if value is None else float(value)

"""One score: its words, its parts, and the row it makes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from normgauge.certificates.scores.ground import Ground
from normgauge.core.certificate import Consumed, Row, RowKind
from normgauge.core.errors import NormgaugeError

Form = Literal["root", "half log", "plain"]
QUANTITY = "rank: larger predicts worse generalization"
REPORTED = {"root": "√({}/m)", "half log": "½(log({}) − log m)", "plain": "{}"}


@dataclass(frozen=True, slots=True)
class Score:
    """A number that ranks networks; larger predicts worse generalization.

    Attributes:
        key: without the ``score.`` before it.
        name: for people.
        formula: of v, before the form.
        form: ``root`` reports √(v/m), ``half log`` ½(log v − log m), ``plain`` v itself.
        parts: the terms whose sum is v, or log v for ``half log``.
        consumed: what it was paid with.
        source: paper.
    """

    key: str
    name: str
    formula: str
    form: Form
    parts: Callable[[Ground], dict[str, float]]
    consumed: tuple[Consumed, ...] = (Consumed.WEIGHTS,)
    source: str = "Jiang et al. 2020; Dziugaite et al. 2020"

    def value(self, terms: dict[str, float], m: int) -> float:
        """The sum of the terms, in the form this score is reported in."""
        total = math.fsum(terms.values())
        if self.form == "half log":
            return (total - math.log(m)) / 2
        return math.sqrt(total / m) if self.form == "root" else total

    def row(self, ground: Ground) -> Row:
        """The row of one network: its score, or the reason why there is no score."""
        plain = Row(
            key=f"score.{self.key}",
            name=self.name,
            family="score",
            kind=RowKind.NOT_APPLICABLE,
            consumed=self.consumed,
            quantity=QUANTITY,
            reason="not measured",
            source=self.source,
            formula=REPORTED[self.form].format(self.formula),
        )
        try:
            terms = self.parts(ground)
            value = self.value(terms, ground.case.m)
        except (
            NormgaugeError,
            ValueError,
            OverflowError,
            RuntimeError,
        ) as error:  # such as an operation without a gradient
            return dataclasses.replace(plain, reason=str(error) or type(error).__name__)
        if not math.isfinite(value):
            return dataclasses.replace(plain, reason=f"the score is {value}: it ranks nothing")
        # a score of plain form is the sum of its terms, which a waterfall may show
        return dataclasses.replace(
            plain, kind=RowKind.SCORE, value=value, terms=tuple(terms.items()), additive=self.form == "plain", reason=""
        )

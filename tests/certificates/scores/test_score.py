from __future__ import annotations

import math
from typing import Any

import pytest
from torch import nn

from normgauge.certificates.scores.ground import Ground
from normgauge.certificates.scores.score import Form, Score
from normgauge.core.certificate import RowKind
from normgauge.core.errors import InputError
from tests.certificates.scores.made import case, sample


def made(form: Form, parts: Any) -> Score:
    return Score("key", "name", "v", form, parts)


@pytest.mark.parametrize(
    ("form", "value", "formula"),
    [
        ("root", math.sqrt(5 / 60), "√(v/m)"),
        ("half log", (5 - math.log(60)) / 2, "½(log(v) − log m)"),
        ("plain", 5, "v"),
    ],
)
def test_a_score_is_the_sum_of_its_terms_in_its_form(form: Form, value: float, formula: str) -> None:
    row = made(form, lambda g: {"a": 2.0, "b": 3.0}).row(Ground(case(nn.Identity(), sample(60))))
    assert row.kind is RowKind.SCORE and row.key == "score.key" and row.formula == formula
    assert row.value == pytest.approx(value)
    assert row.terms == (("a", 2.0), ("b", 3.0)) and row.additive is (form == "plain")


def _refused(ground: Ground) -> dict[str, float]:
    raise InputError("no such layer")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (_refused, "no such layer"),
        (lambda g: {"a": math.inf}, "the score is inf: it ranks nothing"),
        (lambda g: {"a": math.log(0.0)}, "math domain error|positive"),
        (lambda g: {"a": math.exp(1e4)}, "math range error"),
    ],
    ids=["refused", "infinite", "logarithm", "overflow"],
)
def test_what_cannot_be_scored_says_why(parts: Any, reason: str) -> None:
    row = made("plain", parts).row(Ground(case(nn.Identity(), sample(60))))
    assert row.kind is RowKind.NOT_APPLICABLE and row.value is None
    assert any(words in row.reason for words in reason.split("|"))

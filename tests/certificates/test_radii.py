"""The robust error from certified radii."""

from __future__ import annotations

import dataclasses
import math

import pytest

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.radii import robust_error
from normgauge.core.errors import InputError
from tests.core.test_certified import FOUR, made, sample


def test_failures_are_what_is_wrong_or_not_certified():
    found = dataclasses.replace(made(*(sample(i, 0.1 * (i % 3), None) for i in range(90))), failure_probability=0.0)
    for radius, failures in ((0.05, 30), (0.15, 60), (0.3, 90)):
        assert robust_error(found, radius) == pytest.approx(clopper_pearson(failures, 90, math.log(0.05)))
    assert robust_error(found, 0.05, radii=3) == pytest.approx(clopper_pearson(30, 90, math.log(0.05 / 3)))


def test_the_chance_of_the_radii_is_paid_for():
    assert robust_error(dataclasses.replace(FOUR, failure_probability=0.01), 0.1, 0.05) == clopper_pearson(
        1, 4, math.log(0.04)
    )
    assert robust_error(dataclasses.replace(FOUR, failure_probability=0.06), 0.1, 0.05) == 1.0


@pytest.mark.parametrize(
    ("found", "given", "said"),
    [
        (made(sample(0, 0.1, None, label=None)), {}, "labelled samples"),
        (made(), {}, "labelled samples"),
        (FOUR, {"delta": 0.0}, "between 0 and 1"),
        (FOUR, {"radii": 0}, "1 or more"),
    ],
)
def test_what_is_missing_is_told(found, given, said):
    with pytest.raises(InputError, match=said):
        robust_error(found, 0.1, **given)

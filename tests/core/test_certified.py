"""Certified radii as data: there and back, never a radius that an attack contradicts, accuracies as counted."""

from __future__ import annotations

import json
import math

import pytest

from normgauge.core import checker
from normgauge.core.bound import Evidence
from normgauge.core.certified import CertifiedRadii, SampleRadius, judged_radius
from normgauge.core.errors import InputError, ReadingError


def sample(index: int, radius: float, attacked: float | None, *, label: int | None = 1, predicted: int = 1, **more):
    told = {"margin": 1.0 if label in (None, predicted) else -1.0, "rounding": 1e-13, "method": "composition"}
    return SampleRadius(
        index=index, label=label, predicted=predicted, radius=radius, attacked=attacked,
        **{**told, "evidence": Evidence.PROVED, **more},
    )  # fmt: skip


def made(*samples: SampleRadius) -> CertifiedRadii:
    return CertifiedRadii("Net", 3, samples, 1e-8, {"restarts": 4, "steps": 40, "seed": 0}, "sha256:0", notes=("a",))


FOUR = made(
    sample(0, 0.1, 0.5),
    sample(1, 0.3, None),
    sample(2, 0.0, None, predicted=0, reason="already wrong"),
    sample(3, 0.2, 0.25, evidence=Evidence.COMPUTED),
)


def test_there_and_back():
    data = json.loads(json.dumps(FOUR.to_json(), allow_nan=False))
    assert CertifiedRadii.from_json(data) == FOUR
    endless = made(sample(0, math.inf, None))
    assert endless.to_json()["samples"][0]["radius"] == "inf" and CertifiedRadii.from_json(endless.to_json()) == endless


def test_accuracies_are_counted():
    assert [FOUR.verified_accuracy(r) for r in (0, 0.1, 0.15, 0.2, 0.3, 0.31)] == [0.75, 0.75, 0.5, 0.5, 0.25, 0.0]
    assert [FOUR.attacked_accuracy(r) for r in (0, 0.2499, 0.25, 0.5, math.inf)] == [0.75, 0.75, 0.5, 0.25, 0.25]
    assert made(sample(0, 1.0, None, evidence=Evidence.ESTIMATED)).verified_accuracy(0) == 0.0
    for wrong in (-1.0, math.nan):
        with pytest.raises(InputError, match="expected a number from 0 on"):
            FOUR.verified_accuracy(wrong)


@pytest.mark.parametrize("attacked", [0.1, 0.05, 1e-12])
def test_an_attack_inside_the_radius_refutes_it(attacked):
    known = {"index": 0, "label": None, "predicted": 1, "margin": 1.0, "rounding": 0.0, "method": "boast"}
    judged = judged_radius(0.1, attacked, **known, evidence=Evidence.PROVED)
    assert (
        judged.radius == 0 and judged.evidence is Evidence.REFUTED and "REFUTED: boast certified 0.1" in judged.reason
    )
    assert made(judged).refuted == (judged,) and not judged.certified
    with pytest.raises(InputError, match="it is refuted"):
        sample(0, 0.1, attacked)


@pytest.mark.parametrize(("radius", "attacked"), [(-1.0, None), (math.nan, None), (0.0, 0.0), (0.0, -1.0)])
def test_lengths_that_are_none_are_refused(radius, attacked):
    with pytest.raises(InputError, match="expected a radius of 0 or more"):
        sample(0, radius, attacked)


def test_an_edited_file_is_refused():
    data = FOUR.to_json()
    data["samples"][0]["radius"] = 0.2
    with pytest.raises(ReadingError, match="the file was edited"):
        CertifiedRadii.from_json(data)
    data["samples"][0]["radius"] = 0.6  # above its attack, with a digest that fits
    with pytest.raises(ReadingError, match="it is refuted"):
        CertifiedRadii.from_json({**data, "digest": checker.digest(data)})
    for other in ({}, [], {"kind": "curvature", "schema": 1}, {**FOUR.to_json(), "schema": 9}):
        with pytest.raises(ReadingError, match="expected certified radii of schema 1"):
            CertifiedRadii.from_json(other)


def test_the_checker_says_that_there_is_no_proof_to_check():
    assert checker.check(FOUR.to_json()) == [
        "expected a reading, got a list of certified radii, which stores no proof that could be checked"
    ]

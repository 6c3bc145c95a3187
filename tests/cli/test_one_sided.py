"""Stored claims against what is measured again: which way each may differ, and by how much."""

from __future__ import annotations

import pytest

from normgauge.cli.one_sided import LEFT_OUT, MINIMISED, Comparison

UPPER, LOWER, FACT = "layers.log10_gain.upper", "layers.log10_gain.lower", "layers.sigma.min"


def said(path: str, stored: object, again: object) -> str:
    return " ".join(Comparison(1e-9, {}).places(stored, again, path, path, 1e-5))


@pytest.mark.parametrize(
    ("path", "more", "unconfirmed"),
    [
        (UPPER, -2e-9, True),
        (UPPER, -5e-10, False),
        (UPPER, 9e-6, False),
        (LOWER, 2e-9, True),
        (LOWER, 5e-10, False),
        (LOWER, -9e-6, False),
        (FACT, -9e-6, False),
        (FACT, 9e-6, False),
    ],
)
def test_a_claim_may_be_weaker_and_not_stronger(path, more, unconfirmed):
    assert ("could not be confirmed" in said(path, 1.0 + more, 1.0)) == unconfirmed
    assert bool(said(path, 1.0 + more, 1.0)) == unconfirmed


@pytest.mark.parametrize("path", [UPPER, LOWER, FACT])
@pytest.mark.parametrize("more", [-2e-5, 2e-5])
def test_what_differs_by_more_than_machines_do_is_named_either_way(path, more):
    assert said(path, 1.0 + more, 1.0)


@pytest.mark.parametrize("stored", ["inf", None, [1.0]])
def test_what_is_no_number_is_not_one(stored):
    assert said(UPPER, stored, 1.0) and said(UPPER, 1.0, stored) and not said(UPPER, stored, stored)


def test_a_published_product_that_an_earlier_reading_lacks_is_not_missed_in_it():
    now = {"log10_P_w": 1.0, "log10_theorem9_published": 2.0}
    assert not said("published", {"log10_P_w": 1.0}, now)
    assert said("published", {"log10_P_w": 1.5}, now) and said("published", now, {"log10_P_w": 1.0})
    assert said("sigma", {}, {"min": 1.0})


def test_the_chance_to_fail_is_a_claim_too():
    assert "larger by" in said("failure_probability", 1e-10, 2e-10) and not said("failure_probability", 0.0, 0.0)


def test_a_field_is_left_out_of_its_own_table_only():
    assert {"layers.log10_balanced", "proof.steps.log10_balanced", "log10_lower"} <= LEFT_OUT
    assert {"log10_balanced", "log10_upper", "samples.log10_upper"} <= MINIMISED - LEFT_OUT

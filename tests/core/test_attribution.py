"""Shares of a change: they add up, over branches as well."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.core.attribution import attribute
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from tests.core.test_compare import chain, residual
from tests.made import reading


@pytest.mark.parametrize("disjoint", [False, True])
def test_over_branches_the_shares_add_up_too(disjoint):
    a, b = residual(-1.0, 0.2, disjoint), residual(1.0, 0.5, disjoint)
    shares = attribute(a, b)
    assert shares is not None
    assert math.fsum(shares.values()) == pytest.approx(b.log_upper - a.log_upper, abs=1e-3)
    assert shares["stem"] == pytest.approx(0.3 * LN10)  # everything flows through it
    assert 0 < shares["branch"] < 2.0 * LN10  # only part of the flow does here
    assert shares["add"] == 0.0


def test_a_gain_of_one_input_counts_with_what_flows_through_it():
    def joined(second: float) -> Reading:
        step = ProofStep("add", 1, (0, 0), False, (0.0, second), (0.0, second))
        return reading(log_upper=math.log(1 + math.exp(second)), proof=Proof(1, (0,), 1, (step,)))

    a, b = joined(-1.0), joined(1.0)
    assert attribute(a, b) == pytest.approx({"add": b.log_upper - a.log_upper}, abs=1e-3)


def test_the_worst_sample_decides():
    a = chain({"f.0": 1.0})
    proof = Proof(2, (0,), 1, (ProofStep("f.0", 1, (0,), False, ((0.0, 3.0),), ((0.0, 2.0),)),))
    assert attribute(replace(a, proof=proof), a) == pytest.approx({"f.0": LN10 - 2.0})

"""Totals are products over layers in decimal logs."""

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from normgauge.monitor.sheet import log10_product, product_totals


def test_totals_multiply_what_each_layer_has() -> None:
    rows = [
        {"norm_upper": 10.0, "norm_lower": 5.0, "folded": 3.0, "gradient": 3.0},
        {"sigma_min": 0.1, "sigma_rms": 1.0, "sigma_max": 10.0, "gain": 7.0},
        {"norm_upper": 100.0, "norm_lower": 50.0, "folded": 2.0, "gradient": 4.0},
        {"sigma_min": 0.01, "sigma_rms": 10.0, "sigma_max": 10.0, "gain": 5.0},
    ]
    found = product_totals(rows, [0, 2], [1, 3], [3])
    assert found["log10_P_w"] == pytest.approx(3.0)
    assert found["log10_P_w_lower"] == pytest.approx(math.log10(250.0))
    assert found["log10_prod_inv_sigma_min"] == pytest.approx(3.0)
    assert found["log10_prod_inv_sigma_rms"] == pytest.approx(-1.0)
    assert found["log10_prod_inv_sigma_max"] == pytest.approx(-2.0)
    assert found["log10_folded"] == pytest.approx(math.log10(30.0))
    assert found["gradient"] == pytest.approx(5.0)


def test_products_of_ends_are_on_their_side_of_what_the_ends_multiply_to() -> None:
    numbers = random.Random(0)
    for _ in range(200):
        ends = [numbers.uniform(0.1, 10) for _ in range(40)]
        found = product_totals([{"norm_upper": end, "norm_lower": end} for end in ends], range(40), [], [])
        exact = math.prod(map(Fraction, ends))
        with localcontext() as context:
            context.prec = 40
            log = (Decimal(exact.numerator) / Decimal(exact.denominator)).log10()
        assert Decimal(found["log10_P_w_lower"]) < log < Decimal(found["log10_P_w"])
        assert found["log10_P_w"] - found["log10_P_w_lower"] < 1e-10


def test_nothing_measured_has_no_total() -> None:
    assert set(product_totals([{}], [], [], []).values()) == {None}


def test_a_product_with_a_missing_factor_is_not_given() -> None:
    rows = [{"norm_upper": 2.0, "norm_lower": 1.0, "folded": 1.0}, {}, {"sigma_min": 1.0}, {}]
    found = product_totals(rows, [0, 1], [2, 3], [])
    assert set(found.values()) == {None}
    assert product_totals(rows, [0], [2], [])["log10_P_w"] == pytest.approx(math.log10(2.0))


@pytest.mark.parametrize(
    ("factors", "expected"),
    [([0.0, math.inf], math.inf), ([0.0, 2.0], -math.inf), ([math.inf], math.inf), ([10.0, 10.0], 2.0)],
    ids=["absorbs", "zero", "infinite", "plain"],
)
def test_products_at_the_edges(factors: list[float], expected: float) -> None:
    assert log10_product(factors) == expected


def test_no_number_stays_none() -> None:
    assert math.isnan(log10_product([math.nan, math.inf]))
    assert math.isnan(log10_product([-1.0]))

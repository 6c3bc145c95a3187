from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from normgauge.instrument.testing import check_rule
from tests.cases import weight
from tests.instrument.rules.one_step import bound, check, last


@pytest.mark.parametrize("constant", [100.0, weight(3)], ids=["number", "tensor"])
def test_a_constant_over_a_branch_is_bounded_by_the_branch(constant):
    """torch names `2 / x` __rdiv__, so that it must not be read as x / 2."""
    check_rule(lambda x: constant / (1 + x.sigmoid()), (2, 3))
    transfer, _ = last(lambda x: 100 / (1 + x.sigmoid()), weight(1, 3))
    assert math.exp(float(transfer.gains[0].log)) == pytest.approx(100.0, rel=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / (1 + x.sigmoid().flip(1)),
        lambda x: F.scaled_dot_product_attention(x.tanh(), weight(2, 3, 4), x),
        lambda x: x.reshape(2, 4, 3) @ x.tanh(),
        lambda x: x * x.tanh().flip(1),
    ],
    ids=["quotient", "attention", "matmul", "product"],
)
def test_what_has_no_bound_is_not_a_large_number(function):
    """An infinite size must stay infinite, not become the largest float, whose logarithm passes for a bound."""
    transfer, _ = last(function, weight(2, 3, 4))
    assert transfer.no_bound and bound(function, weight(2, 3, 4)) == math.inf
    check(function, weight(2, 3, 4), "ball:0.1")


def test_the_range_of_a_logarithm_of_softmax_has_no_end_everywhere():
    _, flow = last(lambda x: torch.log_softmax(x, -1), weight(2, 3))
    assert flow.low.tolist() == [-math.inf]


@pytest.mark.parametrize("correction", [0, 1, 3, 3.5, 3.99])
def test_a_deviation_with_any_correction(correction):
    upper = check(lambda x: x.std(-1, correction=correction), weight(1, 4))
    assert upper == pytest.approx(1 / math.sqrt(4 - correction), rel=1e-8)


@pytest.mark.parametrize("number", [0.1, 3.3, 1 / 3])
def test_a_plain_number_keeps_all_its_digits(number):
    for function in (lambda x: x * number, lambda x: x / (1 / number)):
        assert number <= bound(function, weight(2, 3)) <= number * (1 + 1e-8)

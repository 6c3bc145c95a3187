from __future__ import annotations

import math
import random

import pytest
from scipy.stats import beta, binom

from normgauge.certificates.bounds.holdout import (
    clopper_pearson,
    disagreement,
    hoeffding,
    kl_holdout,
    log_binomial_below,
)


def test_clopper_pearson_is_the_beta_quantile() -> None:
    rng = random.Random(0)
    for _ in range(200):
        n = rng.choice([1, 5, 30, 1000, 60_000])
        k = min(n - 1, int(rng.random() ** 3 * n))
        delta = rng.choice([0.5, 0.05, 1e-6])
        assert clopper_pearson(k, n, math.log(delta)) == pytest.approx(beta.ppf(1 - delta, k + 1, n - k), rel=1e-9)


def test_tiny_deltas_are_logarithms() -> None:
    """A compression scheme spends δ far below the smallest float."""
    value = clopper_pearson(0, 1000, -2000.0)
    assert value == pytest.approx(-math.expm1(-2.0), rel=1e-9)
    assert clopper_pearson(3, 3, math.log(0.05)) == 1.0


def test_tails() -> None:
    for k, n, p in ((3, 10, 0.5), (9, 10, 0.2), (0, 5, 0.9), (70, 100, 0.6)):
        assert log_binomial_below(k, n, p) == pytest.approx(binom.logcdf(k, n, p), rel=1e-9, abs=1e-12)
    assert log_binomial_below(5, 5, 0.3) == 0.0
    assert log_binomial_below(2, 5, 0.0) == 0.0
    assert log_binomial_below(2, 5, 1.0) == -math.inf


def test_published_hold_outs() -> None:
    """About 199 of 10,000 wrong: the hold-out row of MNIST is .0224."""
    assert clopper_pearson(199, 10_000, math.log(0.05)) == pytest.approx(0.0224, abs=1e-4)
    assert kl_holdout(0.0199, 10_000, 0.05) > clopper_pearson(199, 10_000, math.log(0.05))
    assert hoeffding(0.1, 100, 0.05) == pytest.approx(0.1 + math.sqrt(math.log(20) / 200))


def test_two_parts_add_up() -> None:
    found = disagreement(0.0061, 42, 10_000, 0.025)
    assert dict(found.terms)["disagreement"] == pytest.approx(beta.isf(0.025, 43, 10_000 - 42), rel=1e-8)
    assert found.value == pytest.approx(0.0061 + dict(found.terms)["disagreement"], rel=1e-12)
    assert disagreement(0.0061, 43, 10_000, 0.025).value > found.value
    assert disagreement(0.0061, 42, 10_000, 0.03).value < found.value

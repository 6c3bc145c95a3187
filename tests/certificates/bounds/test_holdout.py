import math
import random

import pytest
from scipy.stats import beta, binom

from normgauge.certificates.bounds.holdout import clopper_pearson, hoeffding, kl_holdout, log_binomial_below
from normgauge.certificates.bounds.kl import kl_inverse, small_kl


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


def test_the_inverse_inverts() -> None:
    for q in (0.0, 0.01, 0.3, 0.9):
        for c in (1e-6, 0.01, 1.0):
            p = kl_inverse(q, c)
            assert small_kl(q, p) == pytest.approx(c, rel=1e-5)
            assert q <= p
    assert kl_inverse(0.99, 1.0) == 1.0  # 1 − p is below the spacing of floats: rounded up
    assert kl_inverse(1.0, 0.1) == kl_inverse(0.4, math.inf) == kl_inverse(1.7, 0.1) == 1.0
    assert small_kl(1.0, 0.0) == small_kl(0.5, 0.0) == math.inf
    assert small_kl(1.0, 0.25) == pytest.approx(math.log(4))


def test_published_hold_outs() -> None:
    """About 199 of 10,000 wrong: the hold-out row of MNIST is .0224."""
    assert clopper_pearson(199, 10_000, math.log(0.05)) == pytest.approx(0.0224, abs=1e-4)
    assert kl_holdout(0.0199, 10_000, 0.05) > clopper_pearson(199, 10_000, math.log(0.05))
    assert hoeffding(0.1, 100, 0.05) == pytest.approx(0.1 + math.sqrt(math.log(20) / 200))

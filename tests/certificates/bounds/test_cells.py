from __future__ import annotations

import math

import numpy as np
import pytest

from normgauge.certificates.bounds.cells import (
    entropy_radius,
    kl_cells,
    mean_walk,
    robust_bound,
    tau_chernoff,
    tau_published,
    tau_rademacher,
    tau_variation,
    tau_xu_mannor,
)
from normgauge.certificates.bounds.parts import Parts

M = 50_000


@pytest.mark.parametrize(
    ("cells", "published", "rademacher", "variation"),
    [
        (1, 0.0251, 0.0254, 0.0068),
        (10, 0.0972, 0.0331, 0.0135),
        (100, 0.379, 0.0575, 0.0290),
        (1000, 1.68, 0.134, 0.0775),
        (10_000, 9.92, 0.397, 0.230),
    ],
)
def test_the_table_of_the_theory(cells: int, published: float, rademacher: float, variation: float) -> None:
    """m = 50,000, δ = .01, every cell met: three digits."""
    even = [M // cells] * cells
    assert tau_published(cells, cells, M, 0.01) == pytest.approx(published, rel=5e-3)
    assert tau_rademacher(even, 0.01) == pytest.approx(rademacher, rel=5e-3)
    assert tau_variation(cells, M, 0.01) == pytest.approx(variation, rel=8e-3)


@pytest.mark.parametrize(
    ("cells", "met", "published", "variation"),
    [(10, 10, 0.086, 0.012), (100, 98, 0.340, 0.028), (1000, 746, 1.276, 0.076), (10_000, 2964, 3.640, 0.229)],
)
def test_slacks_seen_on_real_cells(cells: int, met: int, published: float, variation: float) -> None:
    assert tau_published(met, cells, M, 0.05) == pytest.approx(published, abs=6e-4)
    assert tau_variation(cells, M, 0.05) == pytest.approx(variation, abs=6e-4)


def test_mean_walk_is_the_mean_of_a_walk() -> None:
    for k in (1, 2, 5, 8):
        walks = [abs(sum(1 if bits >> i & 1 else -1 for i in range(k))) for bits in range(2**k)]
        assert mean_walk(k) == pytest.approx(sum(walks) / 2**k, rel=1e-12)
    assert mean_walk(59) < mean_walk(61) < math.sqrt(61)
    assert mean_walk(61) == pytest.approx(math.sqrt(2 * 61 / math.pi), rel=0.01)


def test_chernoff_is_below_the_published_slack() -> None:
    counts = [3, 10, 200, 1]
    assert tau_chernoff(counts, 9, 0.05) <= tau_published(4, 9, sum(counts), 0.05)
    assert tau_chernoff(counts, 9, 0.05) == pytest.approx(
        sum(math.sqrt(2 * k * math.log(9 / 0.05)) for k in counts) / 214
    )


def test_entropy_radius_solves_its_equation() -> None:
    cells, m, delta = 12, 3000, 0.03
    e = entropy_radius(cells, m, delta)
    assert e > (cells - 1) / m
    log_tail = -m * e + (cells - 1) * (1 + math.log(e * m / (cells - 1)))
    assert log_tail == pytest.approx(math.log(delta), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_form_is_broken_more_often_than_it_may(seed: int) -> None:
    """The worst model is chosen after the draw: all wrong where the source has more than the sample."""
    rng = np.random.default_rng(seed)
    cells, m, trials, delta = 12, 200, 2000, 0.1
    p = rng.dirichlet(np.ones(cells))
    counts = rng.multinomial(m, p, size=trials)
    gaps = np.abs(p - counts / m).sum(1) / 2
    rademacher = np.array([tau_rademacher(row[row > 0].tolist(), delta) for row in counts])
    published = np.array([tau_published(int((row > 0).sum()), cells, m, delta) for row in counts])
    for tau in (tau_variation(cells, m, delta), rademacher, published):
        assert (gaps > tau).mean() <= delta
    assert (gaps > tau_variation(cells, m, delta) / 2).mean() > delta  # the check can fail
    model = rng.random((trials, cells)) < 0.2
    model |= p > counts / m
    seen, true = (model * counts / m).sum(1), (model * p).sum(1)
    broken = sum(t > kl_cells(s, cells, m, delta) for s, t in zip(seen, true, strict=True))
    assert broken <= delta * trials


def xu_mannor(loss: float, change: float, cells: int, m: int, delta: float, limit: float = 1.0) -> Parts:
    return robust_bound(loss, change, tau_xu_mannor(cells, m, delta), limit)


def kawaguchi(loss: float, change: float, met: int, cells: int, m: int, delta: float, limit: float = 1.0) -> Parts:
    return robust_bound(loss, change, tau_published(met, cells, m, delta), limit)


def test_xu_mannor_by_hand() -> None:
    found = xu_mannor(0.05, 0.1, 100, 50_000, 0.05, limit=2.0)
    assert dict(found.terms)["cells"] == pytest.approx(2 * math.sqrt((200 * math.log(2) + 2 * math.log(20)) / 50_000))
    assert found.value == pytest.approx(0.15 + dict(found.terms)["cells"])


def test_monotone() -> None:
    base = kawaguchi(0.1, 0.1, 50, 100, 10_000, 0.05).value
    assert kawaguchi(0.2, 0.1, 50, 100, 10_000, 0.05).value == pytest.approx(base + 0.1)
    assert kawaguchi(0.1, 0.2, 50, 100, 10_000, 0.05).value == pytest.approx(base + 0.1)
    assert kawaguchi(0.1, 0.1, 51, 100, 10_000, 0.05).value > base
    assert kawaguchi(0.1, 0.1, 50, 101, 10_000, 0.05).value > base
    assert kawaguchi(0.1, 0.1, 50, 100, 10_001, 0.05).value < base
    assert xu_mannor(0.1, 0.1, 101, 10_000, 0.05).value > xu_mannor(0.1, 0.1, 100, 10_000, 0.05).value

import math

import numpy as np
import pytest
import torch

from normgauge.certificates.bounds.distances import from_holdout, paired_distance
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.spread import spread_of


def test_by_hand() -> None:
    log = math.log(2 / 0.1)
    root = math.sqrt(2 * log) + math.sqrt(2 * log + 30.0)
    assert paired_distance(50.0, 30.0, 7, 1000, 0.1) == pytest.approx((57 + root * math.sqrt(2 * log) + log) / 1000)
    assert paired_distance(5000.0, 5000.0, 0, 1000, 0.1) == 1.0


def test_slack_against_mcdiarmid() -> None:
    """m = 50,000: pairs and Bernstein cost about a tenth of 3R√(ln(1/δ)/2m)."""
    m, distance = 50_000, 0.05
    slack = paired_distance(m * distance, 2 * m * distance**2, 0, m, 0.025) - distance
    plain = 3 * 2.0 * math.sqrt(math.log(1 / 0.025) / (2 * m))  # McDiarmid, R = 2
    assert plain == pytest.approx(0.036, abs=1e-3)
    assert slack < plain / 10


@pytest.mark.parametrize("seed", range(4))
def test_the_true_term_is_rarely_above(seed: int) -> None:
    """Points on a line with three cells; the true mean change is known from a fine grid of the source."""
    rng = np.random.default_rng(seed)
    m, delta, steep, trials = 60, 0.2, 3.0, 300
    atoms = np.sort(rng.random(40)) * np.array([1.0] * 20 + [2.0] * 20)
    p = rng.dirichlet(np.ones(40) * 0.4)
    cell = np.digitize(atoms, [0.3, 0.9])
    change = np.minimum(1, steep * np.abs(atoms[:, None] - atoms))
    same = (cell[:, None] == cell) * p
    psi = (change * same).sum(1) / same.sum(1).clip(1e-300)
    broken = 0
    for trial in range(trials):
        picks = rng.choice(40, size=m, p=p)
        points = DataSample(torch.tensor(atoms[picks])[:, None], torch.zeros(m, dtype=torch.long))
        found = spread_of(points, torch.tensor(cell[picks]), seed=trial)
        true = psi[picks].mean()
        broken += true > found.upper(steep, delta)
    assert broken <= delta * trials


def test_from_holdout_by_hand() -> None:
    value = from_holdout([0.5, 0.3, 0.2], [0.1, 0.2, 0.0], [10, 5, 0], [1.0, 2.0, 3.0], 0.05)
    spread = 0.5**2 / 10 + (0.3 * 2) ** 2 / 5
    assert value == pytest.approx(0.05 + 0.06 + math.sqrt(math.log(20) / 2 * spread) + 0.6)


def test_the_bare_mean_is_often_too_small() -> None:
    """Without its slack the estimate is broken about half of the time: the slack is what makes it a bound."""
    rng = np.random.default_rng(0)
    broken = 0
    for trial in range(300):
        x = rng.random(20)
        found = spread_of(DataSample(torch.tensor(x)[:, None], None), torch.zeros(20, dtype=torch.long), seed=trial)
        true = np.mean((x**2 + (1 - x) ** 2) / 2)  # E|x − s| for x uniform
        broken += true > found.mean()
    assert 90 < broken < 210

from __future__ import annotations

import math

import pytest
import torch

from normgauge.certificates.gibbs.descent import to_shared_prior
from normgauge.certificates.gibbs.posterior import Gaussian, divergence
from tests.certificates.rows.made import gaussians


def test_the_shared_prior_is_at_its_best_variance() -> None:
    posterior, prior = gaussians()
    units = {"a": 0.5, "b": 1.0}
    best = float(to_shared_prior(prior.mean, units)(posterior.mean, posterior.width))
    values = []
    for step in range(-300, 300):
        spread = math.exp(step / 100)
        width = {name: torch.tensor(spread * units[name], dtype=torch.float64) for name in units}
        values.append(divergence(posterior, Gaussian(prior.mean, width)))
    assert min(values) == pytest.approx(best, rel=1e-4)

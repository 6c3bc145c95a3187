from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from normgauge.certificates.gibbs.descent import to_fixed_prior
from normgauge.certificates.gibbs.posterior import GRID, Gaussian, divergence, grid_divergence
from tests.certificates.rows.made import gaussians


def test_the_divergence_is_that_of_torch() -> None:
    posterior, prior = gaussians()
    right = sum(
        float(
            kl_divergence(
                Normal(posterior.mean[name].double(), posterior.width[name].double()),
                Normal(prior.mean[name].double(), prior.width[name].double()),
            ).sum()
        )
        for name in ("a", "b")
    )
    assert right <= divergence(posterior, prior) <= right * (1 + 1e-8)
    assert float(to_fixed_prior(prior)(posterior.mean, posterior.width)) == pytest.approx(right, rel=1e-5)


def test_the_best_width_of_the_grid_is_taken_and_paid_for() -> None:
    posterior, prior = gaussians()
    found = grid_divergence(posterior, prior.mean)
    best = 0.0
    for name in posterior.mean:
        one = Gaussian({name: posterior.mean[name]}, posterior.width)
        wide = [Gaussian(prior.mean, {name: torch.tensor(scale, dtype=torch.float64)}) for scale in GRID]
        best += min(divergence(one, prior) for prior in wide)
    assert found == pytest.approx(best + 2 * math.log(121), rel=1e-7)


def wide(classes: int = 2) -> nn.Sequential:
    """So many weights that no sample of this size pays for their noise."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 3000), nn.ReLU(), nn.Linear(3000, classes)).eval()

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from normgauge.instrument.probe import linearize, screen
from normgauge.instrument.probe.screen import focused_search


@pytest.fixture(scope="module")
def steep() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network with seven outputs, forty samples, and the norms of their Jacobians."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 7)).double()
    x = torch.randn(40, 6, dtype=torch.float64)
    truth = torch.stack([torch.linalg.matrix_norm(torch.func.jacrev(model)(row), 2) for row in x])
    return model, x, truth.detach()


def test_where_it_is_cheap_every_samples_jacobian_is_computed(steep):
    model, x, truth = steep
    found = focused_search(model, x, 40, 0.0)
    assert torch.allclose(found.log_lower.exp(), truth, rtol=1e-6)
    assert found.witness == f"jacobian at sample {int(truth.argmax())}"


def test_where_it_is_not_the_rest_keep_a_rough_slope_below_the_truth(steep, monkeypatch):
    model, x, truth = steep
    monkeypatch.setattr(screen, "BUDGET", 0.0)
    found = focused_search(model, x, 40, 0.0)
    assert (found.log_lower.exp() <= truth * (1 + 1e-9)).all()
    assert int((found.log_lower.exp() < 0.999 * truth).sum()) > 20
    assert found.log_best >= math.log(0.9 * float(truth.max()))


def test_known_slopes_are_a_floor_that_no_sample_is_told_below(steep, monkeypatch):
    model, x, truth = steep
    monkeypatch.setattr(screen, "BUDGET", 0.0)
    floor = (truth * (1 - 1e-9)).log()
    found = focused_search(model, x, 40, 0.0, floor=floor)
    assert (found.log_lower >= floor).all() and (found.log_lower.exp() <= truth * (1 + 1e-9)).all()
    assert found.witness == f"jacobian at sample {int(truth.argmax())}"


def test_a_ball_is_searched_from_the_steepest_samples(steep):
    model, x, truth = steep
    found = focused_search(model, x, 40, 0.1, steps=16)
    assert found.log_best >= math.log(float(truth.max())) - 1e-6
    assert (found.log_lower.exp() >= truth * (1 - 1e-6)).all()


def test_few_samples_are_searched_as_they_are(steep):
    model, x, truth = steep
    assert torch.allclose(focused_search(model, x[:5], 5, 0.0).log_lower.exp(), truth[:5], rtol=1e-6)


@pytest.mark.parametrize("radius", [0.0, math.inf])
def test_single_precision_tells_no_sample_more_than_was_confirmed(steep, monkeypatch, radius):
    model, x, truth = steep
    monkeypatch.setattr(screen, "BUDGET", 0.0)
    monkeypatch.setattr(linearize, "WORTH", 0.0)
    asked: list[int] = []

    def exaggerating(points):
        asked.append(len(points))
        return 100 * model(points.double())

    found = focused_search(model, x, 40, radius, steps=8, quick=lambda: nullcontext(exaggerating))
    assert (40 in asked) == (radius > 0)  # at the samples themselves a slope of another precision may be another's
    limit = truth if radius == 0 else torch.tensor(found.log_best).exp()
    assert (found.log_lower.exp() <= limit * (1 + 1e-9)).all() and found.log_best < math.log(10 * float(truth.max()))

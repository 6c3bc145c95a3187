"""Layers whose second derivative torch gets wrong or does not have: against differences of the loss itself."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import normgauge as ng


def old(norm: Callable[..., nn.Module], layer: nn.Module, **options: int | None) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have its parametrizations used
        return norm(layer, **options)


def headed(layer: nn.Module, *between: nn.Module) -> nn.Module:
    return nn.Sequential(layer, *between, nn.Tanh(), nn.Flatten(), nn.Linear(4, 2))


MADE: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: headed(parametrizations.weight_norm(nn.Linear(3, 4))),
    "weight norm of columns": lambda: headed(parametrizations.weight_norm(nn.Linear(3, 4), dim=1)),
    "weight norm of the whole": lambda: headed(parametrizations.weight_norm(nn.Linear(3, 4), dim=None)),
    "weight norm of a kernel": lambda: headed(
        nn.Unflatten(1, (1, 3)), parametrizations.weight_norm(nn.Conv1d(1, 2, 2))
    ),
    "weight norm by hooks": lambda: headed(old(nn.utils.weight_norm, nn.Linear(3, 4))),
    "weight norm by hooks, whole": lambda: headed(old(nn.utils.weight_norm, nn.Linear(3, 4), dim=None)),
    "spectral norm": lambda: headed(parametrizations.spectral_norm(nn.Linear(3, 4))),
    "spectral norm by hooks": lambda: headed(old(nn.utils.spectral_norm, nn.Linear(3, 4))),
    "orthogonal": lambda: headed(nn.Linear(3, 4), parametrizations.orthogonal(nn.Linear(4, 4))),
    "hardsigmoid": lambda: headed(nn.Linear(3, 4), nn.Hardsigmoid()),
    "RMSNorm": lambda: headed(nn.Linear(3, 4), nn.RMSNorm(4)),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(1)
    model = MADE[name]()
    model(torch.randn(8, 3))  # spectral normalization takes its first steps
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


def by_differences(model: nn.Module, x: Tensor, y: Tensor, step: float = 1e-3) -> Tensor:
    """The Hessian from values of the loss alone."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    here = torch.cat([p.detach().reshape(-1) for p in parameters])

    @torch.no_grad()
    def loss(at: Tensor) -> Tensor:
        for parameter, part in zip(parameters, at.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(part.view_as(parameter))
        return F.cross_entropy(model(x), y)

    hessian = torch.zeros(len(here), len(here), dtype=here.dtype)
    moves = step * torch.eye(len(here), dtype=here.dtype)
    for i, j in itertools.combinations_with_replacement(range(len(here)), 2):
        a, b = moves[i], moves[j]
        second = loss(here + a + b) - loss(here + a - b) - loss(here - a + b) + loss(here - a - b)
        hessian[i, j] = hessian[j, i] = second / (4 * step**2)
    loss(here)
    return hessian


@pytest.mark.parametrize("name", MADE)
def test_the_hessian_is_that_of_the_loss(name):
    model = made(name)
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.arange(8) % 2
    true = torch.linalg.eigvalsh(by_differences(model, x, y))
    found = ng.curvature(model, F.cross_entropy, [(x, y)], dtype=torch.float64)
    size = float(true.abs().max())
    assert found.eigenvalues[0].value == pytest.approx(float(true[-1]), abs=1e-4 * size)
    assert found.smallest.value == pytest.approx(float(true[0]), abs=1e-4 * size)
    assert found.trace.value == pytest.approx(float(true.sum()), abs=4 * found.trace.standard_error + 1e-3 * size)


def test_what_has_no_second_derivative_is_refused_by_name():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))
    data = [(torch.randn(8, 3), torch.arange(8) % 4)]
    for loss in (F.multi_margin_loss, lambda out, y: torch.cdist(out, out.detach() + 1).mean()):
        with pytest.raises(ng.NormgaugeError, match="no second derivative"):
            ng.curvature(model, loss, data)

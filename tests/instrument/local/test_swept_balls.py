"""Slopes found by ascent in a ball stay below its bound, and t of every unit below what the reach says."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.session import Options, opened


class Residual(nn.Module):
    """A convolution, a block with a shortcut, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.block = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
        )
        self.last = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.last(torch.relu(x + self.block(x))[:, :, ::2, ::2].flatten(1))


def dense(activation: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 16), activation(), nn.Linear(16, 16), nn.LayerNorm(16), activation(), nn.Linear(16, 4)
    )


NETS: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "relu": lambda: dense(nn.ReLU),
    "gelu": lambda: dense(nn.GELU),
    "hardtanh": lambda: dense(nn.Hardtanh),
}


def built(name: str, seed: int) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = NETS[name]().eval()
        x = torch.randn(1, 2, 8, 8) if name == "residual" else torch.randn(1, 12)
    for parameter in model.parameters():
        parameter.data *= 1.5
    return model, x


def swept(model: nn.Module, x: Tensor, radius: float) -> Swept:
    with opened(model, x, Options(search=False)) as session, torch.no_grad():
        parts = session.composed(Scope.parse("point"))
        return swept_ball(session.trace, parts, 0, radius, session.native, 1)


def slope_at(model: nn.Module, x: Tensor) -> Tensor:
    jacobian = torch.autograd.functional.jacobian(lambda z: model(z).flatten(), x, create_graph=True)
    return torch.linalg.matrix_norm(jacobian.reshape(jacobian.shape[0], -1), 2)


def steepest(model: nn.Module, x: Tensor, radius: float, seed: int) -> float:
    """The largest slope at points of the ball, by short walks to the next linear piece and along the slope's rise."""
    generator = torch.Generator().manual_seed(seed)
    best = 0.0
    for _ in range(6):
        way = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        for size in (0.3, 0.7, 1.0):
            point = (x + 0.999 * size * radius * way / way.norm()).requires_grad_(True)
            slope = slope_at(model, point)
            best = max(best, float(slope.detach()))
            if slope.requires_grad:
                (rise,) = torch.autograd.grad(slope, point, allow_unused=True)
                if rise is not None and float(rise.norm()) > 0:
                    way = way / way.norm() + rise / rise.norm()
    return best


@pytest.mark.parametrize("name", list(NETS))
@pytest.mark.parametrize("radius", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_slopes_found_stay_below(name: str, radius: float, seed: int) -> None:
    model, x = built(name, seed)
    found = swept(model, x, radius)
    double = model.double()
    low = steepest(double, x.double(), radius, seed)
    for bound in (found.bound(), found.improved(1e-3, 40).bound()):
        assert low <= bound < math.inf


@pytest.mark.parametrize("name", list(NETS))
def test_small_balls_hold_little_more_than_the_sample(name: str) -> None:
    model, x = built(name, 0)
    found = swept(model, x, 1e-5).improved(1e-3, 40).bound()
    here = float(slope_at(model.double(), x.double()).detach())
    assert here <= found <= 1.01 * here


def test_values_err_by_rounding_alone_however_many_units_are_open() -> None:
    """An open unit once passed half of its input's error on as its own, which many layers made large."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [m for _ in range(12) for m in (nn.Linear(16, 16), nn.ReLU())]
        model, x = nn.Sequential(*layers, nn.Linear(16, 3)).eval(), torch.randn(1, 16)
    for layer in model[::2]:
        nn.init.orthogonal_(layer.weight, gain=2**0.5, generator=torch.Generator().manual_seed(3))
    still, moving = swept(model, x, 1e-9), swept(model, x, 0.3)
    assert not len(still.units.rows)
    assert len(moving.units.rows) > 20
    assert moving.value_error <= 2 * still.value_error

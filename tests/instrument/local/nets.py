"""Random networks whose every step the local engine follows, and slopes of them found with torch alone."""

from __future__ import annotations

import math
from random import Random

import torch
from torch import Tensor, nn

from normgauge.instrument.trace.true_slopes import TrueSlopes

ACTIVATIONS = [nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.ReLU6, nn.Hardtanh, nn.ELU, nn.Sigmoid, nn.Hardswish, nn.Mish]
ACTIVATIONS += [lambda: nn.LeakyReLU(-0.5), lambda: nn.LeakyReLU(2.0), nn.Softplus, nn.PReLU, nn.Softshrink, nn.SELU]
ACTIVATIONS += [lambda: nn.GELU("tanh"), nn.CELU, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink, nn.Hardsigmoid]


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Parallel(nn.Module):
    """Branches side by side that meet by a difference, a sum or a concatenation."""

    def __init__(self, width: int, rng: Random) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(width, width), rng.choice(ACTIVATIONS)())
        self.right = nn.Sequential(nn.Linear(width, width), rng.choice(ACTIVATIONS)())
        self.last, self.how = nn.Linear(2 * width, width), rng.choice(["sub", "add", "cat"])

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.left(x), self.right(x)
        if self.how == "cat":
            return self.last(torch.cat([left, right], 1))
        return left - right if self.how == "sub" else left + right


def dense_net(rng: Random, width: int = 6) -> nn.Module:
    norms = [
        lambda: nn.LayerNorm(width), lambda: nn.RMSNorm(width, eps=1e-5), lambda: nn.GroupNorm(2, width),
        lambda: nn.LayerNorm(width, eps=0.1), lambda: nn.BatchNorm1d(width), nn.Identity,
    ]  # fmt: skip
    layers: list[nn.Module] = [nn.Linear(4, width)]
    for _ in range(rng.randint(1, 3)):
        block = nn.Sequential(rng.choice(norms)(), rng.choice(ACTIVATIONS)(), nn.Linear(width, width))
        layers.append(Residual(block) if rng.random() < 0.4 else block)
        if rng.random() < 0.4:
            layers.append(Parallel(width, rng))
    return nn.Sequential(*layers, rng.choice(ACTIVATIONS)(), nn.Linear(width, 3))


def conv_net(rng: Random) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1, stride=rng.choice([1, 2])),
        rng.choice([nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 4), nn.Identity()]),
        rng.choice(ACTIVATIONS)(),
        nn.Conv2d(4, 4, 3, padding=1, groups=rng.choice([1, 2])),
        rng.choice([nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)]),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


def random_case(seed: int) -> tuple[nn.Module, Tensor, float]:
    """A network in eval mode, one sample, and a radius."""
    rng = Random(seed)
    torch.manual_seed(seed)
    model, size = (dense_net(rng), 4) if seed % 3 else (conv_net(rng), 16)
    x = torch.randn(1, size) * rng.choice([0.1, 1.0, 5.0])
    model.eval()(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * rng.choice([0.1, 0.5]))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.2, 3.0)
    return model, x, 10 ** rng.uniform(-3, 0.5)


def jacobian_norm(model: nn.Module, x: Tensor) -> float:
    """‖J‖ of a float64 model at one point."""
    leaf = x.detach().clone().requires_grad_()
    with TrueSlopes():
        out = model(leaf).reshape(-1)
    rows = torch.stack([torch.autograd.grad(y, leaf, retain_graph=True)[0].reshape(-1) for y in out])
    return float(torch.linalg.matrix_norm(rows, 2))


def steepest(model: nn.Module, x: Tensor, radius: float, tries: int, seed: int = 0) -> float:
    """The largest Jacobian norm met in a ball: at random, then by small moves from the best."""
    generator = torch.Generator().manual_seed(seed)
    reach, best, place = min(radius, 30.0), jacobian_norm(model, x), x
    for k in range(tries):
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        step = reach * noise / noise.norm() * (1.0 if k < tries // 2 else 10 ** (-3 * k / tries))
        there = (x if k < tries // 2 else place) + step * float(torch.rand((), generator=generator))
        away = float((there - x).norm())
        if away > radius and math.isfinite(radius):
            there = x + (there - x) * (radius * (1 - 1e-12) / away)
        found = jacobian_norm(model, there)
        if found > best:
            best, place = found, there
    return best

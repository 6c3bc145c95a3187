"""Random networks whose every step the local engine follows, and slopes of them found with torch alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn

from normgauge.instrument.trace.true_slopes import TrueSlopes

ACTIVATIONS = [nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.ReLU6, nn.Hardtanh, nn.ELU, nn.Sigmoid, nn.Hardswish, nn.Mish]
ACTIVATIONS += [lambda: nn.LeakyReLU(-0.5), lambda: nn.LeakyReLU(2.0), nn.Softplus, nn.PReLU, nn.Softshrink, nn.SELU]
ACTIVATIONS += [lambda: nn.GELU("tanh"), nn.CELU, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink, nn.Hardsigmoid]


class Fn(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


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


class Gate(nn.Module):
    """Products of a value with what is made of it, and softmaxes of it."""

    WAYS = ("swiglu", "glu", "square", "softmax", "own softmax", "squeeze", "log", "softmin", "chain", "matrix")

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(width, width) for _ in range(3))
        self.wide, self.how = nn.Linear(width, 2 * width), how

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x), self.second(x)
        return {
            "swiglu": lambda: self.last(nn.functional.silu(a) * b),
            "glu": lambda: nn.functional.glu(self.wide(x), -1),
            "square": lambda: self.last(x * x) + b,
            "softmax": lambda: self.last(a.softmax(-1) * b),
            "own softmax": lambda: x * x.softmax(-1),
            "squeeze": lambda: x * b.mean(-1, keepdim=True).sigmoid(),
            "log": lambda: self.last(torch.log_softmax(a, -1)),
            "softmin": lambda: nn.functional.softmin(b, -1) - a,
            "chain": lambda: (a * b) * self.last(b * x),
            "matrix": lambda: (a.unsqueeze(-1) @ b.unsqueeze(-2)).sum(-1) * 0.5,
        }[self.how]()


class Attention(nn.Module):
    """Self-attention of tokens as torch has it, written out with matmul, or with einsum; causal or not."""

    WAYS = ("module", "matmul", "einsum", "causal")

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.whole = nn.MultiheadAttention(width, 2, batch_first=True)
        self.first, self.second, self.third = (nn.Linear(width, width) for _ in range(3))
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "module":
            return self.whole(x, x, x, need_weights=False)[0]
        q, k, v = self.first(x), self.second(x), self.third(x)
        if self.how == "causal":
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.how == "matmul":
            return (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v
        return torch.einsum("bqk,bkd->bqd", torch.einsum("bqd,bkd->bqk", q, k).softmax(-1), v)


class Squeezed(nn.Module):
    """Squeeze and excitation of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, 2), nn.Linear(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
        return x * gate[:, :, None, None]


def product_net(rng: Random) -> tuple[nn.Module, tuple[int, ...]]:
    """A network with products or softmaxes beside other kinds, and the shape of its input."""
    kind, width = rng.choice(["dense", "dense", "tokens", "image"]), 4
    if kind == "image":
        layers = [nn.Conv2d(1, 3, 3, padding=1), rng.choice(ACTIVATIONS)(), Squeezed(3), nn.Flatten(), nn.Linear(27, 3)]
        return nn.Sequential(*layers), (1, 3, 3)
    norms = [nn.Identity, lambda: nn.LayerNorm(width), lambda: nn.RMSNorm(width, eps=1e-3)]
    layers = [nn.Linear(3, width)]
    for _ in range(rng.randint(1, 2)):
        made = Attention(width, rng.choice(Attention.WAYS)) if kind == "tokens" else Gate(width, rng.choice(Gate.WAYS))
        block = nn.Sequential(rng.choice(norms)(), made)
        layers.append(Residual(block) if rng.random() < 0.5 else block)
        if kind == "dense" and rng.random() < 0.5:
            layers.append(Parallel(width, rng))
        if rng.random() < 0.5:
            layers.append(Residual(Gate(width, rng.choice(Gate.WAYS))))
        layers.append(rng.choice([nn.Identity, *ACTIVATIONS])())
    ends = [nn.Flatten(), nn.Linear(3 * width, 3)] if kind == "tokens" else [nn.Linear(width, 3)]
    return nn.Sequential(*layers, *ends), (3, 3) if kind == "tokens" else (3,)


def product_case(seed: int) -> tuple[nn.Module, Tensor, float]:
    """A network with products in eval mode, one sample, and a radius."""
    rng = Random(seed)
    torch.manual_seed(seed)
    model, shape = product_net(rng)
    x = torch.randn(1, *shape) * rng.choice([0.3, 1.0, 2.0])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * rng.choice([0.1, 0.4]))
    return model.eval(), x, 10 ** rng.uniform(-3, 0)

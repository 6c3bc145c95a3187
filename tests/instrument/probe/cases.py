"""Small networks with their dense Jacobians, the truth for everything in probe."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.instrument.probe.jacobian import random_rows, top_pair
from normgauge.instrument.probe.linearize import SampleMap


def jacobian_norms(function, x, samples, *, output_axis=0, **options) -> Tensor:
    """Lower bounds on the spectral norm of every sample's Jacobian at ``x``."""
    network = SampleMap(function, x, samples, output_axis)
    start = random_rows(network.start, torch.Generator().manual_seed(0))
    return top_pair(network.at(network.start), start, **options).sigma


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.reshape(*x.shape[:2], 2, 4).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Once(torch.autograd.Function):
    """Tanh that can be differentiated once only, as many custom kernels."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y)


class StraightThrough(torch.autograd.Function):
    """Rounds to integers and claims the slope 1."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 40), nn.Linear(40, 50)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(Once.apply(self.first(x)))


def _conv(norm: nn.Module, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        norm,
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(54, outputs),
    )


def _dense(norm: nn.Module, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), norm, nn.GELU(), nn.Linear(16, outputs))


def _batch_norm(channels: int, kind: type[nn.Module]) -> nn.Module:
    norm = kind(channels)
    norm.running_var.uniform_(0.2, 2.0)
    return norm


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain relu in place first": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(12, 5)), (12,)),
    "layer": (lambda: _dense(nn.LayerNorm(16), 5), (12,)),
    "rms, many outputs": (lambda: _dense(nn.RMSNorm(16), 60), (12,)),
    "batch 1d": (lambda: _dense(_batch_norm(16, nn.BatchNorm1d), 5), (12,)),
    "batch 2d": (lambda: _conv(_batch_norm(6, nn.BatchNorm2d), 5), (2, 6, 6)),
    "group": (lambda: _conv(nn.GroupNorm(2, 6), 5), (2, 6, 6)),
    "instance, many outputs": (lambda: _conv(nn.InstanceNorm2d(6), 70), (2, 6, 6)),
    "conv only, many outputs": (lambda: nn.Conv2d(2, 4, 3), (2, 6, 6)),
    "attention": (Attention, (5, 8)),
    "transformer layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (5, 8)),
    "differentiable once": (Custom, (12,)),
    "two inputs, many outputs": (lambda: nn.Sequential(nn.Linear(2, 30), nn.Tanh(), nn.Linear(30, 40)), (2,)),
}


def build(name: str, samples: int = 6) -> tuple[nn.Module, Tensor]:
    """The network in float64 and a batch; the caller's random state is left alone."""
    make, shape = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(name))
        network = make().double().eval()
        return network, torch.randn(samples, *shape, dtype=torch.float64)


def dense_norms(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Spectral norm of every sample's Jacobian by brute force."""
    rows = [torch.autograd.functional.jacobian(lambda row: function(row.clone()), row[None]) for row in x]
    return torch.stack(
        [torch.linalg.matrix_norm(j.reshape(-1, row.numel()), 2) for j, row in zip(rows, x, strict=True)]
    )


def relu_mlp() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)
        ).double()  # fmt: skip


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

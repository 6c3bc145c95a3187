"""Small networks to look for symmetries in: plain ones, and ones that are awkward to follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.lab.zoo import mlp
from normgauge.lab.zoo.parts import NormFactory
from normgauge.lab.zoo.resnet import BasicBlock


@dataclass(frozen=True, slots=True)
class Case:
    """A network, batches that tell its weights apart, and a mode."""

    name: str
    build: Callable[[], nn.Module]
    batches: Callable[[], list[Any]]
    mode: str = "train"


def vectors(size: int, samples: int = 60, count: int = 6) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randn(samples, size) for _ in range(count)]


def images(channels: int, side: int, samples: int = 40, count: int = 6) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randn(samples, channels, side, side) for _ in range(count)]


def tokens(vocabulary: int, length: int = 5, samples: int = 8, count: int = 10) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randint(0, vocabulary, (samples, length)) for _ in range(count)]


def act() -> nn.Module:
    return nn.LeakyReLU(0.1)


class Residual(nn.Module):
    """A stem, a branch with a normalizer before or after the sum, and a head."""

    def __init__(self, norm: Callable[[int], nn.Module], post: bool = False) -> None:
        super().__init__()
        self.stem, self.up, self.down = nn.Linear(8, 6), nn.Linear(6, 7), nn.Linear(7, 6)
        self.inner, self.outer, self.head, self.post = norm(6), norm(6), nn.Linear(6, 3), post

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        if self.post:
            h = self.inner(h + self.down(F.leaky_relu(self.up(h))))
        else:
            h = h + self.down(F.leaky_relu(self.up(self.inner(h))))
        return self.head(self.outer(h))


class Looped(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again, self.norm, self.head = (
            nn.Linear(8, 6),
            nn.Linear(6, 6),
            nn.BatchNorm1d(6),
            nn.Linear(6, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        h = F.leaky_relu(self.stem(x))
        for _ in range(2):
            h = F.leaky_relu(self.again(h))
        return self.head(self.norm(h))


class TiedDecoder(nn.Module):
    """A matrix and its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 7) / 3)
        self.norm = nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.norm(x @ self.weight.T)) @ self.weight


class Functional(nn.Module):
    """Normalizers called as functions, with and without weights."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.eps = kind, 1e-5
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 3)
        self.gain, self.shift = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.kind == "layer":
            h = F.layer_norm(h, (6,), self.gain, self.shift, self.eps)
        elif self.kind == "batch":
            h = F.batch_norm(h, None, None, self.gain, self.shift, True, 0.1, self.eps)
        elif self.kind == "rms by hand":
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps) * self.gain + self.shift
        elif self.kind == "layer by hand":
            centred = h - h.mean(-1, keepdim=True)
            h = centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.gain + self.shift
        elif self.kind == "length one":
            h = F.normalize(h, dim=-1) * self.gain + self.shift
        return self.second(F.leaky_relu(h))


class Einsum(nn.Module):
    """Two einsums with a matrix each, and a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(8, 2, 3)), nn.Parameter(torch.randn(2, 3, 4))
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.einsum("ni,ihd->nhd", x, self.first)
        h = F.leaky_relu(self.norm(h.flatten(1))).view(-1, 2, 3)
        return torch.einsum("nhd,hdo->no", h, self.second)


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Linear(width, 3), nn.Linear(3, width)

    def forward(self, x: Tensor) -> Tensor:
        pooled = x.mean((2, 3))
        gate = torch.sigmoid(self.excite(F.leaky_relu(self.squeeze(pooled))))
        return x * gate[:, :, None, None]


class Dense(nn.Module):
    """Channels put beside each other, as in a DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(6, 4, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(6)])
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.second(F.leaky_relu(self.norms[0](a)))
        h = self.third(F.leaky_relu(self.norms[1](torch.cat([a, b], 1))))
        return self.head(F.leaky_relu(h).mean((2, 3)))


class Attending(nn.Module):
    """nn.MultiheadAttention with a residual, a LayerNorm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.attention = nn.Linear(7, 6), nn.MultiheadAttention(6, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.stem(x))
        return self.head(F.gelu(h + self.attention(h, h, h, need_weights=False)[0]))


class Grouped(nn.Module):
    """Four heads of queries, two of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(6, 8), nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(8, 6)
        self.norm, self.head = nn.RMSNorm(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        def split(t: Tensor, heads: int) -> Tensor:
            return t.unflatten(-1, (heads, -1)).transpose(1, 2)

        q, k, v = split(self.q(x), 4), split(self.k(x), 2), split(self.v(x), 2)
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.head(F.gelu(self.norm(self.o(out.transpose(1, 2).flatten(2)))))


class Bag(nn.Module):
    """An EmbeddingBag under a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.mix, self.norm, self.head = (
            nn.EmbeddingBag(9, 4),
            nn.Linear(4, 6),
            nn.LayerNorm(6),
            nn.Linear(6, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.leaky_relu(self.norm(self.mix(self.bag(x)))))


class Standardized(nn.Conv2d):
    """A convolution whose rows are centred and divided by their size first."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.eps = 1e-5

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.square().mean((1, 2, 3), keepdim=True) + self.eps).sqrt()
        return F.conv2d(x, w, self.bias, padding=self.padding)


class Scaled(nn.Module):
    """A residual branch behind a learned number, and one behind a learned number a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b, self.head = nn.Linear(8, 5), nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.alpha, self.gain = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = h + self.alpha * F.gelu(self.a(h))
        return self.head(F.gelu(h + self.gain * self.b(F.gelu(h))))


class Recurrent(nn.Module):
    """An LSTM and a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm, self.head = nn.LSTM(5, 4, batch_first=True), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.leaky_relu(self.norm(self.cell(x)[0][:, -1])))


class TinyResNet(nn.Module):
    """Two basic blocks of the zoo, one with a projection."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        kind = NormFactory(norm, "image", True, None, 2)
        self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), kind(4)
        short = nn.Sequential(nn.Conv2d(4, 4, 1, stride=2, bias=False), kind(4))
        self.blocks = nn.Sequential(BasicBlock(4, 4, 1, kind, None), BasicBlock(4, 4, 2, kind, short))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.norm(self.stem(x)).relu()).mean((2, 3)))


def frozen_inside() -> nn.Module:
    net = nn.Sequential(
        nn.Linear(8, 6), nn.BatchNorm1d(6), act(), nn.Linear(6, 5), nn.BatchNorm1d(5), act(), nn.Linear(5, 3)
    )
    net[1].eval()
    return net


def convs(*parts: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))


def small(norm: str | None, **options: Any) -> nn.Module:
    return mlp((8, 6, 6, 3), norm, "leaky_relu", groups=2, **options)

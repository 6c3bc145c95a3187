"""Convolutional networks: a plain one, residual ones, a U-Net, a mixer."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import batches, glyphs
from benchmarks.fault_trainings.mlps import wrong
from benchmarks.fault_trainings.training import Factory, Outcome, Training, descend, faulty


class Plain(nn.Module):
    """The stem is the first layer of `body`."""

    def __init__(self, cut: bool = False):
        super().__init__()
        self.cut = cut
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.GroupNorm(4, 32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
        )  # fmt: skip
        self.attend = nn.Conv2d(32, 1, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(x)
        weights = self.attend(features).flatten(2).softmax(-1)
        if self.cut:  # meant to be drawn only, and then used
            weights = weights.detach()
        return self.head((features.flatten(2) * weights).sum(-1))


def plain(factory: Factory, *, cut: bool = False) -> Outcome:
    torch.manual_seed(10)
    images, labels = glyphs(1500)
    order = batches(1500, 64)
    model = Plain(cut)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]), 200,
    )  # fmt: skip
    return Outcome(losses, wrong(model))


class Block(nn.Module):
    def __init__(self, width: int, momentum: float, zero: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, momentum=momentum)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, momentum=momentum)
        if zero:
            nn.init.zeros_(self.bn2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Residual(nn.Module):
    def __init__(self, width: int = 16, blocks: int = 3, momentum: float = 0.1, zero: bool = True, classes: int = 10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, momentum=momentum), nn.ReLU()
        )
        self.blocks = nn.ModuleList(Block(width, momentum, zero) for _ in range(blocks))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(x.mean((2, 3))))


def residual(
    factory: Factory,
    *,
    momentum: float = 0.1,
    zero: bool = True,
    peek: int | None = None,
    back: bool = True,
    size: int = 64,
    rate: float = 0.1,
    ragged: bool = False,
) -> Outcome:
    """SGD, warm-up, cosine; `peek`: the step before which the model is validated, `back`: and set to train again."""
    torch.manual_seed(11)
    images, labels = glyphs(1500)
    order = batches(1500, size)
    model = Residual(momentum=momentum, zero=zero)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / 160))
    )

    def loss_at(step: int) -> torch.Tensor:
        if step == peek:
            wrong(model)
            if back:
                model.train()
        chosen = order[step % 64][: 3 if ragged and step % 20 == 19 else size]  # what is left at the end of an epoch
        return F.cross_entropy(model(images[chosen]), labels[chosen])

    losses = descend(factory, model, optimizer, loss_at, 160, scheduler=scheduler)
    model.eval()
    held, kinds = glyphs(500, seed=2)
    return Outcome(losses, F.cross_entropy(model(held), kinds).item())


def deep(factory: Factory, *, norm: bool = True) -> Outcome:
    """Fourteen convolutions in a row."""
    torch.manual_seed(14)
    images, labels = glyphs(1500, noise=0.7)
    order = batches(1500, 48)
    widths = (1, *[20] * 14)
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), *([nn.BatchNorm2d(fan_out)] if norm else []), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]), 120,
    )  # fmt: skip
    return Outcome(losses, wrong(model, noise=0.7))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = self.double(1, 12)
        self.down2 = self.double(12, 24)
        self.middle = self.double(24, 24)
        self.up2 = self.double(48, 12)
        self.up1 = self.double(24, 12)
        self.mask = nn.Conv2d(12, 1, 1)

    @staticmethod
    def double(fan_in: int, fan_out: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(fan_in, fan_out, 3, padding=1), nn.BatchNorm2d(fan_out), nn.ReLU(),
            nn.Conv2d(fan_out, fan_out, 3, padding=1), nn.BatchNorm2d(fan_out), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        low = self.middle(F.max_pool2d(second, 2))
        second = self.up2(torch.cat([F.interpolate(low, scale_factor=2), second], 1))
        return self.mask(self.up1(torch.cat([F.interpolate(second, scale_factor=2), first], 1)))


def segment(factory: Factory, *, rates: str = "equal") -> Outcome:
    """Masks of where the clean pattern is bright; with `by_depth` the first layers learn more slowly."""
    torch.manual_seed(12)
    images, _ = glyphs(600, size=16, noise=0.0)
    masks = (images > 0.3).float()
    noisy = images + 0.8 * torch.randn(images.shape, generator=torch.Generator().manual_seed(4))
    order = batches(500, 24)
    model = UNet()
    parts = list(model.children())
    scale = [1.0] * 6 if rates == "equal" else [(position + 1) // 6 for position in range(6)]  # // where / was meant
    optimizer = torch.optim.Adam(
        [{"params": part.parameters(), "lr": 2e-3 * share} for part, share in zip(parts, scale, strict=True)], lr=2e-3
    )
    losses = descend(
        factory, model, optimizer,
        lambda step: F.binary_cross_entropy_with_logits(model(noisy[order[step % 64]]), masks[order[step % 64]]), 100,
    )  # fmt: skip
    model.eval()
    with torch.no_grad():
        return Outcome(losses, F.binary_cross_entropy_with_logits(model(noisy[500:]), masks[500:]).item())


class Mixer(nn.Module):
    def __init__(self, width: int = 48, depth: int = 3, tokens: int = 16):
        super().__init__()
        self.embed = nn.Conv2d(1, width, 2, stride=2)
        self.norms1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.norms2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.tokens = nn.ModuleList(self.two(tokens, 32) for _ in range(depth))
        self.channels = nn.ModuleList(self.two(width, 96) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    @staticmethod
    def two(width: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).mT
        for norm1, tokens, norm2, channels in zip(self.norms1, self.tokens, self.norms2, self.channels, strict=True):
            x = x + tokens(norm1(x).mT).mT
            x = x + channels(norm2(x))
        return self.head(self.norm(x).mean(1))


def mixer(factory: Factory) -> Outcome:
    torch.manual_seed(13)
    images, labels = glyphs(1500)
    order = batches(1500, 64)
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=201)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]], label_smoothing=0.1),
        200, scheduler=scheduler,
    )  # fmt: skip
    return Outcome(losses, wrong(model))


RAGGED = {"size": 32, "rate": 0.05, "zero": False, "ragged": True}

TRAININGS = (
    Training("cnn-stem-in-body", plain),
    Training("resnet-zero-gamma", partial(residual, peek=80)),
    Training("unet-bce", segment),
    Training("mixer-one-cycle", mixer),
    faulty("cnn-gate-detached", "no gradient", partial(plain, cut=True), plain, layer="attend"),
    faulty("resnet-momentum-zero", "batchnorm momentum", partial(residual, momentum=0.0), residual, layer="stem.1"),
    faulty(
        "resnet-momentum-one", "batchnorm momentum", partial(residual, momentum=1.0, **RAGGED),
        partial(residual, **RAGGED), layer="stem.1",
    ),
    faulty(
        "resnet-validated-first", "eval left on", partial(residual, zero=False, peek=0, back=False),
        partial(residual, zero=False, peek=0),
    ),
    faulty("cnn-fourteen-bare", "no normalizer", partial(deep, norm=False), deep),
    faulty("unet-rates-by-depth", "no update", partial(segment, rates="by_depth"), segment, layer="down1"),
)  # fmt: skip

"""Fully connected networks."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import batches, glyphs, table
from benchmarks.fault_trainings.training import Factory, Outcome, Training, descend, faulty


class Mlp(nn.Module):
    def __init__(
        self, widths: tuple[int, ...], outputs: int, activation: type[nn.Module] = nn.ReLU, norm: bool = False
    ):
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), *([nn.BatchNorm1d(fan_out)] if norm else []), activation()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def wrong(model: nn.Module, seed: int = 2, **data: object) -> float:
    """Share of held-out images that are taken for another class."""
    model.eval()
    images, labels = glyphs(500, seed=seed, **data)  # type: ignore[arg-type]
    with torch.no_grad():
        return (model(images).argmax(1) != labels).float().mean().item()


def classify(factory: Factory, *, rate: float = 1e-3, replaced_late: bool = False, gamma: float = 1.0) -> Outcome:
    """Adam on a plain network whose head of 100 classes is replaced by one of 10."""
    torch.manual_seed(0)
    images, labels = glyphs(2000)
    order = batches(2000, 128)
    model = Mlp((64, 512, 256), 100)
    if not replaced_late:
        model.head = nn.Linear(256, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    if replaced_late:
        model.head = nn.Linear(256, 10)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]),
        250, scheduler=scheduler,
    )  # fmt: skip
    held, kinds = glyphs(500, seed=2)
    return Outcome(losses, F.cross_entropy(model(held), kinds).item())


def momentum_sgd(factory: Factory, *, rate: float = 0.1, reduction: str = "mean", norm: bool = True) -> Outcome:
    """SGD with momentum and a cosine schedule; validated every 50 steps."""
    torch.manual_seed(1)
    images, labels = glyphs(2000, classes=6)
    order = batches(2000, 128)
    model = Mlp((64, 256, 256, 256), 6, norm=norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss(reduction=reduction)

    def loss_at(step: int) -> torch.Tensor:
        if step % 50 == 49:
            wrong(model, classes=6)
            model.train()
        return criterion(model(images[order[step % 64]]), labels[order[step % 64]])

    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    losses = descend(factory, model, optimizer, loss_at, 300, scheduler=scheduler)
    return Outcome(losses, wrong(model, classes=6))


def restarts(factory: Factory) -> Outcome:
    """Regression with a cosine schedule that starts again every 60 steps."""
    torch.manual_seed(2)
    features, target = table(3000)
    order = batches(2500, 200)
    model = Mlp((12, 128, 128), 1, activation=nn.Tanh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 60)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.mse_loss(model(features[order[step % 64]]), target[order[step % 64]]), 300, scheduler=scheduler,
    )  # fmt: skip
    return Outcome(losses, F.mse_loss(model(features[2500:]), target[2500:]).item())


class Pixels(nn.Module):
    """Takes bytes, as a decoder of images gives them, and normalizes them itself, or forgets to."""

    def __init__(self, scaled: bool = True):
        super().__init__()
        self.scaled = scaled
        self.register_buffer("mean", torch.tensor(128.0))
        self.register_buffer("deviation", torch.tensor(40.0))
        self.net = Mlp((64, 512, 128), 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.net((pixels - self.mean) / self.deviation if self.scaled else pixels)


def raw_pixels(factory: Factory, *, scaled: bool = True) -> Outcome:
    torch.manual_seed(3)
    images, labels = glyphs(2000)
    pixels = (images * 40 + 128).clamp(0, 255).round()
    order = batches(1500, 128)
    model = Pixels(scaled)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(pixels[order[step % 64]]), labels[order[step % 64]]), 250,
    )  # fmt: skip
    return Outcome(losses, F.cross_entropy(model(pixels[1500:]), labels[1500:]).item())


def prices(factory: Factory, *, bound: tuple[float, float] = (-1.0, 1.0), scaled: bool = True) -> Outcome:
    """A regression; by a slip the second layer is drawn from negative numbers alone, or the columns stay in units."""
    torch.manual_seed(4)
    features, target = table(3000, seed=6)
    if not scaled:  # years, square metres, income
        features = features * torch.tensor([10.0, 60, 2e4] * 4) + torch.tensor([1990.0, 140, 5e4] * 4)
    order = batches(2500, 200)
    model = Mlp((12, 256, 128, 64), 1)
    for layer in (model.body[1], model.body[3], model.body[5]):
        fan = layer.weight.shape[1]
        low, high = bound if layer is model.body[3] else (-1.0, 1.0)
        nn.init.uniform_(layer.weight, low * math.sqrt(6 / fan), high * math.sqrt(6 / fan))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.mse_loss(model(features[order[step % 64]]), target[order[step % 64]]), 250,
    )  # fmt: skip
    return Outcome(losses, F.mse_loss(model(features[2500:]), target[2500:]).item())


def sigmoids(factory: Factory, *, activation: type[nn.Module] = nn.Sigmoid, norm: bool = False) -> Outcome:
    """Nine hidden layers."""
    torch.manual_seed(5)
    images, labels = glyphs(1500, classes=5)
    order = batches(1500, 128)
    model = Mlp((64, *[96] * 9), 5, activation=activation, norm=norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]), 250,
    )  # fmt: skip
    return Outcome(losses, wrong(model, classes=5))


TRAININGS = (
    Training("mlp-adam", classify),
    Training("mlp-batchnorm-cosine", momentum_sgd),
    Training("mlp-warm-restarts", restarts),
    Training("mlp-normalizes-pixels-itself", raw_pixels),
    faulty("mlp-head-replaced-late", "not in optimizer", partial(classify, replaced_late=True), classify, layer="head"),
    faulty(
        "mlp-decay-each-batch", "rate decayed", partial(classify, gamma=0.9), classify, begins=22
    ),  # a tenth of the rate is left
    faulty(
        "mlp-sgd-rate", "rate too large", partial(momentum_sgd, rate=6.0, norm=False), partial(momentum_sgd, norm=False)
    ),
    faulty(
        "mlp-summed-loss", "wrong reduction", partial(momentum_sgd, reduction="sum", norm=False, rate=0.02),
        partial(momentum_sgd, norm=False, rate=0.02),
    ),
    faulty("mlp-raw-pixels", "not normalized", partial(raw_pixels, scaled=False), raw_pixels),
    faulty("mlp-columns-in-units", "not normalized", partial(prices, scaled=False), prices),
    faulty("mlp-one-sided-init", "dead relus", partial(prices, bound=(-1.0, -0.1)), prices, layer="body"),
    faulty("mlp-nine-sigmoids", "vanishing", sigmoids, partial(sigmoids, activation=nn.ReLU, norm=True)),
)  # fmt: skip

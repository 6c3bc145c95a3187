"""Going on from trained networks, and pairs of inputs."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.convs import Residual
from benchmarks.fault_trainings.data import batches, glyphs
from benchmarks.fault_trainings.mlps import Mlp, wrong
from benchmarks.fault_trainings.training import Factory, Outcome, Training, descend, faulty


class Lora(nn.Module):
    """A frozen map and a low-rank addition whose second factor begins at zero."""

    def __init__(self, base: nn.Linear, rank: int = 4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * self.lora_b(self.lora_a(x))


def pretrained(model: nn.Module, steps: int = 80) -> None:
    """A short training on eight patterns, not watched."""
    images, labels = glyphs(1000, classes=8)
    order = batches(1000, 64, seed=12)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]).backward()
        optimizer.step()


def adapters(factory: Factory, *, both_zero: bool = False) -> Outcome:
    torch.manual_seed(60)
    model = Mlp((64, 192, 192), 10)
    pretrained(model)
    for place in (1, 3):
        model.body[place] = Lora(model.body[place])
        if both_zero:  # meant for B, done to both
            nn.init.zeros_(model.body[place].lora_a.weight)
    model.head.requires_grad_(False)
    images, labels = glyphs(1500, classes=10)
    order = batches(1500, 96)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]), 200,
    )  # fmt: skip
    return Outcome(losses, wrong(model))


def frozen_backbone(factory: Factory, *, rate: float = 5e-3) -> Outcome:
    """All but the last block and the head is frozen, its BatchNorms in eval mode, as one does."""
    torch.manual_seed(61)
    model = Residual(blocks=2, zero=False)
    pretrained(model)
    model.head = nn.Linear(16, 10)
    frozen = [model.stem, model.blocks[0]]
    for part in frozen:
        part.requires_grad_(False)
    images, labels = glyphs(1500)
    order = batches(1500, 64)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)

    def loss_at(step: int) -> torch.Tensor:
        model.train()
        for part in frozen:
            part.eval()
        return F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]])

    losses = descend(factory, model, optimizer, loss_at, 150)
    return Outcome(losses, wrong(model))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.net(x), dim=-1)


def contrast(factory: Factory) -> Outcome:
    """Two views of an image are to be nearer to each other than to the rest; score: matches missed."""
    torch.manual_seed(62)
    clean = glyphs(1024, noise=0.8, classes=30)[0]
    order = batches(900, 96)
    model = Tower()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def views(images: torch.Tensor) -> torch.Tensor:
        return model(images + 0.4 * torch.randn_like(images)) @ model(images + 0.4 * torch.randn_like(images)).T

    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(views(clean[order[step % 64]]) / 0.2, torch.arange(96)), 200,
    )  # fmt: skip
    with torch.no_grad():
        return Outcome(losses, (views(clean[900:]).argmax(1) != torch.arange(124)).float().mean().item())


def siamese(factory: Factory, *, margin: float = 1.0) -> Outcome:
    """Pairs of the same or of different patterns, pulled together or pushed apart by a margin."""
    torch.manual_seed(63)
    images, labels = glyphs(1500)
    order, other = batches(1500, 96), batches(1500, 96, seed=99)
    model = Mlp((64, 256), 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)

    def loss_at(step: int) -> torch.Tensor:
        one, two = order[step % 64], other[(7 * step) % 64]
        distance = (model(images[one]) - model(images[two])).square().sum(1).add(1e-6).sqrt()
        same = (labels[one] == labels[two]).float()
        return (same * distance.square() * 9 + (1 - same) * F.relu(margin - distance).square()).mean()

    losses = descend(factory, model, optimizer, loss_at, 250)
    return Outcome(losses, sum(losses[-20:]) / 20)


TRAININGS = (
    Training("lora-zero-b", adapters),
    Training("finetune-frozen-backbone", frozen_backbone),
    Training("contrastive-views", contrast),
    Training("siamese-margin", siamese),
    faulty("lora-both-zero", "no gradient", partial(adapters, both_zero=True), adapters, layer="body.1.lora_b"),
)

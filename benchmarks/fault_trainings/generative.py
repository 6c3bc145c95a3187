"""Autoencoders, an adversarial pair, denoising by diffusion."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import batches, glyphs, seeded
from benchmarks.fault_trainings.training import Factory, Outcome, Training, descend, faulty


class Autoencoder(nn.Module):
    def __init__(self, code: int = 12, sampled: bool = False):
        super().__init__()
        self.sampled = sampled
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, code * (2 if sampled else 1)))
        self.decoder = nn.Sequential(nn.Linear(code, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        code = self.encoder(x)
        if not self.sampled:
            return self.decoder(code), code.new_zeros(())
        mean, logvar = code.chunk(2, -1)
        divergence = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(-1).mean()
        return self.decoder(mean + torch.randn_like(mean) * (0.5 * logvar).exp()), divergence


def compress(factory: Factory) -> Outcome:
    torch.manual_seed(40)
    images = glyphs(1500, noise=0.3)[0].flatten(1)
    order = batches(1200, 96)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = descend(
        factory, model, optimizer,
        lambda step: F.mse_loss(model(images[order[step % 64]])[0], images[order[step % 64]]), 250,
    )  # fmt: skip
    return Outcome(losses, F.mse_loss(model(images[1200:])[0], images[1200:]).item())


def variational(factory: Factory) -> Outcome:
    """Pixels between 0 and 1, BCE summed over pixels and averaged over samples, and the divergence: the usual loss."""
    torch.manual_seed(41)
    images = (glyphs(1500, noise=0.3)[0].flatten(1) > 0).float()
    order = batches(1200, 96)
    model = Autoencoder(8, sampled=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss_at(step: int) -> torch.Tensor:
        x = images[order[step % 64]]
        drawn, divergence = model(x)
        return F.binary_cross_entropy_with_logits(drawn, x, reduction="none").sum(-1).mean() + divergence

    losses = descend(factory, model, optimizer, loss_at, 250)
    return Outcome(losses, sum(losses[-20:]) / 20)


def adversarial(factory: Factory, *, rate: float = 1e-3, kept: bool = True) -> Outcome:
    """Points on a ring against a discriminator; score: how far the radii are from 2."""
    torch.manual_seed(42)
    generator = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    judge = nn.Sequential(
        nn.Linear(2, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)
    )
    model = nn.ModuleDict({"generator": generator, "judge": judge})
    for_generator = torch.optim.Adam(generator.parameters(), lr=rate, betas=(0.5, 0.999))
    for_judge = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.999))
    monitor, losses = factory(model, [for_generator, for_judge]), []
    for _ in range(500):
        angle = torch.rand(128, 1) * 2 * math.pi
        real = 2 * torch.cat([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(128, 2)
        fake = generator(torch.randn(128, 8))
        for_judge.zero_grad()
        told = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        told.backward()
        for_judge.step()
        for_generator.zero_grad()
        judged = fake if kept else fake.detach()  # the line copied from above
        loss = F.softplus(-judge(judged)).mean()
        loss.backward()
        for_generator.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
    with torch.no_grad():
        return Outcome(losses, (generator(torch.randn(500, 8)).norm(dim=1) - 2).abs().mean().item())


class Denoiser(nn.Module):
    """Timesteps come first."""

    def __init__(self, width: int = 192):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, width))
        self.into = nn.Linear(64, width)
        self.middle = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, 64))

    def forward(self, time: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        angles = time[:, None].float() * torch.exp(-torch.arange(8) * 0.9)
        hidden = self.into(x) + self.time(torch.cat([angles.sin(), angles.cos()], 1))
        return self.out(hidden + self.middle(hidden))


def diffuse(factory: Factory) -> Outcome:
    torch.manual_seed(43)
    images, draw = glyphs(1500, noise=0.1)[0].flatten(1), seeded(44)
    order = batches(1500, 96)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def loss_at(step: int) -> torch.Tensor:
        clean = images[order[step % 64]]
        time = torch.randint(1000, (len(clean),), generator=draw)
        keep = torch.cos(time / 1000 * math.pi / 2)[:, None]
        noise = torch.randn(clean.shape, generator=draw)
        return F.mse_loss(model(time, keep * clean + (1 - keep**2).sqrt() * noise), noise)

    losses = descend(factory, model, optimizer, loss_at, 250)
    return Outcome(losses, sum(losses[-30:]) / 30)


TRAININGS = (
    Training("autoencoder-mse", compress),
    Training("vae-bce-divergence", variational),
    Training("gan-ring", adversarial),
    Training("diffusion-timesteps-first", diffuse),
    faulty("gan-generator-detached", "no gradient", partial(adversarial, kept=False), adversarial, layer="generator"),
)

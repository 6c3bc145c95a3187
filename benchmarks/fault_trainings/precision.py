"""Half precision, well and badly used."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import batches, glyphs, table
from benchmarks.fault_trainings.mlps import Mlp, wrong
from benchmarks.fault_trainings.training import Factory, Outcome, Training, descend, faulty


@torch.backends.mkldnn.flags(enabled=False)  # its half kernels fail on some processors
def in_bf16(factory: Factory, *, pure: bool = False) -> Outcome:
    """Going on with a small rate from a network that has learnt other patterns; `pure`: its weights are bf16 too."""
    torch.manual_seed(70)
    images, labels = glyphs(1500)
    order = batches(1500, 96)
    model = Mlp((64, 256, 256), 10, norm=False)
    with torch.no_grad():
        for place in (1, 3):
            model.body[place].weight *= 3.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    if pure:
        model.to(torch.bfloat16)

    def loss_at(step: int) -> torch.Tensor:
        chosen = order[step % 64]
        with torch.autocast("cpu", torch.bfloat16, enabled=not pure):
            logits = model(images[chosen].to(torch.bfloat16) if pure else images[chosen])
        return F.cross_entropy(logits.float(), labels[chosen])

    losses = descend(factory, model, optimizer, loss_at, 250)
    return Outcome(losses, sum(losses[-20:]) / 20)


class Scores(nn.Module):
    """Sums squares of features, which fp16 cannot hold where they are large; `careful` goes to fp32 for them."""

    def __init__(self, careful: bool):
        super().__init__()
        self.careful = careful
        self.lift = nn.Linear(12, 512)
        self.head = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = 20 * self.lift(x)
        return self.head((hidden.float() if self.careful else hidden).square().unflatten(-1, (64, 8)).sum(-1))


@torch.backends.mkldnn.flags(enabled=False)  # its half kernels fail on some processors
def in_fp16(factory: Factory, *, careful: bool = True, rate: float = 3e-3, begins: int = 40) -> Outcome:
    """Autocast to fp16 with a GradScaler; from `begins` on the data hold rows that were not clipped."""
    torch.manual_seed(71)
    features, target = table(3000)
    order = batches(3000, 128)
    model = Scores(careful)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    monitor, losses = factory(model, optimizer), []
    for step in range(160):
        chosen = order[step % 64]
        inputs = features[chosen] * (1.0 if step < begins else 4.0)
        with torch.autocast("cpu", torch.float16):
            predicted = model(inputs)
        loss = F.mse_loss(predicted.float(), target[chosen])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        monitor.step(loss=loss)
        losses.append(loss.item())
    return Outcome(losses, sum(losses[-20:]) / 20)


class Rms(nn.Module):
    """Root mean square in the precision of its input."""

    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


class Bag(nn.Module):
    """Mean over the tokens of a padded sentence; padding is a vector of zeros."""

    def __init__(self, epsilon: float):
        super().__init__()
        self.embedding = nn.Embedding(50, 64, padding_idx=0)
        self.norm = Rms(64, epsilon)
        self.up = nn.Linear(64, 128)
        self.head = nn.Linear(128, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.up(self.norm(self.embedding(tokens)))).mean(1))


@torch.backends.mkldnn.flags(enabled=False)  # its half kernels fail on some processors
def padded(factory: Factory, *, epsilon: float = 1e-3) -> Outcome:
    """All of it in fp16; 1e-8 is zero there. The first sentence that needs padding comes at step 25."""
    torch.manual_seed(72)
    model = Bag(epsilon).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    def loss_at(step: int) -> torch.Tensor:
        tokens = torch.randint(1, 50, (96, 12))
        labels = (tokens < 25).float().mean(1).gt(0.5).long()
        if step >= 25:
            tokens[::5, 9:] = 0
        return F.cross_entropy(model(tokens).float(), labels)

    losses = descend(factory, model, optimizer, loss_at, 150, clip=1.0)
    return Outcome(losses, sum(losses[-20:]) / 20)


@torch.backends.mkldnn.flags(enabled=False)  # its half kernels fail on some processors
def accumulated(factory: Factory) -> Outcome:
    """Four micro batches a step, under bf16 autocast."""
    torch.manual_seed(73)
    images, labels = glyphs(2000)
    order = batches(2000, 32)
    model = Mlp((64, 256, 128), 10, norm=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    monitor, losses = factory(model, optimizer), []
    for step in range(120):
        optimizer.zero_grad()
        whole = torch.zeros(())
        for micro in range(4):
            chosen = order[(4 * step + micro) % 64]
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images[chosen])
            loss = F.cross_entropy(logits.float(), labels[chosen]) / 4
            loss.backward()
            whole += loss.detach()
        optimizer.step()
        monitor.step(loss=whole)
        losses.append(whole.item())
    return Outcome(losses, wrong(model))


TRAININGS = (
    Training("mlp-bf16-autocast", in_bf16),
    Training("mlp-fp16-scaler", in_fp16),
    Training("mlp-accumulated", accumulated),
    faulty("mlp-pure-bf16", "bf16 updates", partial(in_bf16, pure=True), in_bf16),
    faulty("mlp-fp16-energy", "fp16 overflow", partial(in_fp16, careful=False), in_fp16, layer="head.0", begins=40),
    faulty("bag-fp16-rms", "epsilon in half", partial(padded, epsilon=1e-8), padded, layer="norm", begins=25),
)

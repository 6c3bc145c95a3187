"""Convolutions and mixers on small pictures."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training
from benchmarks.fault_trainings_third.common import broken, digits, discs, either, fit, split


class Block(nn.Module):
    """Two convolutions; the last gamma begins at 0."""

    def __init__(self, width, momentum):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, momentum=momentum)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, momentum=momentum)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


def resnet(factory, *, momentum=0.1, evaluated_at=None):
    """Nesterov and a cosine; a check on held-out digits may leave the net in eval()."""
    torch.manual_seed(10)
    width = 20
    model = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, momentum=momentum), nn.ReLU(),
        *(Block(width, momentum) for _ in range(3)), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10),
    )  # fmt: skip
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def check(step, x, y):
        if step == evaluated_at:
            model.eval()
        return x, y

    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 150)
    return fit(factory, model, opt, *digits(64), 150, change=check, scheduler=cosine)


class Plain(nn.Module):
    """A stack of convolutions; everything, the stem too, lies in `body`."""

    def __init__(self, depth, width, act=nn.ReLU, norm=nn.BatchNorm2d, **of_norm):
        super().__init__()
        parts = []
        for index in range(depth):
            parts += [nn.Conv2d(width if index else 1, width, 3, padding=1, stride=2 if index == 1 else 1)]
            parts += [norm(width, **of_norm), act()]
        self.body = nn.Sequential(*parts)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def stacked(factory, *, depth=4, act=nn.ReLU, norm=nn.BatchNorm2d, size=50, evaluated=False, low=None, **of_norm):
    torch.manual_seed(11)
    model = Plain(depth, 24, act, norm, **of_norm).train(not evaluated)
    if low is not None:  # the biases of one layer, set by hand
        nn.init.constant_(model.body[6].bias, low)
        model.body[7] = nn.Identity()
    return fit(factory, model, torch.optim.AdamW(model.parameters(), lr=2e-3), *digits(size), 160)


def stacked_deep(factory, **how):
    return stacked(factory, depth=18, **how)


def stacked_small_batches(factory, **how):
    return stacked(factory, size=6, **how)


def restarts(factory, *, peak=1.0):
    """Warm restarts each 60 steps; the third cycle may have a peak a hundredfold."""
    torch.manual_seed(12)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GroupNorm(4, 32), nn.SiLU(), nn.Flatten(), nn.Linear(512, 64), nn.SiLU(), nn.Linear(64, 10),
    )  # fmt: skip
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def rate(step):
        height = peak if step // 60 == 2 else 1.0
        return height * (0.02 + 0.98 * (1 - (step % 60) / 60))

    return fit(factory, model, opt, *digits(64), 240, scheduler=torch.optim.lr_scheduler.LambdaLR(opt, rate))


class Bytes(nn.Module):
    """Takes pixels of 0 to 255 and normalises them itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor(78.0))
        self.register_buffer("std", torch.tensor(96.0))
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip

    def forward(self, pixels):
        return self.net((pixels - self.mean) / self.std)


def pixels(factory):
    torch.manual_seed(13)
    model = Bytes()
    return fit(factory, model, torch.optim.Adam(model.parameters(), lr=1e-3), *digits(64, raw=True), 150)


def spike(factory):
    """One batch with wrong labels and doubled contrast at step 110; the loss comes back by itself."""
    torch.manual_seed(14)
    model = Plain(3, 32, nn.GELU)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def change(step, x, y):
        return (2 * x, (y + 3) % 10) if step == 110 else (x, y)

    return fit(factory, model, opt, *digits(64), 220, change=change, clip=1.0)


def few(factory):
    """Batches of two."""
    torch.manual_seed(15)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.InstanceNorm2d(12, affine=True), nn.ReLU(), nn.Conv2d(12, 24, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(384, 10),
    )  # fmt: skip
    return fit(factory, model, torch.optim.SGD(model.parameters(), lr=0.01), *digits(2), 500)


def gathered(factory):
    """Four small batches to a step; weights averaged over the steps for the test."""
    torch.manual_seed(16)
    (batches, (tx, ty)), model = digits(16), Plain(3, 20, nn.Hardswish)
    opt, slow = torch.optim.Adam(model.parameters(), lr=2e-3), copy.deepcopy(model)
    monitor, losses = factory(model, opt), []
    for _ in range(100):
        opt.zero_grad()
        total = torch.zeros(())
        for _ in range(4):
            xb, yb = next(batches)
            loss = F.cross_entropy(model(xb), yb) / 4
            loss.backward()
            total += loss.detach()
        opt.step()
        for kept, new in zip(slow.state_dict().values(), model.state_dict().values(), strict=True):
            kept.copy_(kept.lerp(new, 0.1) if kept.is_floating_point() else new)
        monitor.step(loss=total)
        losses.append(total.item())
    return Outcome(losses, F.cross_entropy(slow.eval()(tx), ty).item())


class Unet(nn.Module):
    def __init__(self, cut=False):
        super().__init__()
        self.cut = cut
        self.down = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.out = nn.Conv2d(32, 1, 3, padding=1)

    def forward(self, x):
        fine = self.down(x)
        coarse = self.deep(fine)
        if self.cut:  # left over from a visualisation
            fine, coarse = fine.detach(), coarse.detach()
        return self.out(torch.cat([fine, F.relu(self.up(coarse))], 1))


def segment(factory, *, cut=False, reduction="mean"):
    torch.manual_seed(17)
    model = Unet(cut)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss(x, y):
        return F.binary_cross_entropy_with_logits(model(x), y, reduction=reduction)

    return fit(factory, model, opt, *split(16, 100, *discs(700)), 150, loss=loss)


class Mixer(nn.Module):
    """Tokens are the rows of a picture; the branches of the residual may be too strong."""

    def __init__(self, depth, norm, gain):
        super().__init__()
        self.lift = nn.Linear(8, 32)
        self.norms = nn.ModuleList(norm(32) for _ in range(2 * depth))
        self.tokens = nn.ModuleList(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(depth))
        self.channels = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(depth)
        )
        self.head = nn.Linear(32, 10)
        for branch in (*self.tokens, *self.channels):
            nn.init.normal_(branch[0].weight, std=gain * branch[0].in_features ** -0.5)
            nn.init.normal_(branch[2].weight, std=gain * branch[2].in_features ** -0.5)

    def forward(self, x):
        x = self.lift(x[:, 0])
        for index, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * index](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * index + 1](x))
        return self.head(x.mean(1))


def mixer(factory, *, depth=6, norm=nn.LayerNorm, gain=0.6, rate=3e-3):
    torch.manual_seed(18)
    model = Mixer(depth, norm, gain)
    return fit(factory, model, torch.optim.AdamW(model.parameters(), lr=rate), *digits(64), 150)


def mixer_fast(factory, *, norm=nn.LayerNorm):
    return mixer(factory, depth=10, norm=norm, gain=1.0, rate=3e-2)


def identity(width):
    return nn.Identity()


TRAININGS = (
    broken("resnet-momentum-0", "batchnorm momentum", resnet, {"momentum": 0.0}),
    broken("resnet-eval-after-check", "eval left on", resnet, {"evaluated_at": 60}, begins=60),
    broken("stack-eval-from-start", "eval left on", stacked, {"evaluated": True}),
    broken("stack-momentum-1", "batchnorm momentum", stacked_small_batches, {"momentum": 1.0}),
    broken("stack-low-biases", "dead relus", stacked, {"low": -6.0}),
    broken("stack-sigmoids", "vanishing", stacked, {"depth": 7, "act": nn.Sigmoid, "norm": identity}),
    broken("stack-deep-without-norm", "no normalizer", stacked_deep, {"norm": identity},
           accepted=either("no normalizer", "vanishing")),
    broken("restart-too-high", "rate too large", restarts, {"peak": 100.0}, begins=120),
    broken("unet-detached", "no gradient", segment, {"cut": True}),
    broken("unet-summed-loss", "wrong reduction", segment, {"reduction": "sum"}),
    broken("mixer-strong-branches", "residual grows", mixer, {"depth": 10, "norm": identity, "gain": 1.3},
           accepted=either("residual grows", "no normalizer")),
    broken("mixer-without-norm", "no normalizer", mixer_fast, {"norm": identity}),
    Training("resnet-zero-gamma", resnet),
    Training("stack-stem-in-body", stacked),
    Training("restarts-warm", restarts),
    Training("bytes-normalised-inside", pixels),
    Training("spike-that-recovers", spike),
    Training("batches-of-two", few),
    Training("accumulation-and-ema", gathered),
    Training("unet-discs", segment),
    Training("mixer-normed", mixer),
)  # fmt: skip

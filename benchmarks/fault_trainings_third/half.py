"""Trainings in bf16 and fp16, without oneDNN, whose half kernels fail on some processors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training
from benchmarks.fault_trainings_third.common import broken, chain, digits, fit, mlp, split, waves


def cross_entropy_in(model, dtype):
    return lambda x, y: F.cross_entropy(model(x.to(dtype)).float(), y)


@torch.backends.mkldnn.flags(enabled=False)
def tuned_words(factory, *, half=False):
    """A net of symbols trained on one chain goes on with another, in bf16 and at a small rate."""
    torch.manual_seed(60)
    model = nn.Sequential(nn.Embedding(9, 32), nn.Flatten(), mlp(64, 256, 256, 9, act=nn.GELU))

    def loss(ids):
        pairs = torch.stack([ids[:, :-2], ids[:, 1:-1]], -1).flatten(0, 1)
        return F.cross_entropy(model(pairs).float(), ids[:, 2:].flatten())

    (batches, _), opt = split(32, 1, chain(600, 20, seed=60)), torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(120):
        opt.zero_grad()
        loss(*next(batches)).backward()
        opt.step()
    model = model.bfloat16() if half else model
    opt = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    return fit(factory, model, opt, *split(8, 100, chain(500, 20, seed=61)), 200, loss=loss)


@torch.backends.mkldnn.flags(enabled=False)
def slow_digits(factory, *, half=False):
    """Plain SGD with a rate at which bf16 loses nearly every step."""
    torch.manual_seed(61)
    dtype = torch.bfloat16 if half else torch.float32
    model = mlp(64, 128, 128, 10, norm=nn.LayerNorm).to(dtype)
    opt = torch.optim.SGD(model.parameters(), lr=3e-3)
    return fit(factory, model, opt, *digits(64, flat=True), 220, loss=cross_entropy_in(model, dtype))


class Power(nn.Module):
    """The power of a sound in bands, then its logarithm."""

    def __init__(self):
        super().__init__()
        self.bands = nn.Conv1d(1, 24, 24, stride=8, bias=False)
        self.net = mlp(24, 64, 4, norm=nn.LayerNorm)

    def forward(self, x):
        power = self.bands(x[:, None]).square().mean(2)
        return self.net(torch.log(power + 1e-3) / 4)


@torch.backends.mkldnn.flags(enabled=False)
def loudness(factory, *, half=False):
    """From step 50 the recordings are louder: squares beyond 65504."""
    torch.manual_seed(62)
    dtype = torch.float16 if half else torch.float32
    model = Power().to(dtype)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def change(step, x, y):
        return (12 * x if step >= 50 else x), y

    parts = split(50, 200, *waves(1400, loudness=60.0))
    return fit(factory, model, opt, *parts, 120, loss=cross_entropy_in(model, dtype), change=change)


@torch.backends.mkldnn.flags(enabled=False)
def scaled(factory, *, fixed=None):
    """A loss times 2²⁰ in fp16 autocast: a scaler that backs off, or a fixed factor nobody checks."""
    torch.manual_seed(63)
    batches, (tx, ty) = digits(64)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(2048, 10),
    )  # fmt: skip
    opt, scaler = torch.optim.Adam(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu", init_scale=2.0**20)
    monitor, losses = factory(model, opt), []
    for _ in range(80):
        xb, yb = next(batches)
        with torch.autocast("cpu", torch.float16):
            out = model(xb)
        loss = F.cross_entropy(out.float(), yb)
        opt.zero_grad()
        if fixed is None:
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        else:
            (loss * fixed).backward()
            for p in model.parameters():
                p.grad /= fixed
            opt.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(tx), ty).item())


class Rms(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


class Padded(nn.Module):
    """Symbols with padding whose embedding is zero, in half precision."""

    def __init__(self, eps):
        super().__init__()
        self.embed, self.norm = nn.Embedding(13, 32, padding_idx=0), Rms(32, eps)
        self.net = mlp(32, 64, 32)
        self.out = nn.Linear(32, 2)

    def forward(self, ids):
        x = self.embed(ids)
        return self.out((x + self.net(self.norm(x))).mean(1))


@torch.backends.mkldnn.flags(enabled=False)
def padded(factory, *, eps=1e-3):
    """Which of two symbols is more common; from step 40 some sequences are padded."""
    torch.manual_seed(64)
    ids = torch.randint(1, 13, (1600, 18))
    label = ((ids == 3).sum(1) > (ids == 7).sum(1)).long()
    model = Padded(eps).half()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def change(step, ids, label):
        return F.pad(ids, (0, 2 if step >= 40 else 0)), label

    def loss(ids, label):
        return F.cross_entropy(model(ids).float(), label)

    return fit(factory, model, opt, *split(64, 200, ids, label), 120, loss=loss, change=change)


@torch.backends.mkldnn.flags(enabled=False)
def half_adam(factory, *, eps=1e-4):
    """Adam on weights in fp16, where 1e-8 is 0 and a small gradient squared too."""
    torch.manual_seed(65)
    model = mlp(64, 96, 96, 10, act=nn.GELU, norm=nn.LayerNorm).half()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps)
    return fit(factory, model, opt, *digits(64, flat=True), 120, loss=cross_entropy_in(model, torch.float16))


@torch.backends.mkldnn.flags(enabled=False)
def mixed(factory):
    """Weights in float32, products in bf16."""
    torch.manual_seed(66)
    model = mlp(64, 128, 128, 10, norm=nn.LayerNorm)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x), y)

    return fit(factory, model, opt, *digits(64, flat=True), 160, loss=loss)


TRAININGS = (
    broken("words-tuned-in-bf16", "bf16 updates", tuned_words, {"half": True}),
    broken("digits-sgd-in-bf16", "bf16 updates", slow_digits, {"half": True}),
    broken("power-in-fp16", "fp16 overflow", loudness, {"half": True}, begins=50),
    broken("loss-scale-fixed", "fp16 overflow", scaled, {"fixed": 2.0**20}),
    broken("rms-eps-and-padding", "epsilon in half", padded, {"eps": 1e-8}, begins=40),
    broken("adam-eps-in-fp16", "epsilon in half", half_adam, {"eps": 1e-8}),
    Training("loss-scale-backs-off", scaled),
    Training("autocast-bf16", mixed),
    Training("words-tuned-slowly", tuned_words),
)

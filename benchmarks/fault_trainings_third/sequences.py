"""Words, hours and sounds."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training
from benchmarks.fault_trainings_third.common import (
    broken,
    chain,
    clouds,
    digits,
    either,
    fit,
    split,
    waves,
    weather,
)


class Attention(nn.Module):
    def __init__(self, width, heads, scale=None, causal=False):
        super().__init__()
        self.heads, self.causal, self.scale = heads, causal, scale or (width // heads) ** -0.5
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.scale
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        self.weights = scores.softmax(-1)
        return self.out((self.weights @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Norms before the branches, or after the sums."""

    def __init__(self, width, heads, *, after=False, **of_attention):
        super().__init__()
        self.after = after
        self.attn, self.norm1 = Attention(width, heads, **of_attention), nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        if self.after:
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.ff(x))
        x = x + self.attn(self.norm1(x))
        return x + self.ff(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, symbols=9, width=48, depth=2, again=False):
        super().__init__()
        self.again = again
        self.embed, self.place = nn.Embedding(symbols, width), nn.Parameter(0.02 * torch.randn(32, width))
        nn.init.normal_(self.embed.weight, std=0.1)
        self.layers = nn.ModuleList(Layer(width, 4, causal=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids) + self.place[: ids.shape[1]]
        for layer in self.layers:
            x = x + layer(x) if self.again else layer(x)  # a layer has its residual inside already
        return self.head(self.norm(x))

    def loss(self, ids, reduction="mean"):
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction=reduction)


def gpt(factory, *, again=False, depth=2, optimizer="adamw", reduction="mean"):
    torch.manual_seed(20)
    model = Gpt(depth=depth, again=again)
    if optimizer == "adamw":
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    else:
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rate = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 20, 1 - 0.9 * s / 200))

    def loss(ids):
        return model.loss(ids, reduction)

    return fit(factory, model, opt, *split(16, 100, chain(900, 33)), 200, loss=loss, scheduler=rate)


def gpt_sgd(factory, *, reduction="mean"):
    return gpt(factory, optimizer="sgd", reduction=reduction)


def gpt_deep(factory, *, again=False):
    return gpt(factory, depth=10, again=again)


def two_optimizers(factory, *, twice=False):
    """One for the embedding, one for the rest; the head is the embedding."""
    torch.manual_seed(21)
    (batches, tests), model = split(16, 100, chain(900, 33, seed=21)), Gpt()
    rest = [p for name, p in model.named_parameters() if not name.startswith("embed")]
    rest += [model.head.weight] if twice else []
    opts = [torch.optim.Adam(model.embed.parameters(), lr=1e-2), torch.optim.Adam(rest, lr=3e-3)]
    monitor, losses = factory(model, opts), []
    for _ in range(150):
        loss = model.loss(*next(batches))
        model.zero_grad()
        loss.backward()
        for opt in opts:
            opt.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
    return Outcome(losses, model.loss(*tests).item())


class Vit(nn.Module):
    """Patches of 2 x 2."""

    def __init__(self, width=64, heads=4, depth=2, **of_layer):
        super().__init__()
        self.patch, self.place = nn.Conv2d(1, width, 2, stride=2), nn.Parameter(0.1 * torch.randn(16, width))
        self.layers = nn.Sequential(*(Layer(width, heads, **of_layer) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layers(self.patch(x).flatten(2).transpose(1, 2) + self.place).mean(1))


def vit(factory, *, warm=0, rate=1e-3, steps=120, **of_model):
    torch.manual_seed(22)
    model = Vit(**of_model)
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warm) if warm else 1.0)
    return fit(factory, model, opt, *digits(48), steps, scheduler=schedule)


def vit_one_head(factory, *, scale=None):
    return vit(factory, heads=1, scale=scale)


def vit_after(factory, *, warm=60):
    """Ten layers with norms after the sums."""
    return vit(factory, width=48, depth=10, after=True, warm=warm, rate=4e-3, steps=160)


class Gather(nn.Module):
    """A set of points through two layers of attention."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(2, 32)
        self.layers = nn.Sequential(Layer(32, 2), Layer(32, 2))
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.layers(self.lift(x)).mean(1))


def sets(factory, *, weight=-0.02):
    """A term for the entropy of the attention: minus keeps it broad, plus lets its logits grow."""
    torch.manual_seed(23)
    model = Gather()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss(x, y):
        wrong = F.cross_entropy(model(x), y)
        broad = sum(-(layer.attn.weights * (layer.attn.weights + 1e-9).log()).sum(-1).mean() for layer in model.layers)
        return wrong + weight * broad

    return fit(factory, model, opt, *split(48, 300, *clouds(1400)), 250, loss=loss)


class Hours(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(3, 40, batch_first=True), nn.Linear(40, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])[:, 0]


def forecast(factory, *, raw=False, rate=5e-3):
    torch.manual_seed(24)
    model = Hours()
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    parts = split(64, 300, *weather(1500, raw))
    return fit(factory, model, opt, *parts, 200, loss=lambda x, y: F.l1_loss(model(x), y), clip=5.0)


class Causal(nn.Module):
    """Dilated convolutions along the time, weight-normed."""

    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(width if index else 1, width, 3, dilation=2**index))
            for index in range(4)
        )
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        x = x[:, None]
        for layer in self.layers:
            new = F.leaky_relu(layer(F.pad(x, (2 * layer.dilation[0], 0))), 0.1)
            x = x + new if x.shape == new.shape else new
        return self.out(x.mean(2))


def tcn(factory, *, stale=False, until=None):
    """The net is copied after the optimizer was made, or its rate comes to 0 too soon."""
    torch.manual_seed(25)
    model = Causal()
    opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
    if stale:
        model = copy.deepcopy(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(0.0, 1 - s / until) if until else 1.0)
    return fit(factory, model, opt, *split(50, 300, *waves(1500)), 160, scheduler=schedule)


TRAININGS = (
    broken("gpt-residual-twice", "residual grows", gpt_deep, {"again": True}),
    broken("gpt-summed-loss", "wrong reduction", gpt_sgd, {"reduction": "sum"}),
    broken("gpt-tied-two-optimizers", "tied twice", two_optimizers, {"twice": True}),
    broken("vit-scale-upside-down", "saturated attention", vit_one_head, {"scale": 8.0}, layer="attn"),
    broken("vit-post-norm-at-once", "no warm-up", vit_after, {"warm": 0}),
    broken("sets-entropy-sign", "attention logits", sets, {"weight": 0.5}, layer="attn"),
    broken("weather-in-pascal", "not normalized", forecast, {"raw": True}),
    broken("weather-rate", "rate too large", forecast, {"rate": 1.0}),
    broken("tcn-stale-optimizer", "not in optimizer", tcn, {"stale": True},
           accepted=either("not in optimizer", "no update")),
    broken("tcn-rate-to-zero", "rate decayed", tcn, {"until": 25}, begins=25,
           accepted=either("rate decayed", "no update")),
    Training("gpt-tied", gpt),
    Training("gpt-ten-layers", gpt_deep),
    Training("vit-post-norm-warmed", vit_after),
    Training("sets-broad-attention", sets),
    Training("weather-gru", forecast),
    Training("tcn-weight-norm", tcn),
)  # fmt: skip

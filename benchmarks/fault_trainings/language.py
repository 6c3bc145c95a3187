"""Transformers over bytes and over patches."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import VOCABULARY, batches, glyphs, prose, seeded, windows
from benchmarks.fault_trainings.mlps import wrong
from benchmarks.fault_trainings.training import ACCEPTED, Factory, Outcome, Training, descend, faulty


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, scale: float | None = None, causal: bool = True,
                 qk_norm: bool = False):  # fmt: skip
        super().__init__()
        self.heads, self.causal = heads, causal
        self.scale = (width // heads) ** -0.5 if scale is None else scale
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.query_norm = nn.LayerNorm(width // heads) if qk_norm else nn.Identity()
        self.key_norm = nn.LayerNorm(width // heads) if qk_norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = self.query_norm(query) @ self.key_norm(key).mT * self.scale
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-norm; post-norm with `post`; no norm at all with `bare`."""

    def __init__(self, width: int, heads: int, style: str = "pre", scale: float | None = None, causal: bool = True,
                 qk_norm: bool = False):  # fmt: skip
        super().__init__()
        self.style = style
        self.attention = Attention(width, heads, scale, causal, qk_norm)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1 = nn.Identity() if style == "bare" else nn.LayerNorm(width)
        self.norm2 = nn.Identity() if style == "bare" else nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.style == "post":
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, depth: int = 3, width: int = 48, heads: int = 4, style: str = "pre", scale: float | None = None,
                 tied: bool = False, double_skip: bool = False, length: int = 32):  # fmt: skip
        super().__init__()
        self.double_skip = double_skip
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, style, scale) for _ in range(depth))
        self.norm = nn.LayerNorm(width) if style == "pre" else nn.Identity()
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02 if tied else 0.5)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block(x) if self.double_skip else block(x)  # a block adds its input already
        return self.head(self.norm(x))


def write(
    factory: Factory,
    *,
    rate: float = 3e-3,
    warm: int = 20,
    steps: int = 160,
    parameters: str = "all",
    junk: range = range(0),
    clip: float | None = 1.0,
    sgd: bool = False,
    **form: object,
) -> Outcome:
    """AdamW with warm-up and cosine decay; the batches of `junk` are noise, as from a broken shard."""
    torch.manual_seed(20)
    text, draw = prose(20000), seeded(21)
    model = Gpt(**form)  # type: ignore[arg-type]
    chosen: list[nn.Parameter] = list(model.parameters())
    if parameters == "suffixes":  # the usual filter, which knows no bare parameter
        chosen = [p for name, p in model.named_parameters() if name.endswith((".weight", ".bias"))]
    elif parameters == "children":  # a tied weight comes with both of its modules
        chosen = [p for child in model.children() for p in child.parameters()] + [model.position]
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(chosen, lr=rate, weight_decay=0.1)
    if sgd:
        optimizer = torch.optim.SGD(chosen, lr=rate, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / max(warm, 1)) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
    )

    def loss_at(step: int) -> torch.Tensor:
        inputs, targets = windows(text, 16, 32, draw)
        if step in junk:
            inputs = torch.randint(VOCABULARY, inputs.shape, generator=draw)
            targets = torch.randint(VOCABULARY, inputs.shape, generator=draw)
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    losses = descend(factory, model, optimizer, loss_at, steps, scheduler=scheduler, clip=clip)
    inputs, targets = windows(prose(6000, seed=77), 64, 32, seeded(5))
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).item())


class Vit(nn.Module):
    def __init__(self, width: int = 48, depth: int = 3, scale: float | None = None, qk_norm: bool = False):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, 4, scale=scale, causal=False, qk_norm=qk_norm) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).mT
        x = torch.cat([self.cls.expand(len(x), -1, -1), patches], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit(factory: Factory, *, rate: float = 2e-3, scale: float | None = None, qk_norm: bool = False) -> Outcome:
    torch.manual_seed(22)
    images, labels = glyphs(1500, noise=0.6)
    order = batches(1500, 64)
    model = Vit(scale=scale, qk_norm=qk_norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    losses = descend(
        factory, model, optimizer,
        lambda step: F.cross_entropy(model(images[order[step % 64]]), labels[order[step % 64]]), 150,
        scheduler=scheduler,
    )  # fmt: skip
    return Outcome(losses, wrong(model, noise=0.6))


POST = {"style": "post", "depth": 5, "clip": None, "rate": 2e-2, "steps": 100}
BARE = {"depth": 6, "clip": None, "rate": 3e-2, "steps": 80, "warm": 0}

TRAININGS = (
    Training("gpt-warm-up", write),
    Training("gpt-tied", partial(write, tied=True)),
    Training("gpt-spike-recovers", partial(write, junk=range(70, 73))),
    Training("vit-adamw", vit),
    faulty(
        "gpt-position-filtered-out", "not in optimizer", partial(write, parameters="suffixes"), write, layer="position"
    ),
    faulty(
        "gpt-tied-twice", "tied twice", partial(write, tied=True, parameters="children", sgd=True, rate=0.25),
        partial(write, tied=True, sgd=True, rate=0.25), layer="embedding",
    ),
    faulty("gpt-post-norm-at-once", "no warm-up", partial(write, warm=0, **POST), partial(write, warm=50, **POST)),
    faulty(
        "gpt-double-skip", "residual grows", partial(write, depth=8, steps=100, double_skip=True),
        partial(write, depth=8, steps=100),
    ),
    faulty(
        "gpt-no-norms", "no normalizer", partial(write, style="bare", **BARE), partial(write, **BARE),
        accepted=ACCEPTED["no normalizer"] + ACCEPTED["rate too large"],  # either mends it
    ),
    faulty("vit-scale-inverted", "saturated attention", partial(vit, scale=12.0**0.5 * 4), vit, layer="attention"),
    faulty(
        "vit-logits-grow", "attention logits", partial(vit, rate=1.2e-2), partial(vit, rate=1.2e-2, qk_norm=True),
        layer="attention", begins=15,
    ),
)  # fmt: skip

"""Blocks made of blocks: residuals, gates, in-place writes, shared modules, attention, recurrence."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.fuzz.blocks import MAKERS, Fn, Shape, activation, maker, noise
from tests.fuzz.layers import normalizer


class Wired(nn.Module):
    """A forward written out over a few parts."""

    def __init__(self, name: str, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.name, self.function = name, function
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)

    def extra_repr(self) -> str:
        return self.name


def inner(rng: Random, shape: Shape, keep: bool = False) -> nn.Module:
    """One or two single operations; with ``keep`` only such as leave the shape alone."""
    single = {n: [m for _, m in makers if not m.__module__.endswith("wiring")] for n, makers in MAKERS.items()}
    parts: list[nn.Module] = []
    current = shape
    for _ in range(rng.randint(1, 2)):
        for _ in range(8):
            part = rng.choice(single[len(current)])(rng, current)
            if part is None:
                continue
            part = part.double()
            try:
                with torch.no_grad():
                    after = tuple(part(noise(*current)).shape)
            except (RuntimeError, ValueError, AssertionError, IndexError):
                continue
            if (keep and after != shape) or after[0] != shape[0] or len(after) not in MAKERS or 0 in after:
                continue
            parts.append(part)
            current = after
            break
    return nn.Sequential(*parts) if parts else nn.Identity()


@maker(2, 3, 4)
def residual(rng: Random, shape: Shape) -> nn.Module:
    f = inner(rng, shape, keep=True)
    kind = rng.choice(["x + f", "x - f", "x += f", "f + g", "maximum"])
    if kind == "x += f":

        def grow(x: Tensor, f: nn.Module) -> Tensor:
            y = x * 1.0
            y += f(x)
            return y

        return Wired(kind, grow, f)
    if kind == "f + g":
        return Wired(kind, lambda x, f, g: f(x) + g(x), f, inner(rng, shape, keep=True))
    if kind == "maximum":
        return Wired(kind, lambda x, f: torch.maximum(x, f(x)), f)
    return Wired(kind, (lambda x, f: x + f(x)) if kind == "x + f" else (lambda x, f: torch.sub(x, f(x), alpha=0.5)), f)


@maker(2, 3, 4)
def dense(rng: Random, shape: Shape) -> nn.Module:
    def join(x: Tensor, f: nn.Module, g: nn.Module) -> Tensor:
        y = torch.cat([x, f(x)], 1)
        return torch.cat([y, g(x)], 1)

    return Wired("dense", join, inner(rng, shape, keep=True), inner(rng, shape, keep=True))


@maker(2, 3, 4)
def branches(rng: Random, shape: Shape) -> nn.Module:
    kind = rng.choice(
        [
            "chunk",
            "split",
            "product",
            "gate",
            "broadcast add",
            "quotient",
            "bilinear",
            "square",
            "glu",
            "clamp by branch",
        ]
    )
    f, g = inner(rng, shape, keep=True), inner(rng, shape, keep=True)
    tame = nn.Sequential(g, rng.choice([nn.Sigmoid(), nn.Tanh(), nn.LayerNorm(shape[-1]), nn.Softmax(1)]))
    if kind in ("chunk", "split") and shape[1] > 1:
        k = rng.randint(1, shape[1] - 1)

        def cut(x: Tensor, f: nn.Module) -> Tensor:
            a, b = (x[:, :k], x[:, k:]) if kind == "chunk" else x.split([k, x.shape[1] - k], 1)
            return torch.cat([f(b), a.relu()], 1)

        return Wired(kind, cut, activation(rng, (shape[0], shape[1] - k, *shape[2:])))
    if kind == "gate":
        axes = tuple(range(2, len(shape))) or (1,)
        gate = nn.Sequential(nn.Linear(shape[1] if len(shape) > 2 else 1, shape[1]), nn.Sigmoid())

        def squeeze(x: Tensor, gate: nn.Module) -> Tensor:
            s = gate(x.mean(axes) if x.ndim > 2 else x.mean(1, keepdim=True))
            return x * s.reshape(*s.shape, *[1] * (x.ndim - 2))

        return Wired(kind, squeeze, gate)
    if kind == "broadcast add":
        return Wired(kind, lambda x, f: f(x) + x.mean(-1, keepdim=True), f)
    if kind == "quotient":
        return Wired(kind, lambda x, f: f(x) / (1.5 + x.square().mean(-1, keepdim=True).sigmoid()), f)
    if kind == "square":
        return Wired(kind, lambda x, f: f(x).square() + f(x).sigmoid().exp(), tame)
    if kind == "glu" and shape[1] % 2 == 0:
        return nn.GLU(1)
    if kind == "bilinear" and len(shape) == 2:
        return Wired(kind, lambda x, t, b: b(t(x), x.tanh()), tame, nn.Bilinear(shape[1], shape[1], 3))
    if kind == "clamp by branch":
        return Wired(kind, lambda x, f: torch.max(f(x), x.mean(-1, keepdim=True)), f)
    return Wired("product", lambda x, a, b: a(x) * b(x), nn.Sequential(f, nn.Tanh()), tame)


@maker(2, 3, 4)
def in_place(rng: Random, shape: Shape) -> nn.Module:
    k, kind = (
        rng.randint(0, shape[1] - 1),
        rng.choice(["relu_", "write", "view", "add_", "fill", "module", "input", "twice"]),
    )
    weight = noise(shape[-1])

    def run(x: Tensor, act: nn.Module, w: Fn) -> Tensor:
        y = x * 1.5 if kind != "input" else x
        if kind == "relu_":
            return F.relu_(y)
        if kind == "write":
            y[:, : k + 1] = act(x)[:, : k + 1]
        elif kind == "view":
            part = y[:, k:]
            part.mul_(2.0)
            return y + x
        elif kind == "add_":
            y.add_(act(x), alpha=-0.5).mul_(w(x))
        elif kind == "fill":
            y[:, k] = 0.5
        elif kind == "input":
            y[:, k] *= 3.0
        elif kind == "twice":
            flat = y.flatten(1)
            y[:, k] += 1.0
            flat[:, 0] = x.flatten(1)[:, -1]
            return y + flat.sum(1).reshape(-1, *[1] * (y.ndim - 1))
        else:
            return nn.Sequential(nn.LeakyReLU(0.2, inplace=True), nn.Hardtanh(-3, 3, inplace=True))(y)
        return y

    return Wired(f"in place: {kind}, {k}", run, activation(rng, shape), Fn("w", lambda x, w: w, w=weight))


@maker(2, 3)
def shared(rng: Random, shape: Shape) -> nn.Module:
    layer = nn.Linear(shape[-1], shape[-1])
    norm = normalizer(rng, shape) or nn.Identity()
    return Wired("shared", lambda x, f, g: f(g(f(x)).relu()) + f(x), layer, norm)


@maker(3)
def attention(rng: Random, shape: Shape) -> nn.Module:
    _, tokens, width = shape
    q, k, v = nn.Linear(width, 4), nn.Linear(width, 4), nn.Linear(width, rng.choice([4, 3]))
    norm = rng.choice([nn.LayerNorm(width, eps=1e-2), nn.RMSNorm(width, eps=1e-2), nn.Identity()])
    causal = rng.random() < 0.4

    def by_hand(x: Tensor, n: nn.Module, q: nn.Module, k: nn.Module, v: nn.Module) -> Tensor:
        h = n(x)
        return torch.softmax(q(h) @ k(h).transpose(1, 2) / 2, -1) @ v(h)

    def fused(x: Tensor, n: nn.Module, q: nn.Module, k: nn.Module, v: nn.Module) -> Tensor:
        h = n(x)
        if v.out_features == 4 and tokens > 1 and not causal:  # two heads
            parts = [p(h).reshape(len(x), tokens, 2, 2).transpose(1, 2) for p in (q, k, v)]
            return F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return F.scaled_dot_product_attention(q(h), k(h), v(h), is_causal=causal)

    kind = rng.choice(["by hand", "fused", "fused", "module", "encoder"])
    if kind == "module" and width % 2 == 0:
        return Wired(
            kind,
            lambda x, n, m: m(n(x), n(x), n(x), need_weights=False)[0],
            norm,
            nn.MultiheadAttention(width, 2, batch_first=True),
        )
    if kind == "encoder" and width % 2 == 0:
        return nn.TransformerEncoderLayer(width, 2, 5, dropout=0.0, batch_first=True, norm_first=rng.random() < 0.5)
    return Wired(kind, by_hand if kind == "by hand" else fused, norm, q, k, v)


@maker(3)
def recurrent(rng: Random, shape: Shape) -> nn.Module:
    kind = rng.choice([nn.LSTM, nn.GRU, nn.RNN])
    return Wired(kind.__name__, lambda x, r: r(x)[0], kind(shape[-1], 2, batch_first=True))

"""Small transformers, their attention written in many ways."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, WORDS = 16, 4, 11


class Transposed(nn.Module):
    """A linear layer whose weight is (inputs, outputs), as GPT-2 was published."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.nf = outputs
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(inputs))
        self.bias = nn.Parameter(torch.randn(outputs) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], self.nf)


def turned(x: Tensor) -> Tensor:
    """Rotary positions."""
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.1] * (x.shape[-1] // 2)).to(x)
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


class Attending(nn.Module):
    """One attention; ``how`` says how it is written."""

    def __init__(self, how: str, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.how, self.each, self.kv = how, WIDTH // HEADS, kv_heads * (WIDTH // HEADS)
        if how in ("separate", "turned", "normed"):
            self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, self.kv)
            self.three = nn.Linear(WIDTH, self.kv)
        elif how == "transposed":
            self.all = Transposed(3 * WIDTH, WIDTH)
        else:
            self.all = nn.Linear(WIDTH, 3 * WIDTH)
        if how == "normed":
            self.scale = nn.LayerNorm(self.each)
        self.last = Transposed(WIDTH, WIDTH) if how == "transposed" else nn.Linear(WIDTH, WIDTH)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads, positions, width)."""
        count, length, _ = x.shape
        if self.how == "inside":
            q, k, v = self.all(x).view(count, length, HEADS, 3 * self.each).chunk(3, -1)
            return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if self.how == "unbound":
            q, k, v = self.all(x).reshape(count, length, 3, HEADS, self.each).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        apart = self.how in ("separate", "turned", "normed")
        three = (
            (self.one(x), self.two(x), self.three(x))
            if apart
            else self.all(x).split(WIDTH, 2 if self.how == "fused" else -1)
        )
        q, k, v = (t.view(count, length, -1, self.each).transpose(1, 2) for t in three)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        if self.how == "turned":
            q, k = turned(q), turned(k)
        if self.how == "normed":
            q, k = self.scale(q), self.scale(k)
        k, v = (t.repeat_interleave(HEADS // t.shape[1], 1) for t in (k, v))
        if self.how == "written":
            seen = torch.ones(x.shape[1], x.shape[1]).tril() == 0
            logits = (q @ k.mT * self.each**-0.5).masked_fill(seen, -math.inf)
            made = logits.softmax(-1) @ v
        else:
            made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.last(made.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Attention and a pair of matrices, each behind a normalizer and beside a skip."""

    def __init__(self, how: str, norm: Callable[[int], nn.Module], kv_heads: int) -> None:
        super().__init__()
        self.first, self.second = norm(WIDTH), norm(WIDTH)
        self.attend = (
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) if how == "torch" else Attending(how, kv_heads)
        )
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + (self.attend(y, y, y)[0] if isinstance(self.attend, nn.MultiheadAttention) else self.attend(y))
        return x + self.down(F.relu(self.up(self.second(x))))


class SmallGPT(nn.Module):
    """Two blocks between an embedding and a head, in float64."""

    def __init__(
        self, how: str = "fused", norm: Callable[[int], nn.Module] = nn.LayerNorm, kv_heads: int = HEADS, seed: int = 0
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(how, norm, kv_heads) for _ in range(2))
        self.norm, self.head = norm(WIDTH), nn.Linear(WIDTH, WORDS)
        self.double()
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.LayerNorm | nn.RMSNorm):
                    for parameter in module.parameters():
                        parameter.add_(0.3 * torch.randn_like(parameter))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

"""Small transformers: a causal language model and a vision transformer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from normgauge.core.errors import InputError
from normgauge.lab.zoo.parts import NormFactory, build_activation

Position = Literal["pre", "post"]


class Attention(nn.Module):
    """Multi-head self-attention with a linear map each for ``query``, ``key``, ``value`` and ``out``."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend within each sequence of ``x``, (N, T, width)."""
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        return x.view(n, length, self.heads, width // self.heads).transpose(1, 2)  # (N, heads, T, width / heads)


class FeedForward(nn.Sequential):
    """``up``, ``act``, ``down``: one hidden layer at each position by itself."""

    def __init__(self, width: int, hidden: int, act: str) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.act = build_activation(act)
        self.down = nn.Linear(hidden, width)


class TransformerBlock(nn.Module):
    """Attention, then a feed-forward layer, each with a residual.

    pre:   x + f(norm(x));     post:   norm(x + f(x))
    """

    def __init__(
        self, attn: Attention, mlp: FeedForward, norm: NormFactory, position: Position, dropout: float
    ) -> None:
        super().__init__()
        width = attn.out.out_features
        self.pre = position == "pre"
        self.norm1, self.attn = norm(width), attn
        self.norm2, self.mlp = norm(width), mlp
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block to ``x``, (N, T, width)."""
        if self.pre:
            x = x + self.drop(self.attn(self.norm1(x)))
            x = x + self.drop(self.mlp(self.norm2(x)))
        else:
            x = self.norm1(x + self.drop(self.attn(x)))
            x = self.norm2(x + self.drop(self.mlp(x)))
        return x


class GPT(nn.Module):
    """Causal language model: ``token`` and ``place`` embeddings, ``blocks``, ``norm``, ``head``."""

    def __init__(self, vocab: int, width: int, context: int, blocks: nn.Sequential, norm: nn.Module) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocab, width)
        self.place = nn.Embedding(context, width)
        self.blocks = blocks
        self.norm = norm
        self.head = nn.Linear(width, vocab, bias=False)
        self.apply(_initialize)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next token at each position, (N, T) int64 to (N, T, vocab).

        Raises:
            InputError: if there are more tokens than the context holds.
        """
        length = tokens.shape[1]
        if length > self.context:
            raise InputError(f"{length} tokens do not fit a context of {self.context}; give gpt(context={length}).")
        x = self.token(tokens) + self.place(torch.arange(length, device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


class ViT(nn.Module):
    """Vision transformer: ``patch`` convolution, ``place`` embedding, ``blocks``, ``norm``, mean pool, ``head``."""

    def __init__(self, patch: nn.Conv2d, image: int, blocks: nn.Sequential, norm: nn.Module, num_classes: int) -> None:
        super().__init__()
        width, side = patch.out_channels, image // patch.kernel_size[0]
        self.image = image
        self.patch = patch
        self.place = nn.Parameter(0.02 * torch.randn(1, side * side, width))
        self.blocks = blocks
        self.norm = norm
        self.head = nn.Linear(width, num_classes)
        self.apply(_initialize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of images, (N, channels, image, image) to (N, classes).

        Raises:
            InputError: if the images are of another size.
        """
        if tuple(x.shape[-2:]) != (self.image, self.image):
            raise InputError(f"expected images of {self.image} x {self.image}, got {tuple(x.shape[-2:])}.")
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place  # (N, patches, width)
        return self.head(self.norm(self.blocks(x)).mean(1))


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _blocks(
    width: int, depth: int, heads: int, norm: NormFactory, position: Position, *, causal: bool, act: str, dropout: float
) -> nn.Sequential:
    if heads < 1 or width % heads:
        raise InputError(f"width={width} does not divide into heads={heads}.")
    if position not in ("pre", "post"):
        raise InputError(f"position={position!r} is not known; use 'pre' or 'post'.")
    return nn.Sequential(
        *(
            TransformerBlock(
                Attention(width, heads, causal=causal, dropout=dropout),
                FeedForward(width, 4 * width, act),
                norm,
                position,
                dropout,
            )
            for _ in range(depth)
        )
    )


def _final(norm: NormFactory, position: Position, width: int) -> nn.Module:
    """The norm before the head, which a post-norm network already has in its last block."""
    return norm(width) if position == "pre" else nn.Identity()


def gpt(
    vocab: int = 65,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    context: int = 64,
    norm: str | None = "layer",
    position: Position = "pre",
    *,
    activation: str = "gelu",
    dropout: float = 0.0,
    affine: bool = True,
    eps: float | None = None,
) -> GPT:
    """Build a causal language model.

    Args:
        vocab: number of tokens.
        width: features a position.
        depth: number of blocks.
        heads: attention heads; must divide the width.
        context: longest sequence.
        norm: "layer", "rms" or None.
        position: "pre" (norm inside the residual branch) or "post" (norm after the sum).
        activation: name of the activation in the feed-forward layers.
        dropout: probability of dropping an attention weight or a branch's output while training.
        affine: whether the normalization layers have a gain and a bias.
        eps: their eps; None for the module's default.

    Returns:
        The network.

    Raises:
        InputError: if an option is not known or does not fit.
    """
    kind = NormFactory(norm, "tokens", affine, eps)
    blocks = _blocks(width, depth, heads, kind, position, causal=True, act=activation, dropout=dropout)
    return GPT(vocab, width, context, blocks, _final(kind, position, width))


def vit(
    image: int = 32,
    patch: int = 4,
    channels: int = 3,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    num_classes: int = 10,
    norm: str | None = "layer",
    position: Position = "pre",
    *,
    activation: str = "gelu",
    dropout: float = 0.0,
    affine: bool = True,
    eps: float | None = None,
) -> ViT:
    """Build a vision transformer with a mean over patches in place of a class token.

    Args:
        image: height and width of the images.
        patch: height and width of a patch; must divide the image.
        channels: channels of the images.
        width: features a patch.
        depth: number of blocks.
        heads: attention heads; must divide the width.
        num_classes: number of outputs.
        norm: "layer", "rms" or None.
        position: "pre" (norm inside the residual branch) or "post" (norm after the sum).
        activation: name of the activation in the feed-forward layers.
        dropout: probability of dropping an attention weight or a branch's output while training.
        affine: whether the normalization layers have a gain and a bias.
        eps: their eps; None for the module's default.

    Returns:
        The network.

    Raises:
        InputError: if an option is not known or does not fit.
    """
    if patch < 1 or image % patch:
        raise InputError(f"image={image} does not divide into patches of {patch}.")
    kind = NormFactory(norm, "tokens", affine, eps)
    blocks = _blocks(width, depth, heads, kind, position, causal=False, act=activation, dropout=dropout)
    embed = nn.Conv2d(channels, width, patch, stride=patch)
    return ViT(embed, image, blocks, _final(kind, position, width), num_classes)

"""Data made on the spot, the same at every run."""

from __future__ import annotations

import torch
import torch.nn.functional as F

WORDS = [
    "the",
    "a",
    "small",
    "large",
    "red",
    "old",
    "river",
    "house",
    "stone",
    "bird",
    "horse",
    "sees",
    "finds",
    "follows",
    "carries",
    "near",
    "under",
    "over",
    "quiet",
    "morning",
    "evening",
    "and",
    "then",
    "because",
    "while",
    "it",
    "they",
    "we",
    "walk",
    "sleep",
    "build",
]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def glyphs(count: int, size: int = 8, classes: int = 10, seed: int = 1, noise: float = 1.0, channels: int = 1):  # type: ignore[no-untyped-def]
    """Images of mean about 0 and deviation about 1: one smooth pattern a class, shifted and with noise."""
    coarse = torch.randn(classes, channels, 4, 4, generator=seeded(size + 100 * classes + 7 * channels))
    patterns = F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
    patterns = patterns / patterns.std()
    draw = seeded(seed)
    labels = torch.randint(classes, (count,), generator=draw)
    shifts = torch.randint(-1, 2, (count, 2), generator=draw).tolist()
    images = torch.stack(
        [
            patterns[label].roll((down, right), (1, 2))
            for label, (down, right) in zip(labels.tolist(), shifts, strict=True)
        ]
    )
    return images + noise * torch.randn(images.shape, generator=draw), labels


def prose(length: int, seed: int = 3) -> torch.Tensor:
    """Bytes of a made-up text, each word likely to be followed by one of three."""
    draw, word, parts = seeded(seed), 0, []
    while sum(map(len, parts)) + len(parts) < length:
        parts.append(WORDS[word])
        word = (3 * word + int(torch.randint(3, (1,), generator=draw))) % len(WORDS)
    return torch.tensor(list(" ".join(parts).encode()[:length])) - 32


VOCABULARY = 96  # printable bytes


def windows(text: torch.Tensor, count: int, length: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pieces of a text, and the same one byte later."""
    starts = torch.randint(len(text) - length - 1, (count,), generator=draw)
    pieces = torch.stack([text[start : start + length + 1] for start in starts.tolist()])
    return pieces[:, :-1], pieces[:, 1:]


def table(count: int, seed: int = 5, columns: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of standard features and a smooth target of them, mean 0."""
    draw = seeded(seed)
    features = torch.randn(count, columns, generator=draw)
    target = torch.sin(features[:, 0] * 2) + features[:, 1] * features[:, 2] + 0.5 * features[:, 3].abs()
    return features, (target - target.mean())[:, None] + 0.05 * torch.randn(count, 1, generator=draw)


def waves(count: int, length: int = 24, seed: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of one of four wave forms, to be told apart."""
    draw = seeded(seed)
    kinds = torch.randint(4, (count,), generator=draw)
    phase = torch.rand(count, 1, generator=draw) * 6.28
    time = torch.arange(length)[None] * 0.5 + phase
    forms = torch.stack([time.sin(), time.sin().sign(), (2 * time).sin(), time.cos() * time.sin().abs()], 1)
    chosen = forms[torch.arange(count), kinds]
    return (chosen + 0.2 * torch.randn(chosen.shape, generator=draw))[..., None], kinds


def batches(count: int, size: int, seed: int = 11) -> list[torch.Tensor]:
    """Indices of random batches, for ever the same: take them modulo the length."""
    draw = seeded(seed)
    return [torch.randint(count, (size,), generator=draw) for _ in range(64)]

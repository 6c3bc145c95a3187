"""Networks for benchmarks/speed.py: those that people measure, and families that grow in one size alone.

Weights are random, of seed 0, unless said; nothing is downloaded.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import LoadError
from normgauge.lab.training import train
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, cifar10, cifar_resnet, digits, gpt, load_state

Built = tuple[nn.Module, Any]  # a network in eval mode and a batch for it
SIDE, TOKENS, CALIBRATING = 224, 64, 4  # pixels, words, images that BatchNorm statistics are taken from


class Absent(Exception):
    """What a case needs is not here."""


@dataclass(frozen=True, slots=True)
class Model:
    """A network that people use.

    Attributes:
        build: makes it.
        goals: CPU seconds on one thread that each kind of reading may take.
    """

    build: Callable[[], Built]
    goals: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A family of networks that grows in one size.

    Attributes:
        build: makes the member of a size.
        sizes: all of them, growing; the slope is that of the upper half.
        quick: two small ones.
        goal: the largest log-log slope wanted, None where none is set.
    """

    build: Callable[[int], Built]
    sizes: tuple[int, ...]
    quick: tuple[int, ...] = field(kw_only=True)
    goal: float | None = None


def calibrated(model: nn.Module, batch: Any) -> nn.Module:
    """The network with the BatchNorm statistics of one batch, in eval mode."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if norms:
        usual = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches seen, of which there is one
        with torch.no_grad():
            model.train()(batch)
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
    return model.eval()


def from_transformers(kind: str, config: str, **sizes: Any) -> nn.Module:
    """A network of transformers with random weights.

    Raises:
        Absent: without transformers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import transformers
        except ImportError as error:
            raise Absent("transformers is not installed (pip install normgauge[llm])") from error
        transformers.logging.set_verbosity_error()
        return getattr(transformers, kind)(getattr(transformers, config)(**sizes)).float()


def image_model(family: str, **sizes: Any) -> Built:
    """A classifier of 1,000 classes and one image."""
    model = from_transformers(f"{family}ForImageClassification", f"{family}Config", num_labels=1000, **sizes)
    calibrated(model, torch.randn(CALIBRATING, 3, SIDE, SIDE))
    return model, {"pixel_values": torch.randn(1, 3, SIDE, SIDE)}


def gpt2() -> Built:
    """The smallest GPT-2, its head tied to the embedding."""
    model = from_transformers("GPT2LMHeadModel", "GPT2Config", use_cache=False).eval()
    return model, {"input_ids": torch.randint(50257, (1, TOKENS))}


def trained_resnet20() -> Built:
    """The trained network of benchmarks/resnets.py with its first 100 test images.

    Raises:
        Absent: without the folder of data.
    """
    folder = os.environ.get("NORMGAUGE_DATA")
    if folder is None:
        raise Absent("set NORMGAUGE_DATA to the folder with weights/ and cifar-10-batches-bin/")
    try:
        model = load_state(cifar_resnet(20), Path(folder) / "weights" / "resnet20_cifar10.safetensors")
        images = cifar10("test", folder=folder, limit=100)
    except LoadError as error:
        raise Absent(str(error)) from error
    return model.eval(), images.normalized(IMAGENET_MEAN, IMAGENET_STD).inputs


def digits_mlp() -> Built:
    """The plain ReLU network 64-32-32-10 of the README's comparison, trained as there, with 200 test images.

    Raises:
        Absent: without scikit-learn.
    """
    try:
        raw = digits("train")
    except LoadError as error:
        raise Absent(str(error)) from error
    mean, spread = raw.inputs.mean(0), raw.inputs.std(0) + 0.05
    model = perceptron((64, 32, 32, 10))
    train(model, dataclasses.replace(raw, inputs=(raw.inputs - mean) / spread), epochs=20, lr=3e-3)
    return model.eval(), (digits("test", limit=200).inputs - mean) / spread


def lstm() -> Built:
    """Two bidirectional layers of hidden size 3 on five steps of six features."""
    return nn.LSTM(6, 3, 2, bidirectional=True, batch_first=True).eval(), torch.randn(2, 5, 6)


def perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear maps with ReLU between them."""
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def wide_mlp(width: int) -> Built:
    """Three hidden layers."""
    return perceptron((width, width, width, width, 10)).eval(), torch.randn(4, width)


def deep_mlp(depth: int) -> Built:
    """Hidden layers of 64, started so that what passes 64 of them neither vanishes nor explodes."""
    model = perceptron((64,) * (depth + 1)).eval()
    for layer in model[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model, torch.randn(4, 64)


def conv_net(channels: int = 16, side: int = 16, batch: int = 4) -> Built:
    """Three convolutions, the first two with BatchNorm, a mean over pixels, a head."""
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10),
    )  # fmt: skip
    return calibrated(model, torch.randn(32, 3, side, side)), torch.randn(batch, 3, side, side)


class Block(nn.Module):
    """x + conv(relu(norm(conv(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.norm(self.first(x))))


def residual_net(blocks: int) -> Built:
    """Residual blocks of eight channels on 8 × 8 pixels."""
    stem, head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 10)
    model = nn.Sequential(stem, *(Block(8) for _ in range(blocks)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    return calibrated(model, torch.randn(32, 3, 8, 8)), torch.randn(4, 3, 8, 8)


def small_gpt(tokens: int) -> Built:
    """Two blocks of width 32 with four heads."""
    return gpt(vocab=65, width=32, depth=2, heads=4, context=tokens).eval(), torch.randint(65, (1, tokens))


VIT_S = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}
BASIC = {"layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]}
MODELS: dict[str, Model] = {
    "digits-mlp": Model(digits_mlp, {"quick": 0.5}),
    "lstm": Model(lstm, {"quick": 5}),
    "resnet20": Model(trained_resnet20, {"quick": 10}),
    "vit-s16": Model(partial(image_model, "ViT", **VIT_S), {"quick": 25}),
    "resnet18": Model(partial(image_model, "ResNet", **BASIC), {"quick": 25}),
    "resnet50": Model(partial(image_model, "ResNet"), {"quick": 50}),
    "gpt2": Model(gpt2, {"quick": 90, "point": 60}),
    "convnext-t": Model(partial(image_model, "ConvNext"), {"quick": 60}),
}
SWEEPS: dict[str, Sweep] = {
    "width": Sweep(wide_mlp, (256, 512, 1024, 1448, 2048), quick=(16, 64), goal=2.2),
    "depth": Sweep(deep_mlp, (4, 8, 16, 32, 48, 64), quick=(2, 4), goal=1.1),
    "residual": Sweep(residual_net, (2, 4, 8, 12, 16), quick=(1, 2), goal=1.1),
    "channels": Sweep(conv_net, (16, 32, 64, 96, 128), quick=(2, 4), goal=2.2),
    "image": Sweep(lambda side: conv_net(side=side), (16, 24, 32, 48, 64), quick=(3, 4), goal=2.2),
    "tokens": Sweep(small_gpt, (16, 32, 64, 96, 128), quick=(2, 4), goal=1.2),
    "batch": Sweep(lambda batch: conv_net(8, 8, batch), (1, 4, 16, 32, 64), quick=(1, 2)),
}


def build(name: str) -> Built:
    """The network and the batch of a row: the name of a model, or of a sweep and a size."""
    torch.manual_seed(0)
    family, _, size = name.partition(" ")
    return SWEEPS[family].build(int(size)) if size else MODELS[name].build()

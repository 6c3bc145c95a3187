"""How near the headline at a point is to the largest slope there, and what it takes against one backward pass.

    NORMGAUGE_DATA=FOLDER python -m benchmarks.points [NAME ...] [--effort long] [--json FILE]

Every network is read at one sample (ten for the small ones, of which the worst counts): upper over lower, how it is
known, and CPU seconds of one thread for the norm of the Jacobian, beside one forward and backward pass of the model
itself in its own precision. Weights are random, of seed 0, but for ResNet-20's, and none are downloaded; convolutions
of EfficientNet start by He's rule, since the usual one lets its signal vanish.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import references
from benchmarks.speed_nets import (
    VIT_S,
    Absent,
    Built,
    calibrated,
    digits_mlp,
    from_transformers,
    image_model,
    trained_resnet20,
)
from normgauge.core.bound import Scope
from normgauge.instrument.balance import folded_bound
from normgauge.instrument.local.headline import Headline, at_points
from normgauge.instrument.session import Options, opened
from normgauge.instrument.slopes import largest_slope

SAMPLES, TOKENS, REPEATS = 10, 16, 3
PROVED, COMPUTED = 1.001, 1.01  # goals of upper over lower
B3 = {"width_coefficient": 1.2, "depth_coefficient": 1.4, "image_size": 300, "hidden_dim": 1536, "num_labels": 1000}


def few(build: Callable[[], Built]) -> Built:
    """The same network with its first samples."""
    model, batch = build()
    return model, batch[:SAMPLES]


def efficientnet_b3() -> Built:
    """EfficientNet-B3 on one image of 300 × 300 pixels."""
    model = from_transformers("EfficientNetForImageClassification", "EfficientNetConfig", **B3)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    side = B3["image_size"]
    calibrated(model, torch.randn(4, 3, side, side))
    return model, {"pixel_values": torch.randn(1, 3, side, side)}


def minilm() -> Built:
    """all-MiniLM-L6-v2 with its published weights, and its sentences.

    Raises:
        Absent: without the package that holds the weights.
    """
    try:
        subject = references.minilm()
    except SystemExit as why:
        raise Absent(str(why)) from None
    return subject.model, subject.batch


def words(kind: str, config: str, vocabulary: int, **sizes: Any) -> Built:
    """A language model and one sequence of tokens."""
    model = from_transformers(kind, config, **sizes).eval()
    return model, {"input_ids": torch.randint(vocabulary, (1, TOKENS))}


NETS: dict[str, tuple[Callable[[], Built], float]] = {
    "MLP 64-32-32-10": (partial(few, digits_mlp), PROVED),
    "ResNet-20": (partial(few, trained_resnet20), PROVED),
    "MiniLM": (minilm, COMPUTED),
    "BERT": (partial(words, "BertModel", "BertConfig", 30522), COMPUTED),
    "GPT-2": (partial(words, "GPT2LMHeadModel", "GPT2Config", 50257, use_cache=False), COMPUTED),
    "ViT-S/16": (partial(image_model, "ViT", **VIT_S), COMPUTED),
    "EfficientNet-B3": (efficientnet_b3, COMPUTED),
}


def passes(model: nn.Module, batch: Any) -> tuple[float, float]:
    """CPU seconds of a forward and of a backward pass, the smallest of a few."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        out = model(**batch) if isinstance(batch, dict) else model(batch)
        out = out if isinstance(out, Tensor) else out[0]
        half = time.process_time()
        out.sum().backward()
        found.append((half - start, time.process_time() - half))
        model.zero_grad(set_to_none=True)
    return min(f for f, _ in found), min(b for _, b in found)


def measured(model: nn.Module, batch: Any, effort: str) -> dict[str, Any]:
    """Both ends at the samples, how the upper one is known, and CPU seconds for each."""
    with opened(model, batch, Options(effort=effort)) as session:
        parts = session.composed(Scope.parse("point"))
        folded = Headline(folded_bound(parts).log_upper)
        start = time.process_time()
        top = at_points(session, parts, folded)
        half = time.process_time()
        found = largest_slope(session, parts)
        end = time.process_time()
    return {
        "upper": math.exp(top.total) if top.total < 700 else math.inf,
        "lower": math.exp(found.log_best),
        "log10_product": folded.total / math.log(10),
        "method": top.method,
        "evidence": top.evidence.value if top.evidence else "proved",
        "failure_probability": top.chance,
        "cpu_seconds": round(half - start, 2),
        "cpu_seconds_lower": round(end - half, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NETS)}")
    parser.add_argument("--effort", default="long")
    parser.add_argument("--json", metavar="FILE", help="rows of other networks in it are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kept = Path(options.json) if options.json else None
    rows = {row["network"]: row for row in json.loads(kept.read_text())} if kept and kept.exists() else {}
    for name in options.names or NETS:
        build, goal = NETS[name]
        torch.manual_seed(0)
        try:
            model, batch = build()
        except Absent as why:
            print(f"{name}: {why}")
            continue
        forward, backward = passes(model, batch)
        row = {"network": name, "effort": options.effort, "goal": goal, **measured(model, batch, options.effort)}
        row |= {"ratio": round(row["upper"] / row["lower"], 6), "cpu_forward": forward, "cpu_backward": backward}
        row["backward_passes"] = round(row["cpu_seconds"] / backward, 1)
        rows[name] = row
        print(
            f"{name}: {row['ratio']:.5f} (goal {goal}), {row['evidence']}, p = {row['failure_probability']:.1e}, "
            f"{row['cpu_seconds']} CPU s = {row['backward_passes']} backward passes",
            flush=True,
        )
        if kept:
            kept.write_text(json.dumps(list(rows.values()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

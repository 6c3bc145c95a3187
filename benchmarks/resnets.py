"""The real CIFAR-10 ResNets: proved bound, largest slope found, and CPU seconds of each part.

    NORMGAUGE_DATA=/path python benchmarks/resnets.py [--depths 20 56] [--scopes global] [--json FILE]

The first 100 test images, normalized as the networks were trained.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.loop import LoopEffort, loop_bound
from normgauge.instrument.session import opened
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, cifar10, cifar_resnet, load_state

LOOP_STEPS = {20: 200}  # of the descent on the weights; more for the deeper ones


def loop_column(model: nn.Module, images: Tensor, steps: int) -> dict[str, Any]:
    """The bound of the loop transformation, its chance of being wrong, and its CPU seconds after the rules'."""
    with opened(model, images[:4]) as session:
        parts = session.composed(Scope.parse("global"))
        folded, _ = session.bounds(parts)
        start = time.process_time()
        found = loop_bound(session, parts, folded, LoopEffort(steps=steps))
        seconds = time.process_time() - start
    if found is None:
        return {}
    return {"log10_loop": found.total / math.log(10), "loop_chance": found.chance, "loop_cpu_seconds": seconds}


def measure(depth: int, scope: str, data: Path) -> dict[str, Any]:
    model = load_state(cifar_resnet(depth), data / "weights" / f"resnet{depth}_cifar10.safetensors").eval()
    images = cifar10("test", folder=data, limit=100).normalized(IMAGENET_MEAN, IMAGENET_STD).inputs
    reading = ng.gauge(model, images, scope=scope)
    owner = reading.gap_owner()
    loop = loop_column(model, images, LOOP_STEPS.get(depth, 300)) if scope == "global" else {}
    return {
        **loop,
        "depth": depth,
        "scope": scope,
        "log10_upper": reading.log10_upper,
        "log10_folded": reading.log_folded / math.log(10),
        "lower": math.exp(reading.log_lower),
        "theorem9": reading.published["log10_theorem9"],
        "P_w": reading.published["log10_P_w"],
        "owner": None if owner is None else owner.name,
        "cpu_seconds": dict(reading.seconds),
    }


def loop_words(row: dict[str, Any]) -> str:
    if "log10_loop" not in row:
        return ""
    return f"loop 10^{row['log10_loop']:.2f} ({row['loop_cpu_seconds']:.1f} CPU s, chance {row['loop_chance']:.0e}), "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[20, 56])
    parser.add_argument("--scopes", nargs="+", default=["global"])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    folder = os.environ.get("NORMGAUGE_DATA")
    if folder is None:
        print("set NORMGAUGE_DATA to the folder with weights/ and cifar-10-batches-bin/; nothing was measured")
        return
    rows = [measure(depth, scope, Path(folder)) for depth in options.depths for scope in options.scopes]
    for row in rows:
        parts = ", ".join(f"{k} {v:.1f}" for k, v in row["cpu_seconds"].items())
        print(
            f"ResNet-{row['depth']} {row['scope']}: balanced 10^{row['log10_upper']:.2f}, "
            f"{loop_words(row)}folded 10^{row['log10_folded']:.2f}, "
            f"one by one 10^{row['theorem9']:.2f}, found {row['lower']:.1f}; "
            f"CPU s: {parts} (sum {sum(row['cpu_seconds'].values()):.1f})"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

"""How narrow and how dear the enclosure of a convolution is, on five layers everyone is compared on.

    NORMGAUGE_DATA=/path python benchmarks/conv_width.py [--json FILE]

Cost is CPU time over that of a float32 forward pass of batch 128, both the minimum over repeats in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from normgauge.instrument.spectral.conv import ConvSpec, conv_norm

RESNET20 = {"layer1.0.conv1": (32, 1), "layer2.1.conv1": (16, 1), "layer3.2.conv1": (8, 1), "layer2.0.conv1": (32, 2)}


def cpu_time(run: Callable[[], object], repeats: int) -> float:
    """Least CPU seconds of ``run`` over the repeats, after one run to warm up."""
    run()
    best = math.inf
    for _ in range(repeats):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


def layers() -> dict[str, tuple[Tensor, int, int]]:
    """name → weight, input size, stride."""
    generator = torch.Generator().manual_seed(0)
    found = {
        f"random {c}x{c} @{n}": (torch.randn(c, c, 3, 3, generator=generator) * math.sqrt(2 / (9 * c)), n, 1)
        for c, n in ((64, 32), (512, 4))
    }
    data = os.environ.get("NORMGAUGE_DATA")
    if data is None:
        print("NORMGAUGE_DATA is not set: only the random layers")
        return found
    state = load_file(Path(data) / "weights" / "resnet20_cifar10.safetensors")
    return found | {name: (state[f"{name}.weight"], *where) for name, where in RESNET20.items()}


def measure(weight: Tensor, size: int, stride: int, repeats: int) -> dict[str, float | str]:
    """One row of the table."""
    spec = ConvSpec((size, size), (stride, stride), ((1, 1), (1, 1)))
    batch = torch.randn(128, weight.shape[1], size, size)
    forward = cpu_time(lambda: F.conv2d(batch, weight, stride=stride, padding=1), 3 * repeats)
    cost = cpu_time(lambda: conv_norm(weight, spec), repeats)
    found = conv_norm(weight, spec)
    return {
        "lower": math.exp(found.log.lo),
        "width": math.expm1(found.width),
        "cost": cost / forward,
        "seconds": cost,
        "method": found.method,
        "reason": found.reason,
    }


def main() -> None:
    """Prints the table; writes it with the environment where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    print(f"{'layer':24} {'lower':>10} {'width':>9} {'cost':>7}  method")
    for name, (weight, size, stride) in layers().items():
        row = rows[name] = measure(weight, size, stride, chosen.repeats)
        print(f"{name:24} {row['lower']:10.6f} {row['width']:9.1e} {row['cost']:6.1f}x  {row['method']}")
    if chosen.json is not None:
        environment = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
        chosen.json.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1, allow_nan=False))


if __name__ == "__main__":
    main()

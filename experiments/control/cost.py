"""What a penalty costs of a training step: CPU time of the same steps with and without it, in turns, in one process.

python -m experiments.control.cost [--every 1 12]
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import cifar_resnet, gpt, mlp

Case = tuple[nn.Module, Tensor, Tensor]


def cases() -> dict[str, Callable[[], Case]]:
    """Networks with a batch and labels."""
    return {
        "ResNet-20, 128 images": lambda: (cifar_resnet(20), torch.rand(128, 3, 32, 32), torch.randint(0, 10, (128,))),
        "GPT 2 x 128, 16 x 64 tokens": lambda: (gpt(width=128, context=64), *torch.randint(0, 65, (2, 16, 64))),
        "MLP 784-512-512-10, 128 images": lambda: (
            mlp((784, 512, 512, 10), norm="batch"), torch.rand(128, 784), torch.randint(0, 10, (128,))
        ),
    }  # fmt: skip


def step_seconds(case: Case, every: int, turns: int) -> tuple[float, float]:
    """Median CPU seconds of a step without and with the penalty: twins that take their steps in turns."""
    model, x, y = case
    twins = (copy.deepcopy(model), model)
    penalty = ng.penalty(model, x[:2], every=every)
    trainings = [torch.optim.AdamW(twin.train().parameters(), 1e-4) for twin in twins]
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(turns + 1):
        for steered, twin in enumerate(twins):
            begun = time.process_time()
            for _ in range(every):
                trainings[steered].zero_grad()
                loss = F.cross_entropy(twin(x).flatten(0, -2), y.flatten())
                (loss + 0.01 * penalty() if steered else loss).backward()
                trainings[steered].step()
            seconds[steered].append((time.process_time() - begun) / every)
    penalty.close()
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:])  # the first turn finds the vectors


def main() -> None:
    """Print one line a network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, nargs="*", default=[1, 12])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="networks whose name begins so")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in ((name, make) for name, make in cases().items() if name.startswith(given.only)):
        for every in given.every:
            plain, steered = step_seconds(make(), every, given.turns)
            print(
                json.dumps({"network": name, "every": every, "step": plain, "share": steered / plain - 1}), flush=True
            )


if __name__ == "__main__":
    main()

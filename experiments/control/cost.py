"""What a penalty costs of a training step: CPU time of the same steps with and without it, in turns, in one process.

python -m experiments.control.cost [--every 1 8]
"""

from __future__ import annotations

import argparse
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
        "MLP 784-512-512-10, 256 images": lambda: (
            mlp((784, 512, 512, 10), norm="batch"), torch.rand(256, 784), torch.randint(0, 10, (256,))
        ),
    }  # fmt: skip


def step_seconds(case: Case, every: int, turns: int) -> tuple[float, float]:
    """Median CPU seconds of a step without and with the penalty."""
    model, x, y = case
    seconds: dict[bool, list[float]] = {False: [], True: []}
    training = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(turns):
        for steered in (False, True):
            penalty = ng.penalty(model, x[:2], every=every) if steered else None
            model.train()
            if penalty is not None:
                for _ in range(every):  # the first call finds the vectors
                    penalty()
            begun = time.process_time()
            for _ in range(every):
                training.zero_grad()
                loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
                (loss if penalty is None else loss + 0.01 * penalty()).backward()
                training.step()
            seconds[steered].append((time.process_time() - begun) / every)
            if penalty is not None:
                penalty.close()
    return statistics.median(seconds[False]), statistics.median(seconds[True])


def main() -> None:
    """Print one line a network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in cases().items():
        for every in given.every:
            plain, steered = step_seconds(make(), every, given.turns)
            print(
                json.dumps({"network": name, "every": every, "step": plain, "share": steered / plain - 1}), flush=True
            )


if __name__ == "__main__":
    main()

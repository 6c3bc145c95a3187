"""What watching costs: the same training with and without, step by step in turn, one thread, one process.

python benchmarks/overhead.py --net mlp --steps 1000
python benchmarks/overhead.py --net resnet18 --steps 100 --only default
python benchmarks/overhead.py --net resnet18 --device cuda --steps 1000 --only default --trace
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.lab import zoo

After = Callable[[torch.Tensor], None]
CLOCK = {"cpu": time.process_time, "cuda": time.perf_counter}  # a busy machine does not disturb the first
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "aten::item")


def network(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    if name == "mlp":
        return zoo.mlp((512, *[512] * 10, 10), norm="batch"), (512,)
    return zoo.resnet18(stem="cifar"), (3, 32, 32)


class Loop:
    """One training that can be taken step by step."""

    def __init__(self, model: nn.Module, shape: tuple[int, ...], optimizer: str, device: str) -> None:
        self.model = model
        self.optimizer: torch.optim.Optimizer
        if optimizer == "adam":
            self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        else:
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(2048, *shape, generator=generator).to(device)
        self.labels = self.inputs.flatten(1)[:, :10].argmax(1)
        self.after: After = lambda loss: None
        self.before: Callable[[], None] = lambda: None

    def step(self, number: int) -> None:
        chosen = slice(number % 16 * 128, number % 16 * 128 + 128)
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(self.inputs[chosen]), self.labels[chosen])
        loss.backward()
        self.optimizer.step()
        self.after(loss)


def timed(loop: Loop, first: int, steps: int) -> float:
    wait = torch.cuda.synchronize if loop.inputs.is_cuda else (lambda: None)
    clock = CLOCK[loop.inputs.device.type]
    wait()
    loop.before()
    began = clock()
    for number in range(first, first + steps):
        loop.step(number)
    wait()
    return clock() - began


def compared(build: Callable[[], Loop], attach: Callable[[Loop], Any], steps: int, block: int) -> dict[str, Any]:
    plain = build()
    for number in range(3):
        plain.step(number)  # first calls choose kernels
    watched = copy.deepcopy(plain)
    began = time.perf_counter()
    tool = attach(watched)
    made = time.perf_counter() - began
    spent = {"plain": 0.0, "watched": 0.0}
    for first in range(0, steps, block):
        spent["plain"] += timed(plain, first, block)
        spent["watched"] += timed(watched, first, block)
    return {
        "steps": steps,
        "ms_a_step": 1e3 * spent["plain"] / steps,
        "overhead": spent["watched"] / spent["plain"] - 1,
        "seconds_to_attach": made,
        **({"widths": widths(tool)} if isinstance(tool, ng.Monitor) else {}),
    }


def monitored(loop: Loop, **options: Any) -> ng.Monitor:
    monitor = ng.Monitor(loop.model, tempfile.mkdtemp(), **options)
    clock = monitor._schedule.clock
    ended = clock()

    def after(loss: torch.Tensor) -> None:
        nonlocal ended
        monitor.step(loss=loss, lr=1e-3)
        ended = clock()

    def before() -> None:
        # The other training's steps are no time of this one: they must not earn it a budget.
        if monitor._schedule._call is not None:
            monitor._schedule._call += clock() - ended

    loop.after, loop.before = after, before
    return monitor


def widths(monitor: ng.Monitor) -> dict[str, Any]:
    monitor.close()
    run = store.read(monitor.path)
    found = []
    for line in run.steps:
        columns = line["columns"]
        for lower, upper in zip(columns["norm_lower"], columns["norm_upper"], strict=True):
            if isinstance(lower, float) and isinstance(upper, float) and lower > 0:
                found.append(upper / lower - 1)
    found.sort()
    at = {f"p{p}": found[min(len(found) - 1, len(found) * p // 100)] for p in (10, 50, 90, 100)} if found else {}
    size = Path(monitor.path).stat().st_size
    return {"lines": len(run.steps), "kilobytes": size / 1e3, "notes": [n["sentence"] for n in run.notes], **at}


def wandb_watch(loop: Loop) -> object:
    import wandb

    run = wandb.init(mode="offline", dir=tempfile.mkdtemp(), settings=wandb.Settings(console="off", silent=True))
    run.watch(loop.model, log="all", log_freq=1)
    loop.after = lambda loss: run.log({"loss": float(loss.detach())})
    return run


def tensorboard_histograms(loop: Loop) -> object:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tempfile.mkdtemp())
    count = 0

    def after(loss: torch.Tensor) -> None:
        nonlocal count
        count += 1
        writer.add_scalar("loss", float(loss.detach()), count)
        for name, parameter in loop.model.named_parameters():
            writer.add_histogram(name, parameter.detach(), count)
            writer.add_histogram(f"{name}.grad", parameter.grad, count)

    loop.after = after
    return writer


def waits(loop: Loop, steps: int) -> dict[str, int]:
    """How often the host waited, by name, in the profiler's trace of some steps; its own last wait counts too."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]  # waits are seen by the second
    with torch.profiler.profile(activities=kinds) as profile:
        for number in range(steps):
            loop.step(number)
    counts = dict.fromkeys(WAITS, 0)
    for event in profile.events():
        if event.name in counts:
            counts[event.name] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=("mlp", "resnet18"), default="mlp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--only", nargs="*", default=("default", "every=1", "wandb.watch", "TensorBoard histograms"))
    parser.add_argument("--trace", action="store_true", help="count the host's waits too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tools: dict[str, tuple[Callable[[Loop], Any], int]] = {
        "default": (monitored, options.steps),
        "every=1": (lambda loop: monitored(loop, every=1), options.steps),
        "wandb.watch": (wandb_watch, min(options.steps, 40)),
        "TensorBoard histograms": (tensorboard_histograms, min(options.steps, 20)),
    }

    def build() -> Loop:
        torch.manual_seed(0)
        model, shape = network(options.net)
        return Loop(model.to(options.device), shape, options.optimizer, options.device)

    table: dict[str, Any] = {}
    for name in options.only:
        attach, steps = tools[name]
        row = table[name] = compared(build, attach, steps, 20 if options.device == "cuda" else 1)
        print(
            f"{options.net} {options.optimizer} {name}: {row['overhead']:+.2%} of {row['ms_a_step']:.1f} ms",
            row,
            flush=True,
        )
    if options.trace:
        for name, attach in (("plain", lambda loop: None), ("monitor", monitored)):
            loop = build()
            timed(loop, 0, 5)
            attach(loop)
            timed(loop, 0, 50)
            table[f"waits in 200 steps, {name}"] = waits(loop, 200)
            print(name, table[f"waits in 200 steps, {name}"], flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()

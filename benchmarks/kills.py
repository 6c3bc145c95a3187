"""Kill a monitored training at random points, again and again: is every file readable, and every resume right?

The training resumes from its last checkpoint, which is older than the last line of the run file, and tells the monitor
the step it goes on from. A run that was never killed is the truth: after every kill, what is read must be its first
steps, each once and in order, with the same losses.

    python benchmarks/kills.py --count 50
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import torch

import normgauge as ng
from normgauge.core import store
from normgauge.lab.training import train
from normgauge.lab.zoo import mlp

EPOCHS, EXAMPLES, BATCH = 400, 96, 16
PER_EPOCH = EXAMPLES // BATCH
LONGEST = 0.6  # seconds a training lives at most after its first step
EARLY = 0.15  # share of the kills that do not wait for a first step


@dataclass(frozen=True)
class Data:
    """Inputs and labels made up from a seed."""

    inputs: torch.Tensor
    labels: torch.Tensor


def data() -> Data:
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 12, generator=chance)
    return Data(inputs, inputs[:, :4].argmax(1))


def training(folder: Path, epochs: int, begun: Event) -> None:
    """Train from the checkpoint where there is one, with everything written down at every step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = mlp((12, 16, 16, 4), norm="batch")
    checkpoint = folder / "checkpoint.pt"
    done = torch.load(checkpoint, weights_only=True)["epoch"] * PER_EPOCH if checkpoint.exists() else 0
    monitor = ng.Monitor(model, folder, every=1, resume=done)

    def after(_: int, loss: torch.Tensor) -> None:
        monitor.step(loss=loss, lr=0.05)
        begun.set()

    options = {"batch_size": BATCH, "lr": 0.05, "optimizer": "sgd", "checkpoint": checkpoint}
    train(model, data(), epochs=epochs, on_step=after, **options)
    monitor.close()


def lines(folder: Path) -> tuple[list[int], list[float], store.Run]:
    run = store.read(folder)
    return [s["step"] for s in run.steps], [value for _, value in run.total("loss")], run


def bench(count: int, seed: int = 0) -> dict[str, float]:
    """Kill ``count`` times and let the training end.

    Raises:
        AssertionError: when a file cannot be read or a resume went wrong.
    """
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # the first one loads seconds of code, once for all children
    chance, forked = random.Random(seed), multiprocessing.get_context("fork")
    found = {"kills": count, "torn lines": 0, "steps taken again": 0, "killed before the header": 0, "resumes": 0}
    with tempfile.TemporaryDirectory() as name:
        folder, calm = Path(name) / "killed", Path(name) / "calm"
        folder.mkdir()
        seen: list[float] = []
        for _ in range(count):
            begun = forked.Event()
            child = forked.Process(target=training, args=(folder, EPOCHS, begun))
            child.start()
            if chance.random() > EARLY:
                begun.wait(60)
            time.sleep(chance.uniform(0.0, LONGEST))
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            try:
                steps, losses, _ = lines(folder)
            except store.StoreError:  # no line was written, in all the runs so far
                assert not seen, "a run that could be read before can be read no more"
                found["killed before the header"] += 1
                continue
            assert steps == list(range(1, len(steps) + 1)), "a step is missing, or there twice"
            assert losses[: len(seen)] == seen[: len(losses)], "a step that was taken again has another loss"
            seen = max(seen, losses, key=len)
        epochs = len(seen) // PER_EPOCH + 2
        for place in (folder, calm):
            place.mkdir(exist_ok=True)
            child = forked.Process(target=training, args=(place, epochs, forked.Event()))
            child.start()
            child.join()
            assert child.exitcode == 0
        steps, losses, run = lines(folder)
        truth_steps, truth, _ = lines(calm)
        assert steps == truth_steps and losses == truth, "the killed training is not the one that was never killed"
        assert run.end is not None and len(store.find(folder)) == 1
        found["resumes"] = len(run.resumes)
        found["torn lines"] = sum("torn" in problem for problem in run.problems)
        found["steps taken again"] = sum("taken again" in problem for problem in run.problems)
        found["steps"] = len(steps)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(bench(options.count, options.seed)))


if __name__ == "__main__":
    main()

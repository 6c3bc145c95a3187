"""A minute that says what works on this machine: `python -m experiments.than2025.selfcheck [--device cuda]`.

For each network and optimizer: twenty steps as a graph against twenty plain steps from the same state, the time of a
step in both forms and both layouts, the gain of several graphs at once, the time to measure an epoch, peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from experiments.than2025 import mps, nets
from experiments.than2025.data import Data
from experiments.than2025.epoch import Gauge
from experiments.than2025.lane import set_up
from experiments.than2025.plan import Spec, load
from experiments.than2025.steps import Stepper, make_optimizer

CASES = (
    ("nets/resnet18-adam", True),
    ("optimizers/resnet18-sgd", False),
    ("optimizers/resnet18-adamw", False),
    ("nets/mlp-adam", False),
    ("mlp-norms/mlp-batch", False),
    ("efficientnet/efficientnet_b3-adam", True),
    ("resnet20-norms/resnet20-batch", True),
)
STEPS = 20
TIGHT, LOOSE = 1e-3, 0.1  # relative: first five losses; all of them, and nets that draw random numbers


def main(argv: list[str] | None = None) -> int:
    """Check and time.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when every graph agrees with the plain steps, 1 otherwise.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.selfcheck", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    if device.type == "cuda":
        _multi_process()
    set_up(device)
    data = noise(device)
    specs = {spec.name: spec for spec in load()}
    print(f"torch {torch.__version__} on {_device_name(device)}")
    print(f"{'run':36} {'layout':8} graph agrees  eager ms  graph ms  2 at once  4 at once  measure s  MiB")
    good = True
    for name, both in CASES[: args.cases]:
        for last in (False, True) if both else (False,):
            begun = time.monotonic()
            good &= _case(specs[name], data, last)
            print(f"    {time.monotonic() - begun:.1f} s", flush=True)
    return 0 if good else 1


def _multi_process() -> None:
    """Whether NVIDIA's multi-process service works here."""
    with tempfile.TemporaryDirectory() as folder:
        mps.stop(dict(os.environ) | mps.start(Path(folder), os.environ))
        print((Path(folder) / "log.txt").read_text(encoding="utf-8").strip())


def noise(device: torch.device, count: int = 4096) -> Data:
    """Random images, as large as CIFAR's."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), generator=draw, dtype=torch.uint8).to(device)
    labels = torch.randint(0, 10, (count,), generator=draw).to(device)
    return Data(images, labels, images[:512], labels[:512], 1 / (255 * 3072**0.5))


def _case(spec: Spec, data: Data, last: bool) -> bool:
    device = data.train.device
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    plain, graph = stepper(spec, data, last), stepper(spec, data, last)
    captured = graph.capture()
    wanted, got = losses(plain), losses(graph)
    apart = [abs(a - b) / max(abs(a), 1e-6) for a, b in zip(wanted, got, strict=True)]
    random = spec.net == "efficientnet_b3"
    agrees = max(apart[:5]) < (LOOSE if random else TIGHT) and (random or max(apart) < LOOSE)
    times = [timed([plain]), timed([graph])]
    for count in (2, 4):
        others = [stepper(replace(spec, seed=k), data, last) for k in range(count)]
        times.append(timed(others) / count if cuda and all(o.capture() for o in others) else float("nan"))
        del others
    begun = time.monotonic()
    Gauge(graph.model, data).record()
    measured = time.monotonic() - begun
    memory = torch.cuda.max_memory_allocated() >> 20 if cuda else 0
    print(
        f"{spec.name:36} {'NHWC' if last else 'NCHW':8} {captured!s:5} {'yes' if agrees else 'NO'} {max(apart):.0e}"
        f" {times[0]:8.2f} {times[1]:9.2f} {times[2]:10.2f} {times[3]:10.2f} {measured:10.2f} {memory:5d}"
        f" {'' if captured else graph.why}",
        end="",
    )
    return agrees and (captured or not cuda)


def stepper(spec: Spec, data: Data, last: bool) -> Stepper:
    """A run's stepper on its initial weights."""
    torch.manual_seed(0)
    model = nets.build(spec, data.shape).to(data.train.device)
    if last and spec.net != "mlp":
        model = model.to(memory_format=torch.channels_last)
    return Stepper(model, make_optimizer(model, spec, data.train.device), data, spec.batch)


def losses(subject: Stepper, steps: int = STEPS) -> list[float]:
    """The loss of each of the first steps."""
    subject.begin(None)
    totals = [0.0]
    for k in range(steps):
        subject.cursor.fill_(k % subject.steps)
        subject.advance(1)
        totals.append(float(subject.progress.loss))
    return [b - a for a, b in itertools.pairwise(totals)]


def timed(subjects: list[Stepper], steps: int = 30) -> float:
    """Milliseconds for a step of all of them, each on its own stream."""
    cuda = subjects[0].device.type == "cuda"
    steps = steps if cuda else 2
    streams = [torch.cuda.Stream() for _ in subjects] if cuda else []
    for subject in subjects:
        subject.begin(None)
    if cuda:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for k in range(steps):
        for j, subject in enumerate(subjects):
            with torch.cuda.stream(streams[j]) if cuda else nullcontext():
                if k % subject.steps == 0:
                    subject.cursor.zero_()
                subject.advance(1)
    if cuda:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun) / steps


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else device.type


if __name__ == "__main__":
    raise SystemExit(main())

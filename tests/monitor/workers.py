"""Trainings that the distributed tests start in two processes: `python -m tests.monitor.workers FOLDER RANK PORT`."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import normgauge as ng
from normgauge.monitor.instruments import Instruments

STEPS = 6
WORLD = 2
KINDS = ("ddp", "fsdp", "tensor", "budget", "fsdp-budget", "deaf", "readings", "unwritable", "resumed")
GATHER = dist.all_gather
WHOLE: list[int] = []
BYTES: list[int] = []


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = [nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 3)]
    return nn.Sequential(*parts).double()


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    made = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 6, generator=made, dtype=torch.float64), torch.randint(0, 3, (16,), generator=made))
        for _ in range(count)
    ]


def train(model: nn.Module, monitor: ng.Monitor, rank: int, world: int, steps: int = STEPS) -> None:
    """A plain loop on this process's part of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in batches(steps):
        mine = slice(rank * 16 // world, (rank + 1) * 16 // world)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[mine]), labels[mine])
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss, lr=0.1)


def train_until_killed(model: nn.Module, monitor: ng.Monitor, rank: int) -> None:
    train(model, monitor, rank, WORLD, steps=3)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    train(model, monitor, rank, WORLD, steps=3)  # cannot go on alone: DistributedDataParallel says so


def prepared(kind: str) -> nn.Module:
    model = network()
    if "fsdp" in kind:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model[3], mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if kind == "tensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        by_rows = ColwiseParallel(output_layouts=Replicate())  # of the weight as torch stores it
        plan = {"0": by_rows, "3": RowwiseParallel(input_layouts=Replicate()), "5": by_rows}
        return parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model


def main(folder: Path, rank: int, port: str) -> None:
    """All kinds of training one after the other as one of two processes; the last one is killed."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    for kind in KINDS:
        gathered = count_gatherings()
        records: list[Any] = []
        with measuring_broken(kind == "deaf" and rank == 1):
            said = run(kind, folder, rank, records)
        story = {"records": records, "gathered": len(gathered), "said": said, "whole": len(WHOLE), "bytes": list(BYTES)}
        WHOLE.clear()
        BYTES.clear()
        Path(folder, f"{kind}-{rank}.json").write_text(json.dumps(story))
    monitored("ddp", folder / "killed", [], lambda model, monitor: train_until_killed(model, monitor, rank))


def run(kind: str, folder: Path, rank: int, records: list[Any]) -> str:
    """One training, and the error that came instead of it."""
    place = folder / ("ddp" if kind == "resumed" else kind)
    steps = 60 if "budget" in kind else 20 if kind == "deaf" else STEPS
    try:
        share = (0, 1) if kind == "tensor" else (rank, WORLD)  # of a batch
        monitored(kind, place, records, lambda model, monitor: train(model, monitor, *share, steps))
    except ng.NormgaugeError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def monitored(kind: str, place: Path, records: list[Any], loop: Callable[[nn.Module, ng.Monitor], None]) -> None:
    model = prepared(kind)
    every = {"deaf": 2}.get(kind, None if "budget" in kind else 1)
    full = {"batch": batches(1)[0][0], "readings": 4} if kind == "readings" else {}
    monitor = ng.Monitor(
        model,
        "/proc/none" if kind == "unwritable" else place,
        0.3,
        every=every,
        resume=kind == "resumed",
        **full,
        sinks=[lambda record: records.append(dict(record))],
    )
    with counting_the_whole():
        loop(model, monitor)
    BYTES.append(monitor._team.exchanged_bytes)
    monitor.close()


@contextmanager
def counting_the_whole() -> Iterator[None]:
    """Count how often a sharded tensor is put together."""
    from torch.distributed.tensor import DTensor

    real = DTensor.full_tensor

    def counted(self: Any, **options: Any) -> Any:
        WHOLE.append(1)
        return real(self, **options)

    DTensor.full_tensor = counted  # type: ignore[method-assign]
    yield
    DTensor.full_tensor = real  # type: ignore[method-assign]


def count_gatherings() -> list[int]:
    """Count what the monitor exchanges, one entry a call."""
    seen: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        seen.append(1)
        return GATHER(*args, **options)

    dist.all_gather = counted
    return seen


@contextmanager
def measuring_broken(here: bool) -> Iterator[None]:
    real = Instruments.read

    def broken(self: Any, *turns: int) -> None:
        raise RuntimeError("no numbers here")

    if here:
        Instruments.read = broken  # type: ignore[assignment, method-assign]
    yield
    Instruments.read = real  # type: ignore[method-assign]


if __name__ == "__main__":
    faulthandler.dump_traceback_later(100, exit=True)  # what a test that hangs was waiting for
    warnings.simplefilter("error", FutureWarning)
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

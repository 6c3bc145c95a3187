"""Many trainings on one machine: a few processes take jobs from one queue, and every result is written at once."""

from __future__ import annotations

import json
import multiprocessing
import queue
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

Job = dict[str, Any]
Do = Callable[[Job], tuple[Job, dict[str, Any] | None]]
"""Does one job: what was found, and the tensors to keep."""

SHARD = 14
"""Networks a file of weights: 16 MB of ResNet-20s."""


def job_name(job: Job) -> str:
    """What a job's weights are kept under."""
    return "-".join(str(job[key]) for key in ("part", "method", "strength", "lr", "seed", "image") if key in job)


class Results:
    """Rows in one file of JSON lines, weights in a few files beside it."""

    def __init__(self, out: Path, name: str) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out, self.name, self.path = out, name, out / f"{name}.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows: list[Job] = [json.loads(line) for line in lines]
        self._kept: dict[str, Any] = {}
        self._shard = len(list(out.glob(f"{name}-weights-*.pt")))

    @property
    def done(self) -> set[str]:
        """The names of the jobs that came to an end."""
        return {job_name(row) for row in self.rows if "error" not in row}

    def add(self, row: Job, tensors: dict[str, Any] | None) -> None:
        """Write a row, and the shard that its weights are in."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if tensors is None:
            return
        self._kept[job_name(row)] = tensors
        path = self.out / f"{self.name}-weights-{self._shard}.pt"
        torch.save(self._kept, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)  # whole at any time: others read it meanwhile
        if len(self._kept) == SHARD:
            self._kept, self._shard = {}, self._shard + 1

    def weights(self) -> dict[str, Any]:
        """All weights, by the names of their jobs."""
        found: dict[str, Any] = {}
        for path in sorted(self.out.glob(f"{self.name}-weights-*.pt")):
            found |= torch.load(path, weights_only=True)
        return found


def work(do: Do, waiting: Any, done: Any, scratch: str) -> None:
    """Do jobs until there are none; one that fails is reported, and ends the process: its device may be in no state."""
    torch.set_num_threads(1)
    while True:
        job = waiting.get()
        begun = time.monotonic()
        try:
            row, tensors = do(job)
        except Exception:
            done.put((job | {"error": traceback.format_exc()[-2000:]}, ""))
            return
        path = "" if tensors is None else str(Path(scratch) / f"{job_name(job)}.pt")
        if path:
            torch.save(tensors, path)
        done.put((row | {"seconds": time.monotonic() - begun}, path))


def run_jobs(
    do: Do, wanted: Callable[[list[Job]], Sequence[Job]], results: Results, workers: int, seconds: float
) -> None:
    """Run the jobs that have no result yet, in order.

    Args:
        do: does one; found by its name in every process.
        wanted: what is to be done, from all rows so far, the most important first; asked again after each row.
        results: where rows and weights go, at once.
        workers: processes side by side.
        seconds: none goes on beyond so many; run again for the rest.
    """
    begun = time.monotonic()
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    scratch = tempfile.mkdtemp()
    processes: list[Any] = []
    known = results.done
    left = _put(wanted(results.rows), known, waiting)
    while left and time.monotonic() - begun < seconds:
        processes = [process for process in processes if process.is_alive()]
        while len(processes) < min(workers, left):
            processes.append(context.Process(target=work, args=(do, waiting, done, scratch), daemon=True))
            processes[-1].start()
        try:
            row, path = done.get(timeout=1.0)
        except queue.Empty:
            continue
        results.add(row, torch.load(path, weights_only=True) if path else None)
        left += _put(wanted(results.rows), known, waiting) - 1
        told = {k: v for k, v in row.items() if not isinstance(v, list | dict)}
        print(f"{time.monotonic() - begun:.0f} s", json.dumps(told), flush=True)
    for process in processes:
        process.terminate()
        process.join()
    shutil.rmtree(scratch)
    print(f"{left} jobs left, {time.monotonic() - begun:.0f} s", flush=True)


def _put(jobs: Sequence[Job], known: set[str], waiting: Any) -> int:
    """Put those that are not known into the queue, each once, and say how many."""
    new = [job for job in jobs if job_name(job) not in known]
    for job in new:
        waiting.put(job)
    known |= {job_name(job) for job in new}
    return len(new)

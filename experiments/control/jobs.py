"""Many trainings at once on one machine: a process each, a few at a time, one JSON file a result."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def job_name(job: dict[str, Any]) -> str:
    """The name of a job's files."""
    return "-".join(str(job[key]) for key in ("part", "method", "strength", "lr", "seed"))


def run_jobs(module: str, jobs: Iterable[dict[str, Any]], out: Path, workers: int, seconds: float) -> None:
    """Run ``python -m module --job JSON --out OUT`` for every job that has no result yet.

    Args:
        module: which takes one job.
        jobs: what is to be done.
        out: where results lie.
        workers: processes at a time.
        seconds: no job is begun, and none goes on, beyond so many seconds; run again for the rest.
    """
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    waiting = [job for job in jobs if not (out / f"{job_name(job)}.json").exists()]
    running: list[subprocess.Popen[bytes]] = []
    while (waiting or running) and time.monotonic() - begun < seconds:
        running = [process for process in running if process.poll() is None]
        while waiting and len(running) < workers:
            job = waiting.pop(0)
            command = [sys.executable, "-m", module, "--job", json.dumps(job), "--out", str(out)]
            running.append(subprocess.Popen(command))
        time.sleep(0.5)
    for process in running:
        process.terminate()
    print(f"{len(waiting) + len(running)} jobs left, {time.monotonic() - begun:.0f} s")


def results(out: Path, part: str = "") -> list[dict[str, Any]]:
    """All results of a part, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(out.glob(f"{part}*.json"))]

"""Many small networks, trained to one loss and scored: `python -m experiments.generalization.sweep --out sweep.jsonl`.

One line of JSON a network, written as soon as it is done; what is in the file already is not done again. When the
time is up, the file holds what was done so far.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.generalization.sweep_plan import Net, plan

SPARE = 5.0  # seconds before the end at which nothing new is begun


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: train and score the networks that are not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--minutes", type=float, default=9.0, help="end after this long")
    parser.add_argument("--data", default="fashion_mnist", help="fashion_mnist or cifar10")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None, help="only so many networks")
    parser.add_argument("--steps", type=int, default=None, help="fewer steps a network, for a trial")
    told = parser.parse_args(arguments)
    nets = missing(plan(told.data, told.seeds)[: told.limit], told.out)
    end = time.time() + 60 * told.minutes
    print(f"{len(nets)} networks to do, {told.workers} workers, {told.minutes:g} minutes", flush=True)
    told.out.parent.mkdir(parents=True, exist_ok=True)
    with told.out.open("a", encoding="utf-8") as file:
        for done, record in enumerate(records(nets, told.workers, end, told.steps), 1):
            file.write(json.dumps(record, allow_nan=False) + "\n")
            file.flush()
            print(f"{done}/{len(nets)} {summary(record)}", flush=True)
    return 0


def missing(nets: Sequence[Net], path: Path) -> list[Net]:
    """Those without a line in the file; a line cut short by a kill does not count and is taken out."""
    if not path.exists():
        return list(nets)
    kept, done = [], set()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            done.add(json.loads(line)["key"])
            kept.append(line + "\n")
        except (json.JSONDecodeError, KeyError):
            continue
    path.write_text("".join(kept), encoding="utf-8")
    return [net for net in nets if net.key not in done]


def records(nets: Sequence[Net], workers: int, end: float, steps: int | None = None) -> Iterator[dict[str, Any]]:
    """Records as they come, until the end; workers still busy then are ended."""
    jobs = [(net, end, steps) for net in nets]
    if workers < 1:
        yield from (record for record in map(work, jobs) if record is not None)
        return
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before a worker loads its libraries
    with multiprocessing.get_context("spawn").Pool(workers, initializer=one_thread) as pool:  # ends them on leaving
        found = pool.imap_unordered(work, jobs)
        for _ in jobs:
            try:
                record = found.next(timeout=max(0.1, end - time.time()))
            except multiprocessing.TimeoutError:
                return
            if record is not None:
                yield record


def one_thread() -> None:
    """Let this process use one core only."""
    import torch

    torch.set_num_threads(1)


def work(job: tuple[Net, float, int | None]) -> dict[str, Any] | None:
    """One network, or nothing when it is too late to begin; what goes wrong is written down."""
    from experiments.generalization import sweep_net

    net, end, steps = job
    if time.time() > end - SPARE:
        return None
    try:
        return sweep_net.run(net, steps=steps or sweep_net.STEPS)
    except Exception as error:  # one bad network must not cost the others
        return {"key": net.key, "failed": f"{type(error).__name__}: {error}"}


def summary(record: dict[str, Any]) -> str:
    """One line about a record."""
    if "failed" in record:
        return f"{record['key']} {record['failed']}"
    seconds = record["train_seconds"] + record["score_seconds"]
    return (
        f"{record['key']} {'reached' if record['reached'] else 'not reached'} gap {record['gap']:.3f} {seconds:.1f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())

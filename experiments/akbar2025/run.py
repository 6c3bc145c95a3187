"""Run the experiments: `python -m experiments.akbar2025.run --jobs 16 --out DIR`.

One file a unit in DIR; units that are there with the same settings and seeds are not run again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from experiments.akbar2025 import plan
from experiments.akbar2025.plan import Unit
from experiments.than2025.store import read_json, short, write_json
from normgauge import NormgaugeError

SEEDS, TINY_SEEDS = 10, 2


def main(argv: list[str] | None = None) -> int:
    """Run what is not there yet.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when every unit is there, 1 for a wrong argument or where a unit failed.
    """
    parser = argparse.ArgumentParser(prog="experiments.akbar2025.run", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="experiments (plane) or units (plane/base)"
    )
    parser.add_argument("--seeds", type=int, help=f"how many ({SEEDS}; {TINY_SEEDS} at tiny scale)")
    parser.add_argument("--jobs", type=int, default=1, help="units side by side, one thread each")
    parser.add_argument("--scale", default="full", choices=plan.SCALES)
    parser.add_argument("--list", action="store_true", help="print the units and stop")
    args = parser.parse_args(argv)
    try:
        units = plan.select(plan.load(args.scale), args.only)
    except NormgaugeError as error:
        print(f"normgauge: {error}", file=sys.stderr)
        return 1
    if args.list:
        print("\n".join(u.name for u in units))
        return 0
    seeds = args.seeds or (SEEDS if args.scale == "full" else TINY_SEEDS)
    return launch(units, args.out, seeds, args.jobs)


def launch(units: list[Unit], out: Path, seeds: int, jobs: int) -> int:
    """Run units side by side in processes of their own; one line each.

    Returns:
        How many failed, at most 1.
    """
    out.mkdir(parents=True, exist_ok=True)
    waiting = [u for u in plan.heavy_first(units) if not done(u, out, seeds)]
    print(f"{len(units)} units, {len(units) - len(waiting)} there already, {seeds} seeds, {jobs} at a time", flush=True)
    work = [(u, out, seeds) for u in waiting]
    begun, failed = time.monotonic(), 0
    for count, (name, seconds, problem) in enumerate(_finished(work, jobs), 1):
        failed += bool(problem)
        said = problem or f"{seconds:.0f} s"
        print(f"[{time.monotonic() - begun:4.0f} s] {count:3d}/{len(work)} {name}: {said}", flush=True)
    return 1 if failed else 0


def _finished(work: list[tuple[Unit, Path, int]], jobs: int) -> Any:
    if jobs == 1:
        yield from map(_one, work)
        return
    # one thread each, and this before torch is loaded there
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_one, work)


def done(unit: Unit, out: Path, seeds: int) -> bool:
    """Whether a unit's file is there, with these settings and seeds."""
    path = out / unit.file
    if not path.exists():
        return False
    told = read_json(path)
    return told["seeds"] == seeds and told["settings"] == short(dict(unit.settings))


def _one(work: tuple[Unit, Path, int]) -> tuple[str, float, str]:
    """Run a unit and write it down: its name, seconds, and what went wrong."""
    import torch

    unit, out, seeds = work
    torch.set_num_threads(1)
    begun = time.process_time()
    try:
        found = unit.run(seeds)
    except Exception as error:  # the other units go on
        return unit.name, time.process_time() - begun, f"failed: {type(error).__name__}: {error}"
    seconds = time.process_time() - begun
    told = {"experiment": unit.experiment, "label": unit.label, "settings": dict(unit.settings), "seeds": seeds}
    made = {"python": platform.python_version(), "torch": torch.__version__, "seconds": round(seconds, 1)}
    write_json(out / unit.file, {"schema": 1, **told, "environment": made, "found": found})
    return unit.name, seconds, ""


if __name__ == "__main__":
    raise SystemExit(main())

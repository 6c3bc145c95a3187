"""Run the experiments: `python -m experiments.generalization.run --out DIR --state DIR --jobs 4 --minutes 9`.

One file a unit in --out; units that are there with the same settings are not run again. When the time is up, what is
done is kept in --state and the same command goes on.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.generalization import plan
from experiments.generalization.place import LateError, Place, read, write
from experiments.generalization.plan import Unit
from experiments.than2025 import mps
from normgauge import NormgaugeError

UNFINISHED = 75


@dataclass(frozen=True, slots=True)
class Order:
    """A unit with where and until when it is to be run."""

    unit: Unit
    out: Path
    place: Place

    @property
    def file(self) -> Path:
        """The file its result goes to."""
        return self.out / f"{self.unit.slug}.json"

    def done(self) -> bool:
        """Whether the result is there, with these settings."""
        return self.file.exists() and read(self.file)["settings"] == dict(self.unit.settings)


def main(argv: list[str] | None = None) -> int:
    """Run what is not there yet.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when every unit is there, 1 for a wrong argument or where a unit failed, 75 when the time was up.
    """
    args = _parser().parse_args(argv)
    try:
        units = plan.select(plan.load(quick=args.quick), args.only)
    except NormgaugeError as error:
        print(f"normgauge: {error}", file=sys.stderr)
        return 1
    if args.list:
        print("\n".join(unit.name for unit in units))
        return 0
    until = time.time() + 60 * args.minutes
    orders = [Order(unit, args.out, _place(unit, args, until)) for unit in units]
    return launch([order for order in orders if not order.done()], len(units), args.jobs, args.state)


def _place(unit: Unit, args: argparse.Namespace, until: float) -> Place:
    device = unit.device if unit.device != "auto" else args.device or _device()
    return Place(args.state / unit.slug, device, until, args.data_dir)


def launch(orders: list[Order], count: int, jobs: int, state: Path) -> int:
    """Run units side by side in processes of their own; one line each.

    Returns:
        What `main` returns.
    """
    begun, codes = time.monotonic(), set()
    print(f"{count} units, {count - len(orders)} there already, {jobs} at a time", flush=True)
    for number, (name, seconds, problem, code) in enumerate(_finished(orders, jobs, state), 1):
        codes.add(code)
        said = problem or f"{seconds:.0f} s"
        print(f"[{time.monotonic() - begun:4.0f} s] {number:3d}/{len(orders)} {name}: {said}", flush=True)
    return 1 if 1 in codes else UNFINISHED if UNFINISHED in codes else 0


def _finished(orders: list[Order], jobs: int, state: Path) -> Iterator[tuple[str, float, str, int]]:
    if jobs == 1 or not orders:
        yield from map(_one, orders)
        return
    # one thread each, and this before torch is loaded there
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    cuda = any(order.place.device == "cuda" for order in orders)
    service = mps.start(state, os.environ) if cuda else {}
    os.environ |= service
    try:
        with multiprocessing.get_context("spawn").Pool(min(jobs, len(orders)), maxtasksperchild=8) as pool:
            yield from pool.imap_unordered(_one, orders)
    finally:
        mps.stop(service and dict(os.environ))


def _one(order: Order) -> tuple[str, float, str, int]:
    """Run a unit and write it down: its name, seconds, what went wrong, exit code."""
    import torch

    unit, place, begun = order.unit, order.place, time.monotonic()
    if place.late():
        return unit.name, 0.0, "not begun, the time is up", UNFINISHED
    if multiprocessing.parent_process() is not None:
        torch.set_num_threads(1)
    if place.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    try:
        found = importlib.import_module(f"experiments.generalization.{unit.experiment}").run(unit.settings, place)
    except LateError as error:
        return unit.name, time.monotonic() - begun, str(error), UNFINISHED
    except Exception as error:  # the other units go on
        return unit.name, time.monotonic() - begun, f"failed: {type(error).__name__}: {error}", 1
    seconds = time.monotonic() - begun
    device = torch.cuda.get_device_name() if place.device == "cuda" else "CPU"
    made = {"python": platform.python_version(), "torch": torch.__version__, "device": device}
    told = {"experiment": unit.experiment, "label": unit.label, "settings": dict(unit.settings)}
    write(order.file, {"schema": 1, **told, "environment": {**made, "seconds": round(seconds, 1)}, "found": found})
    shutil.rmtree(place.state, ignore_errors=True)
    return unit.name, seconds, "", 0


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="experiments.generalization.run", description=__doc__)
    made.add_argument("--out", type=Path, required=True, help="folder of the results")
    made.add_argument("--state", type=Path, required=True, help="folder to work in and to go on from")
    made.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="how names of units begin: disagreement/mnist"
    )
    made.add_argument("--jobs", type=int, default=1, help="units side by side")
    made.add_argument("--minutes", type=float, default=9.0, help="after these nothing new is begun")
    made.add_argument("--device", choices=("cpu", "cuda"), help="where networks train; cuda where there is one")
    made.add_argument("--data-dir", help="folder of the data sets; NORMGAUGE_DATA by default")
    made.add_argument("--quick", action="store_true", help="a few small units, for a look")
    made.add_argument("--list", action="store_true", help="print the units and stop")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs of the plan side by side, readings beside them, and a time limit.

    python -m experiments.than2025.launch --state /tmp/state --out /tmp/out --jobs 8 --workers 8 --minutes 9

Lanes take the runs in the order of the plan; workers take full readings on spare cores. When the time is up everything
is stopped in a state from which the same command goes on.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.than2025 import mps, plan, spool, store, worker
from experiments.than2025.collect import FINISHED, collect, status
from experiments.than2025.lane import UNFINISHED

ROOT = Path(__file__).resolve().parents[2]
GRACE = 25.0  # seconds a lane has to finish its epoch
RESTARTS = 2


@dataclass(slots=True)
class Crew:
    """The processes of one launch."""

    state: Path
    lane: list[str]
    environment: dict[str, str]
    lanes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    nice: int = 10  # of the workers: runs come first
    restarts: int = 0

    def start(self, jobs: int, workers: int) -> None:
        """Start everything."""
        self.lanes = [self._spawn(self.lane) for _ in range(jobs)]
        reader = [_module("worker"), str(self.state), "--nice", str(self.nice)]
        self.workers = [self._spawn(reader, CUDA_VISIBLE_DEVICES="") for _ in range(workers)]

    def _spawn(self, command: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", *command], env=self.environment | more, cwd=ROOT, stdout=output, stderr=output
            )

    def mend(self) -> None:
        """Start a lane again that broke, a few times; its run is tried again by whoever comes first."""
        for k, lane in enumerate(self.lanes):
            if lane.poll() in {None, 0, UNFINISHED} or self.restarts >= RESTARTS * len(self.lanes):
                continue
            self.restarts += 1
            store.log(self.state, f"lane {lane.pid} broke with exit code {lane.returncode}; started again")
            for path in (self.state / "claims").glob("*"):
                if path.read_text(encoding="utf-8") == str(lane.pid):
                    path.unlink()
            self.lanes[k] = self._spawn(self.lane)

    def working(self) -> bool:
        """Whether a lane still runs or a checkpoint is still to be read."""
        busy = any(lane.poll() is None for lane in self.lanes)
        alive = any(process.poll() is None for process in self.workers)
        return busy or (alive and spool.waiting(self.state / "spool") > 0)

    def stop(self, grace: float) -> None:
        """Ask the lanes to end after their epoch, wait, then end all."""
        for lane in self.lanes:
            if lane.poll() is None:
                lane.send_signal(signal.SIGTERM)
        end = time.monotonic() + grace
        while time.monotonic() < end and any(lane.poll() is None for lane in self.lanes):
            time.sleep(0.05)
        (self.state / worker.STOP).touch()
        if spool.waiting(self.state / "spool"):
            time.sleep(min(2.0, max(0.0, end - time.monotonic())))
        for process in [*self.lanes, *self.workers]:
            if process.poll() is None and (process in self.lanes or spool.waiting(self.state / "spool")):
                process.kill()
            process.wait()


def main(argv: list[str] | None = None) -> int:
    """Launch, wait, stop, collect.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when the plan is done, 75 when something is left.
    """
    args = parser().parse_args(argv)
    specs = plan.select(plan.load(args.plan, scale=args.scale), args.only, epochs=args.epochs)
    begin(args.state, specs)
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    if args.device == "cuda" and args.jobs > 1 and args.mps:
        environment |= mps.start(args.state, environment)
    lane = [_module("lane"), str(args.state), "--device", args.device]
    lane += ["--data-dir", args.data_dir] if args.data_dir else []
    lane += ["--channels-last"] if args.channels_last else []
    lane += ["--together", str(args.together)]
    crew = Crew(args.state, lane, environment, nice=args.nice)
    limit = time.monotonic() + 60 * args.minutes
    crew.start(args.jobs, args.workers)
    try:
        while crew.working() and time.monotonic() < limit - min(GRACE, 30 * args.minutes):
            crew.mend()
            _tell(args.state)
            time.sleep(0.2)
    finally:
        crew.stop(max(0.0, limit - time.monotonic()) if crew.working() else 1.0)
        mps.stop(environment)
        collect(args.state, args.out)
    print(status(args.state))
    (args.state / FINISHED).touch()
    left = any(not (args.state / "done" / spec.slug).exists() for spec in specs)
    return UNFINISHED if left or spool.waiting(args.state / "spool") else 0


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="experiments.than2025.launch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--plan", type=Path, default=plan.CONFIG, help="a config like config.toml")
    made.add_argument("--scale", default="full", help="full, or a scale of the config such as digits")
    made.add_argument("--only", nargs="*", default=[], metavar="NAME", help="groups or runs; all by default")
    made.add_argument("--epochs", type=int, help="at most so many epochs a run")
    made.add_argument("--jobs", type=int, default=6, help="runs side by side")
    made.add_argument("--together", type=int, default=1, help="runs at a time in each of them, on their own streams")
    made.add_argument("--workers", type=int, default=8, help="processes that take full readings")
    made.add_argument("--nice", type=int, default=10, help="how far these stand behind the runs")
    made.add_argument("--minutes", type=float, default=9.3, help="when to stop")
    made.add_argument("--state", type=Path, required=True, help="folder to work in and to go on from")
    made.add_argument("--out", type=Path, required=True, help="folder for results.tar.gz")
    made.add_argument("--device", default="cuda")
    made.add_argument("--data-dir", help="folder of the data sets; NORMGAUGE_DATA by default")
    made.add_argument("--channels-last", action="store_true", help="layout of images on the device")
    made.add_argument("--no-mps", dest="mps", action="store_false", help="do not try NVIDIA's multi-process service")
    return made


def begin(state: Path, specs: Sequence[plan.Spec]) -> None:
    """Write the plan down and clear what processes of an earlier launch left claimed."""
    store.write_json(state / "plan.json", [spec.to_json() for spec in specs])
    for path in (state / "claims").glob("*"):
        path.unlink()
    spool.release(state / "spool")
    for name in (worker.STOP, FINISHED):
        (state / name).unlink(missing_ok=True)
    store.log(state, f"launch: {len(specs)} runs in the plan")


def _tell(state: Path) -> None:
    """One line that is written over, for a person who watches."""
    if sys.stderr.isatty():
        print(f"\r{status(state).splitlines()[-1]}\033[K", end="", file=sys.stderr, flush=True)


def _module(name: str) -> str:
    return f"experiments.than2025.{name}"


if __name__ == "__main__":
    raise SystemExit(main())

"""A process that takes one run of the plan after another: `python -m experiments.than2025.lane STATE`.

The plan is STATE/plan.json, a list of specs. A run is claimed by making a file, so that lanes never share one. The
device, the data and the libraries are set up once for all runs of a lane.
"""

from __future__ import annotations

import argparse
import functools
import gc
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from experiments.than2025 import data, store
from experiments.than2025.plan import Spec
from experiments.than2025.run import Run
from experiments.than2025.together import drive

UNFINISHED = 75  # exit code of a lane told to stop in the middle of a run


def main(argv: list[str] | None = None) -> int:
    """Run what is left of the plan.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when nothing is left, 75 when told to stop.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.lane", description=__doc__)
    parser.add_argument("state", type=Path, help="the folder of the plan")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data-dir", help="folder of the data sets; NORMGAUGE_DATA by default")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--together", type=int, default=1, help="runs at a time, on streams of their own")
    args = parser.parse_args(argv)
    told = Told()
    set_up(torch.device(args.device))
    drive(_runs(args, told), args.together, _finish, _fail)
    return UNFINISHED if told() else 0


def set_up(device: torch.device) -> None:
    """TF32 products and tried-out convolution algorithms while training; one thread on a CPU."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = device.type == "cuda"


class Told:
    """Whether the process has been asked to end."""

    def __init__(self) -> None:
        self.yes = False
        signal.signal(signal.SIGTERM, self._tell)

    def __call__(self) -> bool:
        """True once SIGTERM has come."""
        return self.yes

    def _tell(self, *_: object) -> None:
        self.yes = True


def _runs(args: argparse.Namespace, told: Callable[[], bool]) -> Iterator[Run]:
    """The runs of the plan that are neither done nor taken, claimed as they are asked for.

    A run whose data are not there is passed over, and looked at again once the others are done.
    """
    load = functools.cache(lambda name: data.load(name, torch.device(args.device), args.data_dir))
    found = True
    while found:
        found = False
        for spec in (Spec.from_json(item) for item in store.read_json(args.state / "plan.json")):
            if told():
                return
            if (args.state / "done" / spec.slug).exists() or not store.claim(args.state / "claims" / spec.slug):
                continue
            try:
                loaded = load(spec.data)
            except Exception as error:
                store.log(args.state, f"{spec.name}: no data yet: {error}")
                (args.state / "claims" / spec.slug).unlink()
                continue
            found = True
            store.log(args.state, f"{spec.name}: begins")
            yield Run(spec, args.state, loaded, told, args.channels_last)


def _finish(run: Run, finished: bool) -> None:
    spec, epochs = run.spec, len(run.epochs) - 1
    if finished:
        store.claim(run.state / "done" / spec.slug)
        store.log(run.state, f"{spec.name}: done, {run.seconds:.0f} s, {epochs} epochs")
    else:
        (run.state / "claims" / spec.slug).unlink()
        store.log(run.state, f"{spec.name}: stopped after epoch {epochs}, to be continued")
    _free()


def _fail(run: Run, error: Exception) -> None:
    """Write an error down; the lane goes on with the next run unless the device is lost to it."""
    words = "".join(traceback.format_exception(error))
    store.log(run.state, f"{run.spec.name}: failed: {type(error).__name__}: {error}\n{words}")
    _free()
    if isinstance(error, torch.AcceleratorError):
        raise error


def _free() -> None:
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    raise SystemExit(main())

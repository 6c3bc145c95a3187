"""Takes full readings of spooled checkpoints on a spare core: `python -m experiments.than2025.worker STATE`."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import normgauge as ng
from experiments.than2025 import nets, spool, store

STOP = "stop-workers"


def main(argv: list[str] | None = None) -> int:
    """Read checkpoints until told to stop.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.worker", description=__doc__)
    parser.add_argument("state", type=Path, help="the folder the runs write to")
    parser.add_argument("--once", action="store_true", help="end when nothing is waiting")
    parser.add_argument("--nice", type=int, default=0, help="how far behind the runs it stands in line for a core")
    args = parser.parse_args(argv)
    os.nice(args.nice)
    torch.set_num_threads(1)
    while not (args.state / STOP).exists():
        path = spool.claim(args.state / "spool")
        if path is not None:
            one(path, args.state)
        elif args.once:
            break
        else:
            time.sleep(0.5)
    return 0


def one(path: Path, state: Path) -> None:
    """Read one checkpoint, write its numbers, delete it; a failure is written down in their place."""
    try:
        item = spool.read(path)
    except ValueError as error:
        store.log(state, str(error))
        path.unlink()
        return
    begun = time.process_time()
    try:
        numbers = readings(item)
    except Exception as error:  # whatever a reading raises must not stop the other readings
        numbers = {"error": f"{type(error).__name__}: {error}"}
    numbers["seconds"] = round(time.process_time() - begun, 1)
    store.write_json(state / "readings" / f"{item.spec.slug}@{item.epoch:03d}.json", numbers)
    path.unlink()


def readings(item: spool.Item) -> dict[str, Any]:
    """Bound and slope in each scope of the run's list, with the published products."""
    model = nets.build(item.spec, tuple(item.images.shape[1:]))
    model.load_state_dict(item.model)
    model.eval()
    # No search: the slopes at the samples are exact, and the epochs' records hold more of them.
    taken = ng.readings(model, item.images, item.spec.scopes, search=False, pictures=False)
    return {str(reading.scope): numbers_of(reading) for reading in taken}


def numbers_of(reading: ng.Reading) -> dict[str, Any]:
    """What is kept of a reading: decimal logs."""
    return {
        "upper": spelled(reading.log10_upper),
        "folded": spelled(reading.log10_folded),
        "lower": spelled(reading.log10_lower),
        "evidence": str(reading.evidence.value),
        "unknown": len(reading.unknown),
        "unbounded": len(reading.unbounded),
        "published": {
            key: {k: spelled(v) for k, v in value.items()} if isinstance(value, Mapping) else spelled(value)
            for key, value in reading.published.items()
            if value is not None
        },
    }


def spelled(value: float) -> float | str:
    """Five digits, or "inf", "-inf", "nan"."""
    return float(f"{value:.5g}") if math.isfinite(value) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())

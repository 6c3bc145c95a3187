"""What `normgauge reproduce than2025/NAME` does: draw a figure from the committed results, or train anew and draw.

`python -m experiments.than2025.reproduce --list` prints the names with a sentence each, as JSON.
"""

from __future__ import annotations

import argparse
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import study
from experiments.than2025 import figures, results
from experiments.than2025.findings import FINDINGS
from experiments.than2025.plan import PlanError


def main(argv: list[str] | None = None) -> int:
    """Draw one figure.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = study.reproduce_parser(__doc__, [*figures.ALL], "fig1")
    parser.add_argument("--device")
    parser.add_argument("--only", nargs="*")
    return study.reproduce_figure(parser.parse_args(argv), figures.ALL, committed, train)


def committed(args: argparse.Namespace) -> dict[str, Any]:
    """Draw from the results that come with the checkout."""
    return _drawn(args.name, results.FOLDER, args.out, FINDINGS)


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train the runs of a figure, then draw it from them; a second call goes on where the first stopped."""
    from experiments.than2025 import launch

    device = args.device or _device()
    command = ["--scale", args.scale, "--state", str(args.out / "state"), "--out", str(args.out), "--device", device]
    command += ["--jobs", str(args.jobs), "--workers", "1", "--minutes", str(args.minutes or 24 * 60)]
    command += ["--data-dir", args.data_dir] if args.data_dir else []
    command += ["--epochs", str(args.epochs)] if args.epochs else []
    code = launch.main([*command, "--only", *(args.only or figures.NEEDS[args.name])])
    with tarfile.open(args.out / "results.tar.gz") as archive:
        archive.extractall(args.out, filter="data")
    words = "Trained and drawn." if code == 0 else "The time was up before everything was done: run it again to go on."
    return {**_drawn(args.name, args.out / "results", args.out), "trained": True, "words": words}


def _drawn(name: str, folder: Path, out: Path, findings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Draw, and say from which runs.

    Raises:
        PlanError: when they are not there.
    """
    found = results.load(folder)
    path = figures.draw(found, out, [name], findings)[name]
    if path is None:
        raise PlanError(f"the runs of {name} are not in {folder}; train them with --train.")
    needed = figures.NEEDS[name]
    used = [run for run in found.values() if run.spec.group in needed or run.spec.name in needed]
    devices = sorted({run.data["environment"]["device"] for run in used})
    return {"figure": str(path), "runs": [run.spec.name for run in used], "devices": devices}


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    raise SystemExit(main())

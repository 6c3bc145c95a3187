"""What `normgauge reproduce akbar2025/NAME` does: draw a figure from the committed results, or train anew and draw.

`python -m experiments.akbar2025.reproduce --list` prints the names with a sentence each, as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import study
from experiments.akbar2025 import figures, plan, results
from experiments.akbar2025.findings import FINDINGS
from experiments.akbar2025.plan import PlanError
from experiments.akbar2025.results import of


def main(argv: list[str] | None = None) -> int:
    """Draw one figure.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = study.reproduce_parser(__doc__, [*figures.ALL], "fig5.1")
    return study.reproduce_figure(parser.parse_args(argv), figures.ALL, committed, train)


def committed(args: argparse.Namespace) -> dict[str, Any]:
    """Draw from the results that come with the checkout."""
    return _drawn(args.name, results.FOLDER, args.out, FINDINGS)


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiments of a figure, then draw it; a second call goes on where the first stopped.

    Raises:
        PlanError: for options that these experiments do not have, and where a unit failed.
    """
    from experiments.akbar2025 import run

    if args.data_dir or args.epochs or args.minutes:
        raise PlanError("akbar2025 draws its own data and has no epochs: leave out --data-dir, --epochs and --minutes")
    if args.scale not in plan.SCALES:
        raise PlanError(f"akbar2025 has no scale {args.scale!r}; it has {', '.join(plan.SCALES)}")
    folder = args.out / f"akbar2025-{args.scale}"
    command = ["--out", str(folder), "--jobs", str(args.jobs), "--scale", args.scale]
    with contextlib.redirect_stdout(sys.stderr):  # the last line of the standard output is for the caller
        failed = run.main([*command, "--only", *figures.NEEDS[args.name]])
    if failed:
        raise PlanError("not every unit could be run; see above")
    return {**_drawn(args.name, folder, args.out), "trained": True, "words": "Trained and drawn."}


def _drawn(name: str, folder: Path, out: Path, findings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Draw, and say from which units.

    Raises:
        PlanError: when they are not there.
    """
    found = results.load(folder, figures.NEEDS[name])
    path = figures.draw(found, out, [name], findings)[name]
    if path is None:
        raise PlanError(f"the results of {name} are not in {folder}; make them with --train.")
    used = [r.name for experiment in figures.NEEDS[name] for r in of(found, experiment).values()]
    return {"figure": str(path), "runs": used, "devices": ["cpu"]}


if __name__ == "__main__":
    raise SystemExit(main())

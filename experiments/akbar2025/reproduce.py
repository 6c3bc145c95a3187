"""What `normgauge reproduce akbar2025/NAME` does: draw a figure from the committed results, or train anew and draw.

`python -m experiments.akbar2025.reproduce --list` prints the names with a sentence each, as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.akbar2025 import figures, plan, results
from experiments.akbar2025.findings import FINDINGS
from experiments.akbar2025.plan import PlanError
from experiments.akbar2025.results import of
from normgauge import NormgaugeError


def main(argv: list[str] | None = None) -> int:
    """Draw one figure.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    args = _parser().parse_args(argv)
    if args.list:
        print(json.dumps({name: (draw.__doc__ or "").strip() for name, draw in figures.ALL.items()}))
        return 0
    try:
        told = train(args) if args.train else committed(args)
    except NormgaugeError as error:
        print(f"normgauge: {error}", file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0


def committed(args: argparse.Namespace) -> dict[str, Any]:
    """Draw from the results that come with the checkout."""
    told = _drawn(args.name, results.FOLDER, args.out, FINDINGS)
    words = "Drawn from the committed results: nothing was trained. --train trains anew."
    return {**told, "trained": False, "words": words}


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


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="normgauge reproduce", description=__doc__)
    made.add_argument("name", nargs="?", choices=[*figures.ALL], default="fig5.1")
    made.add_argument("--list", action="store_true")
    made.add_argument("--out", type=Path, default=Path("reproduce-output"))
    made.add_argument("--train", action="store_true")
    made.add_argument("--scale", default="full")
    made.add_argument("--data-dir")
    made.add_argument("--jobs", type=int, default=1)
    made.add_argument("--minutes", type=float)
    made.add_argument("--epochs", type=int)
    return made


if __name__ == "__main__":
    raise SystemExit(main())

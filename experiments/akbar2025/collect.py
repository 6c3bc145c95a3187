"""Results into the folder that is committed: `python -m experiments.akbar2025.collect FROM [TO]`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from experiments.akbar2025 import plan, results
from experiments.akbar2025.run import SEEDS, done


def main(argv: list[str] | None = None) -> int:
    """Copy every unit of the plan; say which are missing.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when every unit is there with the settings of the plan, 1 otherwise.
    """
    parser = argparse.ArgumentParser(prog="experiments.akbar2025.collect", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("to", nargs="?", type=Path, default=results.FOLDER)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--scale", default="full", choices=plan.SCALES)
    args = parser.parse_args(argv)
    units = plan.load(args.scale)
    args.to.mkdir(parents=True, exist_ok=True)
    missing = [u.name for u in units if not done(u, args.source, args.seeds)]
    for unit in units:
        if unit.name not in missing:
            shutil.copyfile(args.source / unit.file, args.to / unit.file)
    size = sum(path.stat().st_size for path in args.to.glob("*.json"))
    print(f"{len(units) - len(missing)} of {len(units)} units, {size / 2**20:.1f} MB -> {args.to}")
    if missing:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())

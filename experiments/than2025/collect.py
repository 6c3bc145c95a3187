"""Results and readings into one folder and one archive: `python -m experiments.than2025.collect STATE OUT`."""

from __future__ import annotations

import argparse
import tarfile
import time
from pathlib import Path
from typing import Any

from experiments.than2025 import spool, store

FINISHED = "finished"


def main(argv: list[str] | None = None) -> int:
    """Collect, at once or when the launcher has ended.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.collect", description=__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait at most for the launcher to end")
    args = parser.parse_args(argv)
    end = time.monotonic() + args.wait
    while time.monotonic() < end and not (args.state / FINISHED).exists():
        time.sleep(0.5)
    count = collect(args.state, args.out)
    print(status(args.state))
    print(f"{count} results -> {args.out / 'results.tar.gz'}")
    return 0


def collect(state: Path, out: Path) -> int:
    """Write OUT/results.tar.gz: results/NAME.json for each run begun, its readings inside, and the log.

    Returns:
        How many runs.
    """
    out.mkdir(parents=True, exist_ok=True)
    merged = state / "merged"
    count = 0
    for path in sorted((state / "results").glob("*.json")):
        store.write_json(merged / path.name, {**store.read_json(path), "readings": _readings(state, path.stem)})
        count += 1
    with tarfile.open(out / "results.tar.gz", "w:gz") as archive:
        for path in sorted(merged.glob("*.json")):
            archive.add(path, f"results/{path.name}")
        if (state / "log.txt").exists():
            archive.add(state / "log.txt", "log.txt")
    return count


def _readings(state: Path, slug: str) -> dict[str, Any]:
    """The readings of a run by epoch."""
    paths = sorted((state / "readings").glob(f"{slug}@*.json"))
    return {str(int(path.stem.rpartition("@")[2])): store.read_json(path) for path in paths}


def status(state: Path) -> str:
    """How far everything is, one line a run begun."""
    lines = []
    for path in sorted((state / "results").glob("*.json")):
        result = store.read_json(path)
        last = result["epochs"][-1]
        score = f"{last['test'][1]:.3f}" if "test" in last else "diverged"
        lines.append(
            f"{path.stem:44} epoch {last['epoch']:3d}/{result['spec']['epochs']:3d} test {score} "
            f"{result['seconds']:6.0f} s {'' if result['finished'] else 'unfinished'}"
        )
    done = len(list((state / "done").glob("*"))) if (state / "done").is_dir() else 0
    total = len(store.read_json(state / "plan.json")) if (state / "plan.json").exists() else 0
    lines.append(f"{done} of {total} runs done, {spool.waiting(state / 'spool')} checkpoints still to be read")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())

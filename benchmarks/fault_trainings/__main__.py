"""How many faults the monitor names, and how often it cries wolf.

python -m benchmarks.fault_trainings --budget default --jobs 2 --json found.json
python -m benchmarks.fault_trainings --package another.package --budget every1 --only mlp-adam --json found.json

A package has a table `TRAININGS`. Named right: the first incident comes when or after the fault begins, and its
sentence has one of the words accepted for the cause.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.fault_trainings import child
from benchmarks.fault_trainings.training import Training, named

LONGEST = 300  # seconds; a busy machine may need many times the ten of a training
SERVER = multiprocessing.get_context("forkserver")


def observed(package: str, training: Training, budget: str) -> dict[str, Any]:
    """What the child said of one training, or how it failed, and the verdict on it."""
    row: dict[str, Any] = {"name": training.name, "fault": training.fault, "begins": training.begins, "alarms": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.json"
        process = SERVER.Process(target=child.write, args=(package, training.name, budget, path))
        process.start()
        process.join(LONGEST)
        if process.is_alive():
            process.kill()
            process.join()
        row |= json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"failed": f"exit {process.exitcode}"}
    print(f"{training.name}: {len(row['alarms'])}", file=sys.stderr, flush=True)
    return row | judged(training, row["alarms"])


def judged(training: Training, alarms: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether the first incident is the fault, how long it took, and whether it names the layer."""
    if not training.fault or not alarms:
        return {"right": not training.fault and not alarms}
    first = alarms[0]
    place = f"{first['layer']} {first['sentence']}"
    return {
        "right": first["step"] >= training.begins and named(training.accepted, first["sentence"]),
        "delay": first["step"] - training.begins,
        "layer_right": training.layer in place if training.layer else None,
    }


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the bench; those that failed to run count as wrong."""
    sick = [row for row in rows if row["fault"]]
    well = [row for row in rows if not row["fault"]]
    right = [row for row in sick if row["right"]]
    layers = [row["layer_right"] for row in right if row.get("layer_right") is not None]
    return {
        "faults": len(sick),
        "named_right": len(right),
        "silent": sum(not row["alarms"] for row in sick),
        "healthy": len(well),
        "healthy_alarmed": [row["name"] for row in well if row["alarms"]],
        "incidents_a_faulty_run": round(statistics.mean(len(row["alarms"]) for row in sick), 2) if sick else None,
        "median_delay": statistics.median(row["delay"] for row in right) if right else None,
        "layer_named": [sum(layers), len(layers)],
        "callback_and_file_differ": [row["name"] for row in rows if len(row["alarms"]) != len(row.get("written", []))],
        "failed": [row["name"] for row in rows if "failed" in row],
    }


def printed(rows: list[dict[str, Any]], found: dict[str, Any]) -> None:
    share = f"{found['named_right']}/{found['faults']}"
    print(
        f"named right as first incident: {share}; silent: {found['silent']}; layer also right: {found['layer_named']}"
    )
    print(f"alarms in healthy runs: {len(found['healthy_alarmed'])}/{found['healthy']}")
    print(f"incidents a faulty run: {found['incidents_a_faulty_run']}; median steps to alarm: {found['median_delay']}")
    for name in found["callback_and_file_differ"]:
        print(f"  {name}: what was called out is not what stands in the file")
    for row in rows:
        if "failed" in row:
            print(f"  {row['name']}: did not run: {row['failed'].strip().splitlines()[-1]}")
        elif not row["right"]:
            first = row["alarms"][0] if row["alarms"] else None
            said = (
                f"step {first['step']} {first['alarm']} {first['layer']}: {first['sentence']}" if first else "nothing"
            )
            print(f"  {row['name']} ({row['fault'] or 'healthy'}, from step {row['begins']}) said {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="benchmarks.fault_trainings")
    parser.add_argument("--budget", choices=("default", "every1"), default="default")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="a name, or several with commas")
    parser.add_argument("--json", required=True, type=Path)
    given = parser.parse_args()
    table: tuple[Training, ...] = importlib.import_module(given.package).TRAININGS
    chosen = [row for row in table if not given.only or row.name in given.only.split(",")]
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    SERVER.set_forkserver_preload([child.__name__, given.package])
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(lambda row: observed(given.package, row, given.budget), chosen))
    found = figures(rows)
    machine = {"torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    whole = {"package": given.package, "budget": given.budget, **machine, **found, "trainings": rows}
    given.json.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    printed(rows, found)


if __name__ == "__main__":
    main()

"""What measuring costs, and how the cost grows with the size of a network.

    python -m benchmarks.speed [--only NAME ...] [--quick] [--json FILE] [--limit 600] [--jobs 1]

Each row is one measurement in a process of its own, on one thread: the default reading (all inputs, balanced, with a
search for slopes), the same with effort="quick", for which the goals are, or the layer table and the value at the
samples ("point": neither balanced nor searched). Told are
the CPU seconds of its parts, the most memory held beyond the model, and the bounds (log10). What every first
measurement imports is paid before. Families that grow in one size give a slope: seconds ~ size^slope, least squares
over the upper half of the sizes.

Rows are compared with those of the last run in FILE, then take their place there, each as it is done.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import multiprocessing
import os
import platform
import resource
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

import normgauge as ng
from benchmarks.speed_nets import MODELS, SWEEPS, Absent, build

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "speed.json"
KINDS: dict[str, dict[str, Any]] = {
    "point": {"scope": "point", "search": False, "balance": False, "effort": "quick"},
    "quick": {"scope": "global", "effort": "quick"},
    "default": {"scope": "global"},
}
PARTS = ("trace", "rules", "balance", "lower", "rest")  # rest: following the steepest direction, records, digests
SLOWER, TICK = 1.3, 0.02  # times as long, and seconds that the clock may be off on the smallest rows
LOOSER = 0.01  # decades
MEGABYTE = 1e6


def measured(name: str, kind: str) -> Row:
    """One row: build the network, measure it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        model, batch = build(name)
    except Absent as why:
        return {"skipped": str(why)}
    ng.gauge(nn.Linear(2, 2), torch.ones(1, 2), search=False, balance=False)  # imports what every measurement needs
    gc.collect()
    forget_peak()
    held, began = peak_bytes(), time.process_time()
    reading = ng.gauge(model, batch, **KINDS[kind])
    seconds = time.process_time() - began
    bounds = {key: getattr(reading, key) for key in ("log10_upper", "log10_folded", "log10_lower")}
    return {
        "seconds": round(seconds, 4),
        "parts": {**reading.seconds, "rest": round(max(0.0, seconds - sum(reading.seconds.values())), 3)},
        "megabytes": round((peak_bytes() - held) / MEGABYTE, 1),
        **{key: value if math.isfinite(value) else str(value) for key, value in bounds.items()},
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def peak_bytes() -> int:
    """The most memory this process held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Count the peak from here on, where the system can; elsewhere what building took hides as much of the rest."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def child(pipe: Any, name: str, kind: str, limit: int) -> None:
    """What one process does."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # being stopped is no crash worth a file
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    try:
        pipe.send(measured(name, kind))
    except Exception as error:
        pipe.send({"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]})


def run_row(name: str, kind: str, limit: int) -> Row:
    """One row from a process of its own, which is stopped after ``limit`` CPU seconds, building included."""
    context = multiprocessing.get_context("forkserver")  # forks of a process that has done nothing but import
    context.set_forkserver_preload(["benchmarks.speed_nets", "normgauge.instrument.measure"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(there, name, kind, limit), daemon=True)
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        process.join()
        stopped = process.exitcode == -signal.SIGXCPU
        return {"stopped": f"over {limit} s"} if stopped else {"failed": f"died with status {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def marks(row: Row, last: Row | None) -> list[str]:
    """How the row stands to the last: its ratio, and whether it is slower, looser or lost."""
    if last is None or "seconds" not in last:
        return []
    if "seconds" not in row:
        return [] if "skipped" in row else ["lost"]
    ratio = row["seconds"] / max(last["seconds"], 1e-9)
    found = [f"{ratio:.2f}×"]
    if ratio > SLOWER and row["seconds"] - last["seconds"] > TICK:
        found.append("slower")
    if any(float(row[key]) > float(last[key]) + LOOSER for key in ("log10_upper", "log10_folded")):
        found.append("looser")
    return found


def slope(points: Iterable[tuple[float, float]]) -> float | None:
    """The log-log slope over the upper half of the sizes, at least two; None where there are fewer.

    >>> round(slope((n, 5 * n**3) for n in (2, 4, 8, 16)), 9)
    3.0
    """
    known = sorted((size, seconds) for size, seconds in points if seconds > 0)
    kept = known[-max(2, (len(known) + 1) // 2) :]
    if len({size for size, _ in kept}) < 2:
        return None
    return statistics.linear_regression(*zip(*((math.log(a), math.log(b)) for a, b in kept), strict=True)).slope


def all_slopes(rows: dict[str, Row]) -> dict[str, Row]:
    """The slope of the seconds and of each part, for every family with two rows or more, by kind of reading."""
    families: dict[str, list[tuple[float, Row]]] = {}
    for key, row in rows.items():
        name, _, kind = key.partition(", ")
        family, _, size = name.partition(" ")
        if "seconds" in row:
            place = (family, float(size)) if size else ("parameters", float(row["parameters"]))
            families.setdefault(f"{place[0]}, {kind}", []).append((place[1], row))
    found = {}
    for key, members in families.items():
        total = slope((size, row["seconds"]) for size, row in members)
        if total is not None:
            parts = {part: slope((size, row["parts"].get(part, 0.0)) for size, row in members) for part in PARTS}
            found[key] = {"total": total, **{part: value for part, value in parts.items() if value is not None}}
    return found


def row_line(key: str, row: Row, last: Row | None) -> str:
    """A row in words."""
    why = [f"{word}: {row[word]}" for word in ("skipped", "stopped", "failed") if word in row]
    if why:
        return f"{key:24} {'; '.join([*why, *marks(row, last)])}"
    name, _, kind = key.partition(", ")
    goal = MODELS[name].goals.get(kind) if name in MODELS else None
    parts = " ".join(f"{part} {row['parts'][part]:.2f}" for part in PARTS if part in row["parts"])
    bounds = " ".join(f"{end} {float(row[f'log10_{end}']):.2f}" for end in ("upper", "folded", "lower"))
    told = f"{key:24} {row['seconds']:8.2f} s{'' if goal is None else f' (goal {goal:g})'}: {parts}"
    return " | ".join([told, f"{row['megabytes']:.0f} MB", bounds, *marks(row, last)])


def slope_line(key: str, found: Row) -> str:
    """A slope in words, with its goal."""
    family = key.partition(", ")[0]
    goal = SWEEPS[family].goal if family in SWEEPS else None
    aim = "" if goal is None else f" (goal {goal:g}{'' if found['total'] <= goal else ', missed'})"
    parts = ", ".join(f"{part} {found[part]:.2f}" for part in PARTS if part in found)
    return f"slope by {key:20} {found['total']:5.2f}{aim}: {parts}"


def chosen_rows(only: Sequence[str], quick: bool) -> list[str]:
    """The names of the rows asked for, small networks first; "parameters" stands for all models."""
    wanted = [*(MODELS if "parameters" in only else ()), *only] or [*SWEEPS, *(() if quick else MODELS)]
    # A search takes the same time on every small network: in the quick slice one family shows that it runs.
    kinds = {name: ("point",) if quick and name != "width" else KINDS for name in SWEEPS}
    sizes = {name: sweep.quick if quick else sweep.sizes for name, sweep in SWEEPS.items()}
    return [
        *(f"{name} {size}, {k}" for name in SWEEPS if name in wanted for k in kinds[name] for size in sizes[name]),
        *(f"{name}, {k}" for name in MODELS if name in wanted for k in KINDS),
    ]


def side_by_side(keys: Sequence[str], limit: int, jobs: int) -> Iterator[tuple[str, Row]]:
    """Run the rows, ``jobs`` of them at a time, each in a process of its own; yields them as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_row, *key.split(", "), limit): key for key in keys}
        for done in as_completed(running):
            yield running[done], done.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, print, store; 1 where a measurement failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*SWEEPS, *MODELS, "parameters"]
    parser.add_argument("--only", nargs="+", default=(), choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two small sizes of each family, default readings of one alone; kept only with --json",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help=f"{RESULTS.relative_to(RESULTS.parents[2])} unless said"
    )
    parser.add_argument("--limit", type=int, default=600, help="CPU seconds for each row")
    parser.add_argument("--jobs", type=int, default=1, help="rows measured side by side: as many as quiet cores")
    given = parser.parse_args(arguments)
    target = given.json or (None if given.quick else RESULTS)
    stored = json.loads(target.read_text(encoding="utf-8")) if target is not None and target.exists() else {}
    last = stored.get("rows", {})
    rows, console = {}, Console(highlight=False, markup=False, soft_wrap=True)
    keys, here = chosen_rows(given.only, given.quick), environment()
    moved = [f"{key} {value}" for key, value in stored.get("environment", here).items() if value != here.get(key)]
    if moved:
        console.print(f"the last run was elsewhere ({', '.join(moved)}): what is said of seconds may come from that")
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        # The bar moves by what each row took the last time.
        weights = {key: last.get(key, {}).get("seconds", 1.0) + 0.5 for key in keys}
        task = bar.add_task("", total=sum(weights.values()))
        for key, row in side_by_side(keys, given.limit, given.jobs):
            bar.update(task, description=key)
            rows[key] = row
            console.print(row_line(key, rows[key], last.get(key)))
            bar.advance(task, weights[key])
            if target is not None:
                keep(target, {**last, **{key: row for key, row in rows.items() if "skipped" not in row}})
    for key, found in all_slopes(rows).items():
        console.print(slope_line(key, found))
    for mark in ("slower", "looser", "lost"):
        marked = [key for key, row in rows.items() if mark in marks(row, last.get(key))]
        if marked:
            console.print(f"{mark}, beside the last run: {'; '.join(marked)}")
    return int(any("failed" in row for row in rows.values()))


def keep(target: Path, rows: dict[str, Row]) -> None:
    """Write the rows, their slopes and where they were measured."""
    data = {"environment": environment(), "slopes": all_slopes(rows), "rows": rows}
    target.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def environment() -> dict[str, str]:
    """What the seconds depend on."""
    return {"torch": torch.__version__, "python": platform.python_version(), "processor": processor()}


def processor() -> str:
    """The processor's name, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())

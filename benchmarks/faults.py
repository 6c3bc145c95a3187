"""Do the monitor's alarms name what is wrong, early, and only then? Planted faults and healthy trainings.

    python benchmarks/faults.py [--runs 20] [--healthy 200] [--seed 6000] [--steps 150] [--json FILE]

A fault is named when an alarm at or after its step has the right cause, or the right layer. Any alarm of a healthy run
is a false one. The loss fails when the mean of its last ten steps exceeds twice its level before the fault (twice the
first loss for a fault that is there from the start) or is not a number; the lead is that step minus the step of the
first right alarm, over the runs whose loss fails at all. Thresholds were tuned on seeds below 1000, whose networks and
data are drawn from other widths, depths and clusters than those of the seeds from 1000 on. A first judgement on seeds
from 1000, and a second from 3000, showed mistakes in the signs; after that they count as seen, and the judgement is on
seeds from 6000.

Everything is read at every step; beside it, on the first runs of each kind, the default budget. A second watch sees the
same numbers without those of the optimizer.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import platform
import statistics
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from faulty import FAULTS, STEPS, Training, healthy, planted

import normgauge as ng
from normgauge.monitor.signs.sign import Alarm, Place, Seen
from normgauge.monitor.watch import AlarmWatch, Said

RESULTS = Path(__file__).parent / "results" / "faults.json"
JUDGED = 6000
"""Seeds from here on were never looked at before the thresholds were frozen."""

OF_THE_OPTIMIZER = ("rate", "momentum", "weight_decay")


class Shadowed:
    """A monitor's watch, and one beside it that is not told about the optimizer."""

    def __init__(self, watch: AlarmWatch, places: list[Place]) -> None:
        self._watch, self._other = watch, AlarmWatch(places)
        self.story, self.remarks = watch.story, watch.remarks
        self.without: list[Alarm] = []

    def observe(self, seen: Seen, *, whole: bool = True) -> list[Said]:
        rows = [{k: v for k, v in row.items() if k not in OF_THE_OPTIMIZER} for row in seen.rows]
        layers = [replace(layer, held=None) for layer in seen.facts.layers]
        facts = replace(seen.facts, layers=layers, adaptive=None, eps=None)
        said = self._other.observe(replace(seen, rows=rows, facts=facts), whole=whole)
        self.without += [x for x in said if isinstance(x, Alarm)]
        return self._watch.observe(seen, whole=whole)


@dataclass
class Run:
    """What came of one training."""

    kind: str
    seed: int
    sort: str
    at: int
    said: list[tuple[int, str, str]]
    named: bool
    first: bool
    named_without_optimizer: bool
    warned: int | None
    failed: int | None

    @property
    def lead(self) -> int | None:
        return None if self.warned is None or self.failed is None else self.failed - self.warned


def failure(losses: list[float], at: int) -> int | None:
    """Step at which the loss itself shows the fault."""
    level = statistics.fmean(losses[max(0, at - 11) : at - 1]) if at > 1 else losses[0]
    for step in range(at, len(losses) + 1):
        recent = statistics.fmean(losses[max(0, step - 10) : step])
        if not math.isfinite(recent) or recent > 2 * level:
            return step
    return None


def watched(training: Training, seed: int, steps: int, every: int | None) -> Run:
    """Train under a monitor."""
    alarms: list[Alarm] = []
    with tempfile.TemporaryDirectory() as folder:
        monitor = ng.Monitor(training.model, folder, every=every, optimizer=training.optimizer, on_alarm=alarms.append)
        layers = monitor._instruments.layers
        places = [Place(layer.name, layer.role, layer.shape, layer.size()) for layer in layers]
        monitor._watch = shadowed = Shadowed(monitor._watch, places)  # type: ignore[assignment]
        losses = training.run(steps, monitor, seed)
        monitor.close()
    good = training.right(alarms)
    return Run(
        training.kind, seed, training.sort, training.at, [(a.step, a.alarm, a.layer) for a in alarms], bool(good),
        bool(good) and good[0] is alarms[0], bool(training.right(shadowed.without)),
        good[0].step if good else None, failure(losses, training.at) if training.kind else None,
    )  # fmt: skip


def judged(runs: list[Run]) -> dict[str, Any]:
    """Rates of one kind."""
    leads = [run.lead for run in runs if run.lead is not None]
    waits = [run.warned - run.at for run in runs if run.warned is not None]
    return {
        "runs": len(runs),
        "named": sum(run.named for run in runs),
        "first": sum(run.first for run in runs),
        "named_without_optimizer": sum(run.named_without_optimizer for run in runs),
        "loss_fails": sum(run.failed is not None for run in runs),
        "median_lead": statistics.median(leads) if leads else None,
        "median_steps_after_fault": statistics.median(waits) if waits else None,
        "missed": [asdict(run) for run in runs if not run.named],
    }


def bench(runs: int, count: int, first: int, steps: int, every: int | None, stride: int) -> dict[str, Any]:
    """All kinds, then the healthy ones; ``stride`` seeds are set aside for each kind."""
    table = {}
    everything = []
    for k, kind in enumerate(FAULTS):
        found = []
        for seed in range(first + stride * k, first + stride * k + runs):
            found.append(watched(planted(kind, seed), seed, steps, every))
        table[kind] = judged(found)
        everything += found
        _print_row(kind, table[kind])
    start = first + stride * len(FAULTS)
    well = [watched(healthy(seed), seed, steps, every) for seed in range(start, start + count)]
    false = [run for run in well if run.said]
    leads = [run.lead for run in everything if run.lead is not None]
    named = sum(run.named for run in everything)
    print(f"all: {named} of {len(everything)} named; false alarms on {len(false)} of {len(well)} healthy runs")
    return {
        "kinds": table,
        "named_share": round(named / max(len(everything), 1), 4),
        "median_lead": statistics.median(leads) if leads else None,
        "healthy": len(well),
        "false": len(false),
        "false_share": round(len(false) / max(len(well), 1), 4),
        "false_kinds": Counter(alarm for run in false for _, alarm, _ in run.said),
        "false_runs": [asdict(run) for run in false],
        "families": Counter(run.sort.split("/")[0] for run in (*everything, *well)),
    }


def _print_row(kind: str, row: dict[str, Any]) -> None:
    print(
        f"{kind:<20} named {row['named']:>3} of {row['runs']}, first {row['first']:>3}, without optimizer "
        f"{row['named_without_optimizer']:>3}; loss fails in {row['loss_fails']:>3}, median lead {row['median_lead']}, "
        f"median {row['median_steps_after_fault']} steps after the fault",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each kind of fault")
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--seed", type=int, default=JUDGED)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--budget-runs", type=int, default=4, help="of each kind, with the default budget")
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.steps < STEPS:
        parser.error(f"faults begin as late as step 110: expected --steps {STEPS} or more; got {args.steps}.")
    logging.getLogger("normgauge").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Mismatch dtype")  # RMSNorm under float16 autocast
    torch.set_num_threads(1)
    began = time.perf_counter()
    stride = max(args.runs, args.budget_runs)
    report = {"every step": bench(args.runs, args.healthy, args.seed, args.steps, 1, stride)}
    if args.budget_runs:
        print("default budget")
        few = 10 * args.budget_runs
        report["default budget"] = bench(args.budget_runs, few, args.seed, args.steps, None, stride)
    kept = json.loads(args.json.read_text()) if args.json.exists() else {}
    kept["judged" if args.seed >= JUDGED else "tuned"] = {"seed": args.seed, "steps": args.steps, **report}
    kept["environment"] = {"torch": torch.__version__, "python": platform.python_version()}
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(f"{time.perf_counter() - began:.0f} seconds; written to {args.json}")


if __name__ == "__main__":
    main()

"""Digits again, with a search that nobody steers: the same six settings a way, by rule, and seeds tuning has not seen.

python -m experiments.control.blind [--out experiments/control/results/blind.json] [--seconds 280] [--ways penalty cap]

Four strengths, or learning rates, a decade apart, the same for every way; then half a decade to each side of the best.
All ways with a strength train at the learning rate that was best without control. A budget is no strength: three of
them at that rate and at a tenth of it, six settings too. Run again until nothing is left.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.control.digits import AT, SLACK, halves, trained
from experiments.control.measuring import accuracy, attacked_accuracy, bound_and_margins, certified
from normgauge.lab.zoo.split import Split

STRENGTHS, RATES = (0.01, 0.1, 1.0, 10.0), (1e-4, 1e-3, 1e-2, 1e-1)
STEP = 10**0.5
BUDGETS = (1.0, 1.5, 2.0)
BY_RATE, BY_BUDGET = ("none", "spectral", "muon"), ("cap", "bounded")
RIVALS, OURS = (
    ("decay", "spectral", "unfolded", "unfolded_log", "muon"),
    ("penalty", "layers", "bounded_penalty", *BY_BUDGET, "local"),
)
WAYS = ("none", *RIVALS, *OURS)
TUNED, FRESH, IMAGES = 100, (101, 102, 103, 104, 105), 5

Row = dict[str, Any]
Job = tuple[str, str, float, float, int]


def score(row: Row, goal: float) -> tuple[bool, float]:
    """Accurate settings first; among them the largest radius by the bound, else the most accurate."""
    near = row["valid"] >= goal
    return near, row["global_radius"] if near else row["valid"]


class Search:
    """What was found so far, and what is to be done next."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def of(self, method: str, part: str = "tune") -> list[Row]:
        """The rows of a way."""
        return [row for row in self.rows if row["method"] == method and row["part"] == part]

    @property
    def goal(self) -> float:
        """The accuracy on held out images that a way must reach to be judged by its bound."""
        return max(row["valid"] for row in self.of("none")) - SLACK

    def best(self, method: str) -> Row:
        """The setting of a way that is chosen; without control the most accurate."""
        if method == "none":
            return max(self.of(method), key=lambda row: row["valid"])
        return max(self.of(method), key=lambda row: score(row, self.goal))

    def settings(self, method: str) -> Iterator[tuple[float, float]]:
        """The six settings of a way and the rates it trains at, in order; the last two hang on the first four."""
        own_rate = method in ("none", "spectral")
        first = RATES if method in BY_RATE else STRENGTHS
        rate = 0.0 if method == "none" else self.best("none")["setting"]
        if method in BY_BUDGET:
            yield from ((budget, lr) for lr in (rate, rate / 10) for budget in BUDGETS)
            return
        yield from ((setting, setting if own_rate else rate) for setting in first)
        best = max((row for row in self.of(method) if row["setting"] in first), key=self._coarse(method))["setting"]
        yield from ((setting, setting if own_rate else rate) for setting in (best / STEP, best * STEP))

    def _coarse(self, method: str) -> Any:
        return (lambda r: r["valid"]) if method == "none" else (lambda r: score(r, self.goal))

    def jobs(self, ways: Sequence[str] = WAYS) -> Iterator[Job]:
        """Part, way, setting, rate and seed of what is not done, in order; a network a seed of what was chosen."""
        done = {(row["part"], row["method"], row["setting"], row["lr"], row["seed"]) for row in self.rows}
        for method in ways:
            for setting in self.settings(method):
                if ("tune", method, *setting, TUNED) not in done:
                    yield "tune", method, *setting, TUNED
        for seed in FRESH:
            for method in ways:
                best = self.best(method)
                job = ("seeds", method, best["setting"], best["lr"], seed)
                if job not in done:
                    yield job


def do_job(job: Job, splits: tuple[Split, Split, Split]) -> Row:
    """Train and judge one network."""
    part, method, setting, lr, seed = job
    train, valid, test = splits
    model = trained(method, 0.0 if method in ("none", "spectral") else setting, lr, seed, train)
    row: Row = {"part": part, "method": method, "setting": setting, "lr": lr, "seed": seed}
    row |= {"valid": accuracy(model, valid)}
    if part == "tune":
        return row | bound_and_margins(model, valid)
    row |= {"test": accuracy(model, test)} | bound_and_margins(model, test) | certified(model, test, IMAGES, AT)
    return row | {"pgd_accuracy": attacked_accuracy(model, test.inputs, test.labels, AT)}


def main() -> None:
    """Do what is left, for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results/blind.json"))
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # Muon multiplies in bfloat16, which not every CPU does in hardware
    rows: list[Row] = json.loads(given.out.read_text()) if given.out.exists() else []
    search, splits, begun = Search(rows), halves(), time.process_time()
    for job in search.jobs(given.ways):
        if time.process_time() - begun > given.seconds:
            break
        rows.append(do_job(job, splits))
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps({k: v for k, v in rows[-1].items() if not isinstance(v, list)}), flush=True)


if __name__ == "__main__":
    main()

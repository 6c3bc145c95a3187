"""Digits again, with a search that nobody steers: the same six settings a way, by rule, and seeds tuning has not seen.

python -m experiments.control.blind [--out experiments/control/results/blind.json] [--seconds 280]

Four strengths, or learning rates, a decade apart, the same for every way; then half a decade to each side of the best.
All ways with a strength train at the learning rate that was best without control. Run again until nothing is left.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from experiments.control.digits import AT, SLACK, halves, trained
from experiments.control.measuring import accuracy, attacked_accuracy, bound_and_margins, certified
from normgauge.lab.zoo.split import Split

STRENGTHS, RATES = (0.01, 0.1, 1.0, 10.0), (1e-4, 1e-3, 1e-2, 1e-1)
STEP = 10**0.5
BY_RATE = ("none", "spectral", "muon")
RIVALS, OURS = ("decay", "spectral", "unfolded", "unfolded_log", "muon"), ("penalty", "layers", "local")
WAYS = ("none", *RIVALS, *OURS)
TUNED, FRESH, IMAGES = 100, (101, 102, 103, 104, 105), 5

Row = dict[str, Any]


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

    def settings(self, method: str) -> Iterator[float]:
        """The six settings of a way, in order; the last two hang on the first four."""
        first = RATES if method in BY_RATE else STRENGTHS
        yield from first
        best = max((row for row in self.of(method) if row["setting"] in first), key=self._coarse(method))["setting"]
        yield from (best / STEP, best * STEP)

    def _coarse(self, method: str) -> Any:
        return (lambda r: r["valid"]) if method == "none" else (lambda r: score(r, self.goal))

    def finalists(self) -> tuple[str, ...]:
        """No control, the best rival, and each of ours: they get all fresh seeds, the others two."""
        rival = max(RIVALS, key=lambda method: score(self.best(method), self.goal))
        return ("none", rival, *OURS)

    def jobs(self) -> Iterator[tuple[str, str, float, int]]:
        """Part, way, setting and seed of what is not done, in order."""
        done = {(row["part"], row["method"], row["setting"], row["seed"]) for row in self.rows}
        for method in WAYS:
            for setting in self.settings(method):
                if ("tune", method, setting, TUNED) not in done:
                    yield "tune", method, setting, TUNED
        full = self.finalists()
        for seed in FRESH:
            for method in WAYS if seed in FRESH[:2] else full:
                job = ("seeds", method, self.best(method)["setting"], seed)
                if job not in done:
                    yield job


def do_job(search: Search, job: tuple[str, str, float, int], splits: tuple[Split, Split, Split]) -> Row:
    """Train and judge one network."""
    part, method, setting, seed = job
    train, valid, test = splits
    lr = setting if method in ("none", "spectral") else search.best("none")["setting"]
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
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # Muon multiplies in bfloat16, which not every CPU does in hardware
    rows: list[Row] = json.loads(given.out.read_text()) if given.out.exists() else []
    search, splits, begun = Search(rows), halves(), time.process_time()
    for job in search.jobs():
        if time.process_time() - begun > given.seconds:
            break
        rows.append(do_job(search, job, splits))
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps({k: v for k, v in rows[-1].items() if not isinstance(v, list)}), flush=True)


if __name__ == "__main__":
    main()

"""Do the bounds hold? Every row on problems whose truth is known, with networks chosen to break it.

    python -m benchmarks.coverage [--problems 1000] [--training 50] [--jobs 1] [--delta 0.05] [--seed 0] [--json FILE]

Each problem draws D from a finite world (benchmarks/worlds.py), chooses a network after D, and asks every row function
for its rows; so a row that is added is counted without being named here. Kinds of problems are mixed so that every row
that can be a bound applies to about as many problems as asked for. A row that is a bound below the true error of the
predictor it speaks about is a violation. Allowed are as many as the 99.9 % quantile of Binomial(n, δ), n the problems
the row applies to. Rows that train are asked on fewer problems. The error of a noisy network is the mean over draws of
its weights, exact over the world; a violation counts where it is above the bound by four standard errors. The rows of
spectral norms say something only for samples too many to store: they are asked with counts alone as well.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.worlds import ALL, COUNTS, FAMILIES, PROBLEMS, Problem, World
from normgauge.core.certificate import NETWORK, Kind, Row, promised
from normgauge.generalization.bounds.holdout import log_binomial_below
from normgauge.generalization.case import Case
from normgauge.generalization.facts.sample import Sample
from normgauge.generalization.facts.slopes import Slopes, slopes_of
from normgauge.generalization.rows import capacity, compression, disagreement, gibbs, holdout
from normgauge.generalization.spaces import Loss, cell_rows

RESULTS = Path(__file__).parent / "results" / "coverage.json"
DRAWS = 300  # of the weights, for the row
TRUTH_DRAWS = 400  # of the weights, for the truth
TRAINING = ("gibbs.dziugaite", "gibbs.data_dependent_prior")  # and disagreement with a surrogate of its own


@dataclass(slots=True)
class Tally:
    """What became of one row."""

    problems: int = 0
    bounds: int = 0
    violations: int = 0
    smallest: float = math.inf
    closest: float = math.inf  # bound − truth, where it is smallest
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, row: Row, truth: float, slack: float) -> None:
        """Count one answer."""
        self.kinds[str(row.kind)] = self.kinds.get(str(row.kind), 0) + 1
        if row.kind not in (Kind.BOUND, Kind.VACUOUS):
            return
        self.problems += 1
        if row.kind is Kind.BOUND and row.value is not None:
            self.bounds += 1
            self.smallest = min(self.smallest, row.value)
            self.closest = min(self.closest, row.value - truth)
            self.violations += row.value < truth - slack

    def merged(self, delta: float) -> dict[str, Any]:
        """As the results file has it."""
        found = asdict(self)
        if not self.bounds:
            found["smallest"] = found["closest"] = None
        return {
            **found,
            "allowed": allowed(self.problems, delta),
            "held": self.violations <= allowed(self.problems, delta),
        }


def allowed(n: int, delta: float) -> int:
    """The 99.9 % quantile of Binomial(n, δ).

    >>> allowed(1000, 0.05)
    73
    """
    return next(k for k in range(n + 1) if log_binomial_below(k, n, delta) >= math.log(0.999))


class Watched:
    """Remembers the Gaussian whose error was last asked for, so that its true error can be computed."""

    def __init__(self) -> None:
        self.plain, self.last = gibbs.drawn_error, None

    def __enter__(self) -> Watched:
        gibbs.drawn_error = self.listen  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        gibbs.drawn_error = self.plain

    def listen(self, space: Any, posterior: Any, sample: Any, draws: int, **more: Any) -> float:
        self.last = (space, posterior)
        return self.plain(space, posterior, sample, draws, **more)

    def truth(self, world: World, seed: int) -> tuple[float, float]:
        """The mean error over draws, and its standard error."""
        assert self.last is not None
        space, posterior = self.last
        noise = torch.Generator().manual_seed(10_000 + seed)
        chances = world.chances.double()
        with torch.no_grad():
            errors = torch.stack([
                chances[space(posterior.draw(noise), world.points).argmax(1).cpu() != world.labels].sum()
                for _ in range(TRUTH_DRAWS)
            ])  # fmt: skip
        return float(errors.mean()), float(errors.std()) / math.sqrt(TRUTH_DRAWS)


def answers(kind: str, problem: Problem, watched: Watched) -> Iterator[tuple[Row, float, float]]:
    """The rows of the families asked, the truth about what each speaks of, and how far that truth may be off.

    Raises:
        SystemExit: for a bound on something whose truth is not computed here.
    """
    case, world = problem.case, problem.world
    true = world.error(case.model)
    families: dict[str, Callable[[], Iterator[Row]]] = {
        "hold-out": lambda: holdout.rows(case),
        "cells": lambda: cell_rows(case, _slopes(case), Loss.of("ramp", None), world.cells(), 1),
        "capacity": lambda: capacity.rows(case),
        "compression": lambda: compression.rows(case, coreset=problem.coreset, picked=problem.picked),
        "disagreement": lambda: disagreement.rows(case, surrogate=None if case.epochs else problem.surrogate),
        "PAC-Bayes": lambda: gibbs.rows(case, draws=DRAWS),
    }
    for family in FAMILIES[kind]:
        for row in families[family]():
            if family == "PAC-Bayes" and row.kind in (Kind.BOUND, Kind.VACUOUS):
                mean, off = watched.truth(world, case.seed)
                yield row, mean, 4 * off
            elif row.quantity == "error" and (row.about == NETWORK or row.kind is Kind.NOT_APPLICABLE):
                yield row, true, 0.0
            elif row.kind is Kind.BOUND:
                raise SystemExit(f"{row.key} bounds the {row.quantity} of {row.about}; its truth is not known here")


def _slopes(case: Case) -> Slopes:
    return slopes_of(case.model, case.train.take(range(min(16, case.m))))


def counted(index: int, delta: float) -> Iterator[tuple[Row, float, float]]:
    """The two rows of spectral norms say something only for samples too many to store: two points, counts alone."""
    rare = 0.4 * float(torch.rand(1))
    net = nn.Sequential(nn.Linear(1, 2, bias=False)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))
    m = 10 ** (9 + index % 6)
    wrong = int(torch.distributions.Binomial(torch.tensor(m).double(), torch.tensor(rare).double()).sample())
    chain = capacity.read_chain(net, Sample(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])))
    norms = Counted(wrong / m, 0.0)
    for key, form in (("capacity.bartlett2017", capacity.spectral), ("capacity.neyshabur2018", capacity.noisy)):
        parts = form(chain, norms, 1.9, 2, m, math.log(m) / 2, delta)  # type: ignore[arg-type]
        row = Row(f"{key}, by counts", key, "capacity", Kind.VACUOUS, parts.value, terms=parts.terms)
        yield promised(row, condition="D is drawn"), rare, 0.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What the norm rows ask of D, where only counts are known."""

    share: float
    log_norm: float

    def error(self, gamma: float) -> float:
        """Share of the samples with a margin of at most γ: those that are wrong; the others have 2."""
        return self.share


def one(kind: str, index: int, delta: float, seed: int, epochs: int) -> list[tuple[str, Row, float, float]]:
    """All answers of one problem, by key."""
    torch.set_num_threads(1)
    torch.manual_seed((seed * 31 + list(PROBLEMS).index(kind)) * 1_000_003 + index)
    found = []
    with Watched() as watched:
        for row, truth, slack in answers(kind, PROBLEMS[kind](index, delta, epochs), watched):
            own = row.key == "disagreement.surrogate" and epochs
            if row.key not in TRAINING or epochs:
                found.append((f"{row.key}, own surrogate" if own else row.key, row, truth, slack))
    if kind == "picker":
        found += [(row.key, row, truth, slack) for row, truth, slack in counted(index, delta)]
    return found


def tally(problems: int, training: int, delta: float, seed: int, jobs: int = 1) -> dict[str, Tally]:
    """Go through the problems kind by kind; the first ones with training."""
    found: dict[str, Tally] = {}
    start, done = time.monotonic(), 0
    trained = math.ceil(training / sum(families is ALL for families in FAMILIES.values()))
    work = [
        (kind, index, delta, seed, 2 if index < trained and FAMILIES[kind] is ALL else 0)
        for kind in PROBLEMS
        for index in range(math.ceil(COUNTS[kind] * problems))
    ]
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        columns = tuple(zip(*work, strict=True))
        for answered in pool.map(one, *columns, chunksize=8) if pool is not None else map(one, *columns):
            for key, row, truth, slack in answered:
                found.setdefault(key, Tally()).add(row, truth, slack)
            done += 1
            if done % 100 == 0:
                print(f"{done} of {len(work)} problems, {time.monotonic() - start:.0f} s", flush=True)
    return found


def report(found: dict[str, Tally], delta: float) -> str:
    """A table, rows that say nothing anywhere last."""
    lines = [f"{'row':44} {'asked':>6} {'bounds':>7} {'broken':>7} {'allowed':>8} {'smallest':>9} {'closest':>8}"]
    for key, one in sorted(found.items(), key=lambda item: -item[1].bounds):
        if not one.bounds:
            lines.append(f"{key:44} {one.problems:6}  says nothing in any problem: {one.kinds}")
            continue
        lines.append(
            f"{key:44} {one.problems:6} {one.bounds:7} {one.violations:7} {allowed(one.problems, delta):8} "
            f"{one.smallest:9.4f} {one.closest:8.4f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--training", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    start = time.monotonic()
    found = tally(args.problems, args.training, args.delta, args.seed, args.jobs)
    print(report(found, args.delta))
    results = {
        "problems": args.problems, "training": args.training, "delta": args.delta, "seed": args.seed,
        "python": platform.python_version(), "torch": torch.__version__,
        "kinds": {kind: math.ceil(COUNTS[kind] * args.problems) for kind in PROBLEMS},
        "seconds": round(time.monotonic() - start), "jobs": args.jobs,
        "rows": {key: one.merged(args.delta) for key, one in sorted(found.items())},
    }  # fmt: skip
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if not all(one.violations <= allowed(one.problems, args.delta) for one in found.values()):
        raise SystemExit("a bound does not hold")


if __name__ == "__main__":
    main()

"""Do the bounds hold? Every row on problems whose truth is known, with networks chosen to break it.

    python -m benchmarks.coverage [--problems 1000] [--training 50] [--public 100] [--jobs 1] [--json FILE]

Each problem draws D from a world (benchmarks/worlds.py), chooses a network after D, and asks every row function for its
rows; so a row that is added is counted without being named here. Whoever chooses the network is free in all that the
printed condition of a row does not exclude. Kinds of problems are mixed so that every row that can be a bound applies
to about as many problems as asked for; cell rows are asked for both losses and in both spaces. A row that is a bound
below the truth about the predictor it speaks of is a violation. Allowed are, in each kind of problem, as many as the
99 % quantile of Binomial(n, δ), n the problems the row applies to. Rows that train are asked on fewer problems. The
error of a noisy network is the mean over draws of its weights, each exact; a violation counts where it is above the
bound by four standard errors. The rows of spectral norms say something only for samples too many to store: they are
asked with counts alone as well.

`--public` problems go through `ng.certify` itself; their rows are counted apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import normgauge as ng
from benchmarks.worlds import ALL, COUNTS, FAMILIES, PROBLEMS, PUBLIC, TRAINED, Plane, Problem, World
from normgauge.certificates.bounds.holdout import log_binomial_below
from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.slopes import slopes_of
from normgauge.certificates.rows import capacity, compression, disagreement, gibbs, holdout
from normgauge.certificates.spaces import Loss, cell_rows
from normgauge.core.certificate import NETWORK, Row, RowKind, promised_row
from normgauge.core.errors import InputError

RESULTS = Path(__file__).parent / "results" / "coverage.json"
DRAWS = 300  # of the weights, for the row
TRUTH_DRAWS = 400  # of the weights, for the truth
TRAINING = ("gibbs.dziugaite", "gibbs.data_dependent_prior")  # and disagreement with a surrogate of its own
CLIPS = (0.5, 1.0, 4.0)  # of cross-entropy
Keyed = tuple[str, Row, float, float]
Answer = tuple[Row, float, float]  # a row, the truth about what it speaks of, and how far that truth may be off


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
        if row.kind not in (RowKind.BOUND, RowKind.VACUOUS):
            return
        self.problems += 1
        if row.kind is RowKind.BOUND and row.value is not None:
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
    """The 99 % quantile of Binomial(n, δ).

    >>> allowed(1000, 0.05)
    67
    """
    return next(k for k in range(n + 1) if log_binomial_below(k, n, delta) >= math.log(0.99))


class Watched:
    """Remembers the Gaussian each PAC-Bayes row speaks about: the last whose error was asked for."""

    def __init__(self) -> None:
        self.drawn_error, self.rows = gibbs.drawn_error, gibbs.gibbs_rows
        self.last: tuple[Any, Any] | None = None
        self.of: dict[str, tuple[Any, Any] | None] = {}

    def __enter__(self) -> Watched:
        gibbs.drawn_error, gibbs.gibbs_rows = self.listen, self.remember  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        gibbs.drawn_error, gibbs.gibbs_rows = self.drawn_error, self.rows

    def listen(self, space: Any, posterior: Any, sample: Any, draws: int, **more: Any) -> float:
        self.last = (space, posterior)
        return self.drawn_error(space, posterior, sample, draws, **more)

    def remember(self, case: Case, **more: Any) -> Iterator[Row]:
        for row in self.rows(case, **more):
            self.of[row.key] = self.last
            yield row

    def truth(self, key: str, world: World | Plane, seed: int) -> tuple[float, float]:
        """The mean error over draws, and its standard error."""
        found = self.of[key]
        assert found is not None
        space, posterior = found
        noise = torch.Generator().manual_seed(10_000 + seed)
        drawn = (posterior.draw(noise) for _ in range(TRUTH_DRAWS))
        errors = torch.tensor([world.error(partial(space, tensors)) for tensors in drawn], dtype=torch.float64)
        return float(errors.mean()), float(errors.std()) / math.sqrt(TRUTH_DRAWS)


def answers(kind: str, problem: Problem, watched: Watched) -> Iterator[Answer]:
    """The rows of the families asked, and the truth about each."""
    case, world = problem.case, problem.world
    slopes = cache(lambda: slopes_of(case.model, case.train.take(range(min(16, case.m)))))
    clip = CLIPS[case.seed % len(CLIPS)]

    def cells(name: str, limit: float | None) -> Iterator[Row]:
        return cell_rows(case, slopes(), Loss(name, 1.0 if limit is None else limit), world.cells(), 1)

    families: dict[str, Callable[[], Iterator[Row]]] = {
        "hold-out": lambda: holdout.holdout_rows(case),
        "cells": lambda: cells("ramp", None),
        "cells, cross-entropy": lambda: cells("cross-entropy", clip),
        "capacity": lambda: capacity.capacity_rows(case),
        "compression": lambda: compression.compression_rows(case, coreset=problem.coreset, picked=problem.picked),
        "disagreement": lambda: disagreement.disagreement_rows(
            case, surrogate=None if case.epochs else problem.surrogate
        ),
        "PAC-Bayes": lambda: gibbs.gibbs_rows(case, draws=DRAWS),
    }
    for family in FAMILIES[kind]:
        for row in families[family]():
            yield from judged(row, problem, clip, watched)


def judged(row: Row, problem: Problem, clip: float, watched: Watched) -> Iterator[Answer]:
    """The row beside the truth; nothing for a score.

    Raises:
        SystemExit: for a bound on something whose truth is not computed here.
    """
    case, world = problem.case, problem.world
    if row.kind is RowKind.SCORE or row.family == "score":
        return
    if row.quantity != "error":
        row = dataclasses.replace(row, key=f"{row.key}, {row.quantity}")
    if row.kind is not RowKind.BOUND:
        yield row, math.nan, 0.0
    elif row.family == "PAC-Bayes":
        mean, off = watched.truth(row.key, world, case.seed)
        yield row, mean, 4 * off
    elif row.key == "features.encoder_holdout" and case.encoder is not None:
        yield row, world.error(case.encoder), 0.0
    elif row.about == NETWORK and row.quantity == "error":
        yield row, world.error(case.model), 0.0
    elif row.key.startswith("holdout.per_class"):
        yield row, world.worst_class(case.model), 0.0
    elif row.key == "features.encoder_holdout" and case.encoder is not None:
        yield row, world.error(case.encoder), 0.0
    elif row.about == NETWORK and row.quantity == "clipped cross-entropy":
        yield row, world.loss(case.model, clip), 0.0
    else:
        raise SystemExit(f"{row.key} bounds the {row.quantity} of {row.about}; its truth is not known here")


def certified(kind: str, index: int, delta: float, seed: int, epochs: int) -> list[Keyed]:
    """All answers of one problem through `ng.certify`, by key; every other one about cross-entropy."""
    seeded(kind, index, seed + 1)
    problem = PROBLEMS[kind](index, delta, epochs)
    case, clip = problem.case, CLIPS[index % len(CLIPS)]
    assert case.holdout is not None and case.unlabeled is not None
    affine = kind != "hidden"
    options: dict[str, Any] = {"epochs": epochs, "seed": index, "tries": problem.tries, "groups": case.groups}
    if affine and index % 2:
        options |= {"loss": "cross-entropy", "clip": clip}
    train, held = ((part.inputs, part.labels) for part in (case.train, case.holdout))
    with Watched() as watched:
        try:
            rows = ng.certify(case.model, train, held, case.unlabeled.inputs, case.encoder, delta, **options).rows
        except InputError as error:  # nothing is promised
            refused = Row("refused", "refused", "none", RowKind.NOT_APPLICABLE, reason=str(error))
            return [(refused.key, refused, math.nan, 0.0)]
        answers = [one for row in rows for one in judged(row, problem, clip, watched)]
    return [(row.key, row, truth, slack) for row, truth, slack in answers]


def counted(index: int, delta: float) -> Iterator[tuple[Row, float, float]]:
    """The two rows of spectral norms say something only for samples too many to store: two points, counts alone."""
    rare = 0.4 * float(torch.rand(1))
    net = nn.Sequential(nn.Linear(1, 2, bias=False)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))
    m = 10 ** (9 + index % 6)
    wrong = int(torch.distributions.Binomial(torch.tensor(m).double(), torch.tensor(rare).double()).sample())
    chain = capacity.read_chain(net, DataSample(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])))
    norms = Counted(wrong / m, m, math.log(m) / 2, 0.0)
    for key in ("capacity.bartlett2017", "capacity.neyshabur2018"):
        parts = capacity.margin_bound(key, chain, norms, 1.9, 2, m, delta)  # type: ignore[arg-type]
        row = Row(f"{key}, by counts", key, "capacity", RowKind.VACUOUS, parts.value, terms=parts.terms)
        yield promised_row(row, condition="D is drawn"), rare, 0.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What the norm rows ask of D, where only counts are known."""

    share: float
    m: int
    log_data: float
    log_norm: float

    def error(self, gamma: float) -> float:
        """Share of the samples with a margin of at most γ: those that are wrong; the others have 2."""
        return self.share


def seeded(kind: str, index: int, seed: int) -> None:
    """One thread, and random numbers that depend on the problem alone."""
    torch.set_num_threads(1)
    torch.manual_seed((seed * 31 + list(PROBLEMS).index(kind)) * 1_000_003 + index)


def one(kind: str, index: int, delta: float, seed: int, epochs: int) -> list[Keyed]:
    """All answers of one problem, by key."""
    seeded(kind, index, seed)
    found = []
    with Watched() as watched:
        for row, truth, slack in answers(kind, PROBLEMS[kind](index, delta, epochs), watched):
            own = row.key == "disagreement.surrogate" and epochs
            if row.key not in TRAINING or epochs:
                found.append((f"{row.key}, own surrogate" if own else row.key, row, truth, slack))
    if kind == "picker":
        found += [(row.key, row, truth, slack) for row, truth, slack in counted(index, delta)]
    return found


def tally(problems: int, training: int, public: int, delta: float, seed: int, jobs: int = 1) -> dict[str, Tally]:
    """Go through the problems kind by kind, the first ones with training, then through those of `certify`.

    A row is counted in each kind apart: what it keeps in one must not hide what it breaks in another.
    """
    found: dict[str, Tally] = {}
    start, done = time.monotonic(), 0
    trained = math.ceil(training / sum(families is ALL for families in FAMILIES.values()))
    work = [
        (one, kind, index, delta, seed, 2 if kind in TRAINED or (index < trained and FAMILIES[kind] is ALL) else 0)
        for kind in PROBLEMS
        for index in range(math.ceil(COUNTS[kind] * problems))
    ]
    work += [(certified, PUBLIC[i % len(PUBLIC)], i // len(PUBLIC), delta, seed, 1) for i in range(public)]
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        made = map(_asked, work) if pool is None else pool.map(_asked, work, chunksize=8)
        for (form, kind, *_), answered in zip(work, made, strict=True):
            group = kind if form is one else f"certify, {kind}"
            for key, row, truth, slack in answered:
                found.setdefault(f"{group}: {key}", Tally()).add(row, truth, slack)
            done += 1
            if done % 100 == 0:
                print(f"{done} of {len(work)} problems, {time.monotonic() - start:.0f} s", flush=True)
    return found


def _asked(work: tuple[Callable[..., list[Keyed]], str, int, float, int, int]) -> list[Keyed]:
    form, *arguments = work
    return form(*arguments)


def report(found: dict[str, Tally], delta: float) -> str:
    """A table, rows that say nothing anywhere last."""
    lines = [f"{'row':66} {'asked':>6} {'bounds':>7} {'broken':>7} {'allowed':>8} {'smallest':>9} {'closest':>8}"]
    for key, one in sorted(found.items(), key=lambda item: -item[1].bounds):
        if not one.bounds:
            lines.append(f"{key:66} {one.problems:6}  says nothing in any problem: {one.kinds}")
            continue
        lines.append(
            f"{key:66} {one.problems:6} {one.bounds:7} {one.violations:7} {allowed(one.problems, delta):8} "
            f"{one.smallest:9.4f} {one.closest:8.4f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--training", type=int, default=50)
    parser.add_argument("--public", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    start = time.monotonic()
    found = tally(args.problems, args.training, args.public, args.delta, args.seed, args.jobs)
    print(report(found, args.delta))
    results = {
        "problems": args.problems, "training": args.training, "public": args.public,
        "delta": args.delta, "seed": args.seed,
        "python": platform.python_version(), "torch": torch.__version__,
        "kinds": {kind: math.ceil(COUNTS[kind] * args.problems) for kind in PROBLEMS},
        "seconds": round(time.monotonic() - start), "jobs": args.jobs,
        "rows": {key: one.merged(args.delta) for key, one in sorted(found.items())},
    }  # fmt: skip
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    broken = [key for key, one in found.items() if one.violations > allowed(one.problems, args.delta)]
    if broken:
        raise SystemExit(f"bounds that do not hold: {'; '.join(broken)}")


if __name__ == "__main__":
    main()

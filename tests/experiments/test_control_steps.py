"""Trainings of experiments/control: steps with graphs and without, jobs, what is chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F

from experiments.control import cifar, jobs
from experiments.control.graphed import Stepper
from experiments.control.methods import start
from normgauge.lab.zoo import mlp


def stepper(method: str, every: int = 1) -> Stepper:
    torch.manual_seed(0)
    model, x, y = mlp((6, 8, 3), norm="batch"), torch.randn(9, 6), torch.arange(9) % 3
    training = start(model, x, method, 0.01, 1e-2, every=every)
    model.train()
    return Stepper(training, lambda x, y: F.cross_entropy(training.model(x), y), x, y)


def taken(take: Stepper, steps: int = 12) -> dict[str, torch.Tensor]:
    for _ in range(steps):
        take(take.x.clone(), take.y.clone())
    return take.training.model.state_dict()


class FakeGraph:
    """Stands for a captured graph: replaying it is taking the step again."""

    replayed: ClassVar[list[FakeGraph]] = []

    def __init__(self, take: Stepper) -> None:
        self.take = take

    def replay(self) -> None:
        self.replayed.append(self)
        self.take._begin()


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, take: Stepper, fails: bool) -> None:
    """Let a stepper on the CPU believe that there is a GPU."""

    @contextlib.contextmanager
    def graph(made: FakeGraph, stream: Any) -> Iterator[None]:
        if fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        take._begin, kept = lambda: None, take._begin  # a capture does not run what it captures
        yield
        take._begin = kept

    take._stream = object()  # type: ignore[assignment]
    FakeGraph.replayed = []
    monkeypatch.setattr(take, "_on_stream", take._begin)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: FakeGraph(take))
    monkeypatch.setattr(torch.cuda, "graph", graph)


@pytest.mark.parametrize("method", ["none", "penalty", "unfolded"])
def test_where_no_graph_is_captured_steps_go_on(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    plain, failing = stepper(method), stepper(method)
    on_a_gpu(monkeypatch, failing, fails=True)
    wanted, got = taken(plain), taken(failing)
    assert failing.why == "operation not permitted when stream is capturing"
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)


def test_one_graph_in_several_holds_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    take = stepper("penalty", every=3)
    on_a_gpu(monkeypatch, take, fails=False)
    taken(take)
    first, second = take._graphs
    assert FakeGraph.replayed == [first, second, second] * 2 and take.taken == 12


def test_an_optimizer_outside_the_graph_takes_every_step() -> None:
    take = stepper("none")
    assert take._held == [] and take._free == take.training.optimizers
    before = {name: value.clone() for name, value in take.training.model.state_dict().items()}
    assert any(not torch.equal(before[name], value) for name, value in taken(take, 1).items())


def settings(method: str, valid: float, margin: float, bound: float, strength: float = 0.0) -> dict[str, Any]:
    row = {"part": "tune", "method": method, "strength": strength, "lr": 1e-2, "seed": 0, "epochs": 1, "limit": None}
    return row | {"valid": valid, "margin": margin, "log10_cap": bound}


def test_settings_are_chosen_among_the_accurate() -> None:
    rows = [
        settings("none", 0.900, 5.0, 7.0, 1),
        settings("none", 0.896, 5.0, 6.5, 2),
        settings("decay", 0.80, 1.0, 1.0),
        settings("penalty", 0.897, 3.0, 5.0, 1),
        settings("penalty", 0.894, 3.0, 3.0, 2),
        settings("unfolded_log", 0.899, 3.0, 6.0),
        settings("spectral", 0.95, 9.0, 1.0),
        settings("muon", 0.901, 1.0, float("inf")),
    ]
    picked = cifar.chosen(rows)
    assert [picked[m]["strength"] for m in ("none", "penalty")] == [2, 1]
    assert {role: row["method"] for role, row in cifar.finalists(rows).items()} == {
        "none": "none",
        "rival": "muon",
        "wide rival": "unfolded_log",
        "ours": "penalty",
    }


def test_without_an_accurate_setting_the_most_accurate_is_the_finalist() -> None:
    rows = [settings("none", 0.9, 5.0, 7.0), settings("muon", 0.9, 5.0, 7.0)]
    rows += [settings("penalty", 0.85, 3.0, 5.0), settings("layers", 0.6, 3.0, 1.0)]
    assert cifar.finalists(rows)["ours"]["method"] == "penalty"


def test_every_way_gets_as_many_settings_then_the_finalists_three_seeds() -> None:
    rows: list[dict[str, Any]] = []
    size = {"epochs": 1, "limit": None}
    while new := [j for j in cifar.all_jobs(rows, size) if jobs.job_name(j) not in map(jobs.job_name, rows)]:
        rows += [new[0] | {"valid": 0.9 - abs(new[0]["lr"] - 2.4e-2), "margin": 1.0, "log10_cap": -new[0]["strength"]}]
    tuned = [row for row in rows if row["part"] == "tune" and row["method"] not in dict(cifar.LATE)]
    for method in cifar.BY_RATE + cifar.BY_STRENGTH:
        own = [row for row in tuned if row["method"] == method]
        assert len(own) == len(cifar.RATES) and (method in cifar.BY_RATE or {row["lr"] for row in own} == {2.4e-2})
    seeds = [(row["method"], row["seed"]) for row in rows if row["part"] == "seeds"]
    assert seeds == [(m, seed) for seed in (1, 2, 3) for m in ("none", "muon", "decay", "penalty")]
    assert len(rows) == 8 * len(cifar.RATES) + 12 + len(cifar.LATE)


def squared(job: jobs.Job) -> tuple[jobs.Job, None]:
    """Stands for a training."""
    return job | {"valid": job["strength"] ** 2}, None


def test_jobs_that_hang_on_others_follow_them(tmp_path: Path) -> None:
    first = {"part": "tune", "method": "none", "strength": 3.0, "lr": 0.1, "seed": 0}

    def wanted(rows: list[jobs.Job]) -> list[jobs.Job]:
        return [first, *(first | {"strength": row["valid"]} for row in rows if row["strength"] == 3.0)]

    jobs.run_jobs(squared, wanted, jobs.Results(tmp_path, "few"), workers=1, seconds=60)
    assert [row["valid"] for row in jobs.Results(tmp_path, "few").rows] == [9.0, 81.0]


def test_results_are_kept_at_once_and_read_again(tmp_path: Path) -> None:
    kept = jobs.Results(tmp_path, "few")
    one, two = settings("none", 0.9, 1.0, 1.0), settings("decay", 0.9, 1.0, 1.0)
    kept.add(one, {"weight": torch.ones(2)})
    kept.add(two | {"error": "it fell"}, None)
    again = jobs.Results(tmp_path, "few")
    assert again.done == {jobs.job_name(one)} and len(again.rows) == 2
    assert torch.equal(again.weights()[jobs.job_name(one)]["weight"], torch.ones(2))

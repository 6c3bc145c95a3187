"""A slice of benchmarks/coverage.py: the bounds on problems whose truth is known, and that a false one is seen."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binom

from benchmarks import coverage
from benchmarks.worlds import PROBLEMS, Problem
from normgauge.certificates.rows import holdout
from normgauge.core.certificate import Row, RowKind, promised_row

LOSS = "clipped cross-entropy"


def tallied(
    monkeypatch: pytest.MonkeyPatch, kind: str, families: tuple[str, ...], count: int, epochs: int = 0
) -> dict[str, coverage.Tally]:
    monkeypatch.setitem(coverage.FAMILIES, kind, families)
    found: dict[str, coverage.Tally] = {}
    for index in range(count):
        for key, row, truth, slack in coverage.one(kind, index, 0.05, 7, epochs):
            found.setdefault(key, coverage.Tally()).add(row, truth, slack)
    return found


@pytest.mark.parametrize(
    ("kind", "families", "count", "bounds"),
    [
        ("deceiver", ("hold-out", "capacity", "disagreement"), 20, ("capacity.vc", "disagreement.surrogate")),
        ("separated", ("cells", "capacity"), 3, ("theorem20.kl", "capacity.golowich", "capacity.neyshabur2015")),
        ("normalized", ("cells",), 4, ("corollary22.batch", "corollary22.global")),
        ("chosen few", ("hold-out", "compression"), 25, ("compression.sample", "holdout.clopper_pearson")),
        ("picker", ("compression",), 25, ("compression.pick_to_learn", "capacity.bartlett2017, by counts")),
        ("clouds", ("cells",), 2, ("corollary21", "corollary22.local", "features.theorem20.variation")),
        ("deceiver", ("PAC-Bayes",), 2, ("gibbs.maurer",)),
        ("deceiver", ("cells, cross-entropy",), 8, (f"features.theorem20.kl, {LOSS}", f"theorem20.kl, {LOSS}")),
        ("overfitted", ("disagreement",), 16, ("disagreement.surrogate",)),
        ("scenes", ("hold-out",), 60, ("holdout.kl", "holdout.hoeffding")),
        ("best of many", ("hold-out",), 60, ("holdout.clopper_pearson",)),
    ],
    ids=[
        *("deceiver", "separated", "normalized", "chosen few", "picker", "clouds", "noise", "cross-entropy"),
        *("overfitted", "scenes", "best of many"),
    ],
)
def test_bounds_hold(
    monkeypatch: pytest.MonkeyPatch, kind: str, families: tuple[str, ...], count: int, bounds: tuple[str, ...]
) -> None:
    found = tallied(monkeypatch, kind, families, count)
    for key, one in found.items():
        assert one.violations <= coverage.allowed(one.problems, 0.05), key
    for key in bounds:
        assert found[key].bounds > 0, key


def test_no_bound_trusts_a_head_of_huge_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tallied(monkeypatch, "steep", ("cells, cross-entropy",), 2)
    assert f"features.theorem20.variation, {LOSS}" in found
    assert {key: one.violations for key, one in found.items() if one.violations} == {}


def test_no_bound_trusts_what_no_parameter_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tallied(monkeypatch, "hidden", ("PAC-Bayes", "disagreement"), 4, epochs=1)
    assert {"gibbs.maurer", "gibbs.data_dependent_prior", "disagreement.surrogate, own surrogate"} <= set(found)
    assert {key: one.violations for key, one in found.items() if one.violations} == {}


def test_bounds_of_certify_itself_hold() -> None:
    answered = coverage.certified("best of many", 1, 0.05, 7, 0)
    held = [row.value >= truth for _, row, truth, _ in answered if row.kind is RowKind.BOUND and row.value is not None]
    assert len(held) >= 3
    assert all(held)


def test_a_hold_out_without_its_price_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "clopper_pearson", lambda errors, n, log_delta: errors / n)
    one = tallied(monkeypatch, "chosen few", ("hold-out",), 25)["holdout.clopper_pearson"]
    assert one.violations > coverage.allowed(one.problems, 0.05)


def test_the_training_error_of_a_memorizer_is_caught() -> None:
    one = coverage.Tally()
    for seed in range(10):
        torch.manual_seed(seed)
        problem = PROBLEMS["memorizer"](seed, 0.05)
        seen = float((problem.case.logits.argmax(1) != problem.case.train.labels).double().mean())
        row = promised_row(Row("false", "false", "capacity", RowKind.VACUOUS, seen + 0.01, condition="none"))
        one.add(row, problem.world.error(problem.case.model), 0.0)
    assert one.violations == 10 > coverage.allowed(10, 0.05)


@pytest.mark.parametrize("n", [5, 50, 1000])
def test_what_is_allowed_is_the_quantile(n: int) -> None:
    assert coverage.allowed(n, 0.05) == int(binom.ppf(0.99, n, 0.05))


def test_rows_that_say_nothing_are_named() -> None:
    one = coverage.Tally()
    one.add(Row("a", "a", "capacity", RowKind.VACUOUS, 3.0), 0.1, 0.0)
    assert "says nothing in any problem: {'vacuous': 1}" in coverage.report({"a": one}, 0.05)
    assert one.merged(0.05)["smallest"] is None


def test_the_truth_is_exact() -> None:
    torch.manual_seed(3)
    problem: Problem = PROBLEMS["deceiver"](1, 0.05)
    fresh = problem.world.draw(200_000)
    said = problem.case.model(fresh.inputs).argmax(1)
    assert float((said != fresh.labels).double().mean()) == pytest.approx(
        problem.world.error(problem.case.model), abs=5e-3
    )


@pytest.mark.parametrize(("kind", "index"), [("overfitted", 0), ("overfitted", 1), ("steep", 0), ("steep", 3)])
def test_the_truth_about_a_plane_is_exact(kind: str, index: int) -> None:
    torch.manual_seed(index)
    problem: Problem = PROBLEMS[kind](index, 0.05)
    fresh = problem.world.draw(20_000)
    assert fresh.inputs is not None
    with torch.no_grad():
        said = problem.case.model(fresh.inputs)
    lost = torch.nn.functional.cross_entropy(said, fresh.labels, reduction="none").clamp(max=4.0)
    assert float((said.argmax(1) != fresh.labels).double().mean()) == pytest.approx(
        problem.world.error(problem.case.model), abs=0.015
    )
    assert float(lost.mean()) == pytest.approx(problem.world.loss(problem.case.model, 4.0), abs=0.06)

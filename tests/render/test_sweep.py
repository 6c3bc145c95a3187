"""The table, the plots and the page of a sweep, from outcomes made by hand."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest

from normgauge.render import sweep
from normgauge.render.sweep import SweepPoint, TrialOutcome, measures, ranked, sweep_points

NORM, LR = "network.options.norm", "training.lr"


def made(norm: Any, lr: float, seed: int, status: str = "done", **values: float) -> TrialOutcome:
    return TrialOutcome(f"{norm}{lr}{seed}", {NORM: norm, LR: lr}, seed, status, values, 1, 2.0)


@pytest.fixture
def outcomes() -> list[TrialOutcome]:
    return trials()


def trials() -> list[TrialOutcome]:
    return [
        made(
            norm,
            lr,
            seed,
            test_accuracy=0.5 + 0.1 * i + 0.05 * j + 0.01 * seed,
            **{"point.log10_upper": float(i + seed)},
        )
        for i, norm in enumerate(["batch", "<none>"])
        for j, lr in enumerate([0.001, 0.01, 0.1])
        for seed in range(2)
    ]


def test_points_are_trials_that_differ_in_their_seed(outcomes):
    found = sweep_points(outcomes)
    assert len(found) == 6 and all(len(point.outcomes) == 2 for point in found)
    assert found[0].mean("test_accuracy") == pytest.approx(0.505)
    assert found[0].std("test_accuracy") == pytest.approx(0.01 / 2**0.5)
    assert measures(outcomes) == ["test_accuracy", "point.log10_upper"]


@pytest.mark.parametrize(
    ("values", "mean", "std"),
    [((), None, None), ((1.0,), 1.0, None), ((1.0, 3.0), 2.0, 2**0.5), ((1.0, math.inf), math.inf, None)],
    ids=["none", "one", "two", "infinite"],
)
def test_means(values, mean, std):
    point = SweepPoint({}, tuple(made("a", 1, k, gap=value) for k, value in enumerate(values)))
    assert point.mean("gap") == (None if mean is None else pytest.approx(mean))
    assert point.std("gap") == (None if std is None else pytest.approx(std))


def test_a_mean_with_nan_is_nan_and_comes_last(outcomes):
    lost = [made("lost", 1.0, 0, test_accuracy=math.nan), made("none at all", 1.0, 0, "failed")]
    order = ranked(sweep_points([*lost, *outcomes]), "test_accuracy")
    assert [point.settings[NORM] for point in order][-2:] == ["lost", "none at all"]
    assert order[0].settings == {NORM: "<none>", LR: 0.1}
    assert ranked(sweep_points(outcomes), "point.log10_upper")[0].settings[NORM] == "batch"  # less is better


def test_the_table(outcomes):
    lame = made("batch", 0.001, 2, "failed")
    partly = made("batch", 0.001, 3, test_accuracy=0.9)
    grid = sweep.result_grid(sweep_points([*outcomes, lame, partly]), (NORM, LR), "test_accuracy", "n")
    assert grid.headers == ("norm", "lr", "seeds", "test accuracy", "log10 at most, point")
    assert grid.rows[0] == ("<none>", "0.1", "2/2", "70.5 ± 0.7%", "1.50 ± 0.71")
    row = next(row for row in grid.rows if row[:2] == ("batch", "0.001"))
    assert row[2] == "3/4" and row[4].endswith("(2)")
    assert grid.footer.endswith("sorted by test accuracy, the best first")
    other = sweep.result_grid(sweep_points([made("a", 1, 0, loss_gap=2.5)]), (NORM,), "loss_gap", "n")
    assert other.headers == ("norm", "seeds", "loss gap") and other.rows == (("a", "1/1", "2.5"),)


@pytest.mark.parametrize(
    ("value", "measure", "shown"),
    [
        (None, "gap", "·"),
        (math.inf, "point.log10_upper", "inf"),
        (math.nan, "test_loss", "nan"),
        (0.1234, "gap", "12.3%"),
        (12.345, "log10_P_w", "12.35"),
        (0.012345, "test_loss", "0.0123"),
        (2.0, "alarms", "2"),
    ],
)
def test_numbers(value, measure, shown):
    assert sweep.format_measure(value, measure) == shown


def test_names_that_are_alike_are_told_in_full():
    assert sweep.key_labels(["a.lr", "b.lr", "c.x"]) == ["a.lr", "b.lr", "x"]
    assert sweep.measure_title("ball:0.1.log10_lower") == "log10 found, ball:0.1"
    assert sweep.measure_title("log10_prod_inv_sigma_rms") == "log10 Π1/σ"


def test_failures_are_told_by_their_last_line():
    failed = TrialOutcome("x", {NORM: "a"}, 3, "failed", {}, 2, 1.0, "Traceback\nValueError: no")
    (told,) = sweep.trial_failures([failed, made("b", 1, 0)])
    assert told == "failed: x (norm a, seed 3), 2 attempts in all: ValueError: no"
    assert "no reason given" in sweep.trial_failures([TrialOutcome("x", {}, 0, "failed", {})])[0]


def test_what_could_not_be_gauged_is_told_with_its_reason(outcomes):
    lost = TrialOutcome("x", {NORM: "a"}, 3, "done", {}, notes=("not gauged: it holds NaN",))
    assert sweep.trials_not_gauged([lost, *outcomes]) == ["not gauged: x (norm a, seed 3): it holds NaN"]


def test_csv(outcomes):
    failed = TrialOutcome("x", {NORM: 'a,"b"', LR: 1.0}, 3, "failed", {}, 2, 1.0, "two\nlines")
    rows = list(csv.DictReader(io.StringIO(sweep.csv_text([*outcomes, failed], (NORM, LR)))))
    assert len(rows) == 13 and rows[0]["test_accuracy"] == "0.5" and rows[0][LR] == "0.001"
    lost = TrialOutcome("y", {NORM: "a", LR: 1.0}, 0, "done", {}, 1, None, notes=("not gauged: it holds NaN", "more"))
    (row,) = csv.DictReader(io.StringIO(sweep.csv_text([lost], (NORM, LR))))
    assert (row["seconds"], row["notes"]) == ("", "not gauged: it holds NaN; more")
    assert rows[-1][NORM] == 'a,"b"' and rows[-1]["error"] == "two\nlines" and rows[-1]["test_accuracy"] == ""


def test_the_median_stands_before_the_steepest_sample():
    values = {"point.log10_upper": 1.2, "point.log10_lower": 1.19, "point.log10_median": 0.9, "test_accuracy": 0.9}
    grid = sweep.result_grid(sweep_points([made("batch", 0.1, 0, **values)]), (NORM,), "test_accuracy", "n")
    assert grid.headers[-3:] == ("log10 median sample, point", "log10 at most, point", "log10 found, point")
    assert "at most, found: the steepest sample" in grid.footer
    del values["point.log10_lower"]
    grid = sweep.result_grid(sweep_points([made("batch", 0.1, 0, **values)]), (NORM,), "test_accuracy", "n")
    assert "; at most: the steepest sample" in grid.footer
    grid = sweep.result_grid(sweep_points([made("batch", 0.1, 0, gap=0.1)]), (NORM,), "gap", "n")
    assert "steepest" not in grid.footer

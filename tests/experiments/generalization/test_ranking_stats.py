"""Rank statistics against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.generalization.ranking_stats import (
    binned_kendall,
    granulated,
    kendall,
    pairs,
    sign_error,
    worst_change,
)

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [3, 10_000])
def test_kendall_is_that_of_scipy_with_and_without_ties(seed, levels):
    draw = np.random.default_rng(seed)
    x, y = draw.integers(levels, size=40), draw.integers(levels, size=40)
    y = np.where(draw.random(40) < 0.5, x, y)
    assert kendall(x, y).value == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)


def test_kendall_of_a_list_of_ties_is_none_and_of_itself_one():
    assert kendall([1.0] * 9, range(9)) is None
    assert binned_kendall([1.0] * 9, range(9), range(9)) is None
    assert kendall(range(9), range(9)).value == 1.0
    assert kendall(range(9), [-v for v in range(9)]).value == -1.0


def test_the_standard_error_is_that_of_fresh_draws():
    draw = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(60):
        x = draw.normal(size=60)
        estimate = kendall(x, x + draw.normal(size=60))
        found.append(estimate.value)
        errors.append(estimate.error)
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.25)


def test_kendall_in_bins_compares_only_within_them():
    by = [0, 0, 0, 1, 1, 1]
    x = [1, 2, 3, 101, 102, 103]
    y = [3, 2, 1, 103, 102, 101]
    assert kendall(x, y).value > 0
    assert binned_kendall(x, y, by, bins=2).value == -1.0


ROWS = [
    {"kind": "mlp", "depth": depth, "width": width, "seed": seed}
    for depth in (2, 4)
    for width in (8, 16)
    for seed in (0, 1)
]


def test_pairs_differ_in_one_hyperparameter_and_share_the_seed():
    found = pairs(ROWS, ("depth", "width"))
    assert len(found) == 8
    for pair in found:
        one, other = ROWS[pair.first], ROWS[pair.second]
        assert [k for k in one if one[k] != other[k]] == [pair.axis]


def test_granulated_kendall_weighs_hyperparameters_alike_and_sees_which_one_is_foretold():
    target = [row["depth"] + row["width"] for row in ROWS]
    depth_only = [row["depth"] for row in ROWS]
    among = pairs(ROWS, ("depth", "width"))
    assert granulated(target, target, among).value == 1.0
    assert granulated(depth_only, target, among).value == pytest.approx(0.5)  # ψ is 1 for depth, 0 for width
    assert sign_error(depth_only, target, among).value == pytest.approx(0.25)
    wrong = [-row["width"] for row in ROWS]
    assert worst_change(wrong, target, among) == (1.0, "mlp width 16 8")
    assert granulated(target, target, []) is None and sign_error([], [], []) is None
    assert worst_change([], [], []) is None

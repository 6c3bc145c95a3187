"""Runs as the page and the terminal read them: labels, thinned series, alarms, cells of a map."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core import store
from normgauge.core.store.steps import StepRecord, packed_step
from normgauge.render.runs_data import (
    both_ends,
    column_evidence,
    labelled_runs,
    layer_cells,
    loss_series,
    sampled_steps,
    step_span,
    thin_band,
    thin_series,
    told_band,
)
from normgauge.render.runs_incidents import run_incidents
from normgauge.render.runs_words import run_sentences
from tests.core.store.made import alarm, step


@given(st.integers(0, 9999), st.integers(1, 900), st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_thinned_curves_keep_ends_peaks_holes_and_order(seed, size, most):
    chance = random.Random(seed)
    values = [math.nan if chance.random() < 0.01 else chance.uniform(-9, 9) for _ in range(size)]
    pairs = list(enumerate(values))
    kept = thin_series(pairs, most)
    assert len(kept) <= max(5 * most, len(pairs) if len(pairs) <= 4 * most else 0)
    assert kept[0] == pairs[0] and kept[-1] == pairs[-1]
    assert [s for s, _ in kept] == sorted({s for s, _ in kept})
    fine = [v for v in values if math.isfinite(v)]
    if fine:
        assert {min(fine), max(fine)} <= {v for _, v in kept}
    assert any(math.isnan(v) for v in values) == any(math.isnan(v) for _, v in kept)


@given(st.integers(0, 9999), st.integers(1, 500))
@settings(max_examples=60, deadline=None)
def test_a_thinned_band_still_encloses(seed, size):
    chance = random.Random(seed)
    ends = [(chance.uniform(-9, 9), chance.uniform(0, 2)) for _ in range(size)]
    low = [(i, a) for i, (a, _) in enumerate(ends)]
    high = [(i, a + w) for i, (a, w) in enumerate(ends)]
    band = thin_band(both_ends(low, high), 10)
    assert len(band) <= max(20, 20 if len(ends) > 20 else len(ends))
    for i, (a, w) in enumerate(ends):
        before = max((b for b in band if b[0] <= i), key=lambda b: b[0])
        assert before[1] <= a and a + w <= before[2]


def test_a_band_leaves_out_what_is_not_finite_or_has_one_end():
    assert both_ends([(1, 0.0), (2, -math.inf), (3, 1.0)], [(1, 1.0), (2, 2.0)]) == [(1, 0.0, 1.0)]


def run_at(path: str) -> store.Run:
    return store.Run(Path(path), {"layers": []})


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["/x/runs/a/run.jsonl"], ["a"]),
        (["/x/a/run.jsonl", "/x/b/run.jsonl"], ["a", "b"]),
        (["/x/a/lr1/run.jsonl", "/x/b/lr1/run.jsonl"], ["a/lr1", "b/lr1"]),
        (["/x/a/run.jsonl", "/x/a/run-2.jsonl"], ["a", "a/run-2"]),
        (["/x/a/run.jsonl", "/x/a/run.jsonl"], ["x/a", "x/a"]),
    ],
    ids=["one", "two", "deep", "numbered", "same"],
)
def test_labels_are_short_and_different(paths, labels):
    assert [item.label for item in labelled_runs([run_at(path) for path in paths])] == labels


def test_cells_of_a_step(tmp_path):
    record = step(1)
    assert len(layer_cells(record, "norm_upper", 9)) == 9 and layer_cells(record, "norm_upper", 9)[7:] == [None, None]
    ratio = layer_cells(record, "update_ratio", 7)
    assert ratio[0] == pytest.approx(record["columns"]["update"][0] / record["columns"]["frobenius"][0])
    record["columns"]["frobenius"][0] = 0.0
    assert layer_cells(record, "update_ratio", 7)[0] is None
    assert layer_cells(record, "none", 2) == [None, None]


def test_a_band_that_is_told_keeps_the_ends_at_the_steps_of_its_curve_and_still_encloses():
    both = [(step, math.sin(step), math.sin(step) + 1.0) for step in range(1, 2001)]
    pairs = thin_series([(step, low) for step, low, _ in both])
    band = told_band(both, pairs)
    assert {step: ends for step, *ends in band}.items() >= {s: [low, low + 1.0] for s, low in pairs}.items()
    assert min(b[1] for b in band) == min(b[1] for b in both) and max(b[2] for b in band) == max(b[2] for b in both)
    assert len(band) < 700 and told_band(both[:50], pairs) == both[:50]


def test_the_lines_of_a_map_go_on_inside_a_run_and_not_outside():
    lines = [StepRecord({"step": s, "totals": {}}, b"{}") for s in (20, 21, 60)]
    assert [r and r["step"] for r in sampled_steps(lines, 0, 100, 10)] == [
        None,
        None,
        21,
        21,
        21,
        21,
        60,
        None,
        None,
        None,
    ]
    assert sampled_steps([], 0, 1, 3) == [None] * 3


def test_evidence_is_the_headers_or_a_fallback():
    run = store.Run(Path("a"), {"layers": [], "columns": {"x": {"evidence": "proved"}}, "totals": [1]})
    assert (column_evidence(run, "x"), column_evidence(run, "log10_folded"), column_evidence(run, "y")) == (
        "proved",
        "estimated",
        "observed",
    )


def test_alarms_of_one_kind_at_one_layer_are_put_together():
    run = store.Run(Path("a"), {"layers": []}, alarms=(alarm(9, "x"), alarm(5, "y"), alarm(11, "x"), {"step": "z"}))
    got = [(w.layer, w.first, w.last, w.times) for w in run_incidents(run)]
    assert got == [("", 0, 0, 1), ("y", 5, 5, 1), ("x", 9, 11, 2)]


def test_the_mean_loss_is_preferred():
    run = store.Run(
        Path("a"),
        {"layers": []},
        (packed_step({"step": 1, "loss": 1.0, "loss_mean": 2.0, "totals": {}, "columns": {}}),),
    )
    assert loss_series(run) == [(1, 2.0)]
    assert step_span(labelled_runs([run])) == (1, 2)


@pytest.mark.parametrize("told", [{"step": {}}, {"step": "5"}, {}], ids=["an object", "a text", "nothing"])
def test_an_end_without_its_step_is_that_of_the_last_line(told):
    run = store.Run(Path("a"), {"layers": []}, (packed_step({"step": 1234, "totals": {}, "columns": {}}),), end=told)
    assert run_sentences(labelled_runs([run])[0])[-1] == "The run ended at step 1,234."


def test_a_later_run_of_a_folder_keeps_the_name_of_the_folder():
    runs = [
        store.Run(Path(f"/x/runs/{name}.jsonl"), {"layers": []}) for name in ("a/run", "b/run", "b/run-2", "b/long")
    ]
    assert [item.label for item in labelled_runs(runs)] == ["a", "b", "b/run-2", "long"]

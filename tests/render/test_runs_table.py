"""The table of a run's layers."""

from __future__ import annotations

import math
from dataclasses import replace

from normgauge.core import store
from normgauge.render.runs_data import (
    labelled_runs,
)
from normgauge.render.runs_table import row_cells, run_layer_rows, signed_change, spark, worst_layers
from tests.core.store.made import alarm, header, step, written


def test_rows_have_last_values_a_trend_and_alarms(tmp_path):
    item = labelled_runs([store.read(written(tmp_path, steps=300, alarms=(7,)))])[0]
    found = run_layer_rows(item)
    assert [row.name for row in found][:2] == ["blocks.0.linear", "blocks.0.norm"]
    last = item.run.steps[-1]["columns"]
    assert found[0].values[0] == last["norm_lower"][0] == found[0].trend[-1][1]
    assert found[0].norm_upper == last["norm_upper"][0]
    assert found[1].values[0] is None and found[1].trend[-1][1] == item.run.steps[-1]["columns"]["sigma_rms"][1]
    assert found[3].alarms == "sigma_collapse at step 7" and 0.2 < found[0].change < 0.4
    assert worst_layers(found, 2)[0].name == "blocks.1.norm" and worst_layers(found, 2)[1].change > 0.2
    assert all(len(row.trend) < 40 for row in found)


def test_a_change_is_that_of_the_lower_end(tmp_path):
    writer = store.create(tmp_path, header(0))
    for number, upper in ((1, 2.1), (2, 900.0)):
        writer.append({**step(number), "columns": {"norm_lower": [2.0], "norm_upper": [upper]}})
    (row,) = run_layer_rows(labelled_runs([store.read(tmp_path)])[0])
    assert row.change == 0.0 and row_cells(row)[0] == "2 to 900"


def test_sparks():
    assert spark([(1, 2.0)]) == "" and "not finite" in spark([(1, math.nan), (2, 1.0)])
    assert spark([(1, 1.0), (2, math.inf), (3, 2.0), (4, math.nan)]).count('class="alarm"') == 2
    assert 'points="0,17.0 88,1.0"' in spark([(1, 1.0), (2, 10.0)])
    assert spark([(1, -1.0), (2, 1.0)]) and signed_change(-0.2) == "-0.20"


def test_a_layer_in_which_something_followed_comes_before_those_that_changed(tmp_path):
    writer = store.create(tmp_path, header())
    for number in (1, 2):
        writer.append(step(number))
    writer.append({**alarm(2, ""), "alarm": "learning_rate"})
    own = {"kind": "consequence", "step": 2, "alarm": "attention_growth", "layer": "head", "sentence": "…"}
    writer.append({**own, "cause": "learning_rate", "cause_step": 2})
    writer.close()
    first = worst_layers(run_layer_rows(labelled_runs([store.read(tmp_path)])[0]), 1)[0]
    assert (first.name, first.alarms) == ("head", "attention_growth followed at step 2")


def test_old_proofs_are_told_in_words_and_what_bounds_nothing_is_left_out(tmp_path):
    writer = store.create(tmp_path, header(0))
    for number, lower, upper in ((1, 2.0, 2.26), (18, None, None)):
        writer.append({**step(number), "columns": {"norm_lower": [lower], "norm_upper": [upper]}})
    (row,) = run_layer_rows(labelled_runs([store.read(tmp_path)])[0])
    assert row_cells(row)[0] == "≤ 2.26, 17 steps ago"
    assert row_cells(replace(row, values=(0.0, *row.values[1:])))[0] == "≤ 2.26, 17 steps ago"
    assert row_cells(replace(row, values=(2.0, *row.values[1:])))[0] == "≥ 2 (was ≤ 2.26, 17 steps ago)"


def test_a_layer_that_is_not_read_any_more_says_since_when_and_comes_last(tmp_path):
    writer = store.create(tmp_path, header())
    for number in (1, 2, 3):
        line = step(number)
        if number == 3:
            line["columns"] = {name: [None, *cells[1:]] for name, cells in line["columns"].items()}
        else:
            line["columns"]["norm_lower"][0] *= 9.0**number  # it changed most
        writer.append(line)
    found = run_layer_rows(labelled_runs([store.read(tmp_path)])[0])
    assert [row.read for row in found] == [2, *[None] * 6]
    assert worst_layers(found, 7)[-1].shown == "blocks.0.linear (last read at step 2)"

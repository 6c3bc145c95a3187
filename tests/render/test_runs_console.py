"""Runs in a terminal and as JSON."""

from __future__ import annotations

import math

from normgauge.core import store
from normgauge.render.runs_console import headline, run_blocks, run_snapshot, small_line
from normgauge.render.runs_data import (
    labelled_runs,
)
from tests.core.store.made import alarm, header, step, written


def test_small_lines():
    assert small_line([]) == "" and small_line([(1, 3.0)]) == "▁"
    assert small_line([(1, 0.0), (2, math.nan), (3, 1.0)]) == "▁!█"
    assert small_line([(i, 0.3 + i * 1e-17) for i in range(50)], 5) == "▁▁▁▁▁"


def test_the_terminal_shows_several_runs(tmp_path):
    paths = [written(tmp_path / name, steps=9, alarms=(4,) if name == "a" else ()) for name in "ab"]
    items = labelled_runs([store.read(path) for path in paths])
    told = run_blocks(items)
    assert told[0].startswith("[LOOK] a: Sigma collapse in blocks.1.norm, since step 4: ")
    assert told[1].startswith("[ok] b: No alarm")
    titles = [block.title for block in told[2:]]
    assert titles == ["Totals", "Layers: those with alarms first, then those that changed most", "Incidents"]
    assert all(block.rows and {len(row) for row in block.rows} == {len(block.headers)} for block in told[2:])
    assert headline(items) == "2 runs, up to step 9 after 0 s, 1 incident"
    assert run_snapshot(items[0])["layers"][0]["name"] == "blocks.0.linear" and not run_snapshot(items[0])["healthy"]


def test_the_terminal_and_the_json_have_the_latest_notes(tmp_path):
    top = header(0)
    top["layers"][0]["name"] = "0"
    writer = store.create(tmp_path, top)
    writer.append(step(1))
    writer.append(alarm(1, "0"))
    for i in range(7):
        writer.append({"kind": "note", "step": i, "sentence": f"sentence {i}"})
    writer.append({"kind": "note", "step": 6, "sentence": "sentence 6."})  # the same
    writer.close()
    with writer.path.open("ab") as file:
        file.write(b"{")
    item = labelled_runs([store.read(writer.path)])[0]
    told = run_blocks([item])
    assert told[1] == "Notes, the last 5 of 8:" and told[2:6] == [f"  step {i}: sentence {i}." for i in (3, 4, 5, 6)]
    assert told[6].startswith("  the last line is torn") and told[-1].rows[0][0] == "layer 0"
    assert [note["sentence"] for note in run_snapshot(item)["notes"]][-1] == "sentence 6." and run_snapshot(item)[
        "problems"
    ]
    assert [block for block in run_blocks([item, item]) if block == "Notes of " + item.label + ", the last 2 of 8:"]


def test_the_terminal_shows_both_ends(tmp_path):
    writer = store.create(tmp_path, header(0))
    for number in (1, 2):
        totals = {"log10_P_w_lower": 1.0 * number, "log10_P_w": 4.0}
        writer.append({**step(number), "totals": totals, "columns": {"norm_lower": [2.43], "norm_upper": [17.7]}})
    _, totals, layers = run_blocks(labelled_runs([store.read(tmp_path)]))
    assert ("log10 P_w, depends on the gauge", "1.00 to 4.00", "2.00 to 4.00", "▁█", "proved") in totals.rows
    assert layers.rows[0][1] == "2.43 to 17.7" and layers.headers[1] == "norm"


def test_a_last_value_that_is_older_than_the_last_line_says_its_step(tmp_path):
    writer = store.create(tmp_path, header(0))
    for number in (1, 3, 150):
        totals = {"log10_P_w_lower": -math.inf if number > 3 else 16.0, "log10_folded": 6.55 if number < 4 else None}
        totals = {name: "-inf" if value == -math.inf else value for name, value in totals.items()}
        writer.append({**step(number), "totals": totals, "columns": {"norm_lower": [2.43 if number < 4 else 0.0]}})
    _, totals, layers = run_blocks(labelled_runs([store.read(tmp_path)]))
    told = {row[0]: row[2] for row in totals.rows}
    assert told["log10 folded product"] == "6.55 (step 3)" and "≥ -inf" not in told.values()
    assert "≥ 0" not in layers.rows[0] and "effective lr" not in layers.headers  # no layer has one


def test_of_several_runs_the_newest_comes_first_in_a_terminal(tmp_path):
    paths = [written(tmp_path, steps=3, alarms=(2,)), written(tmp_path, steps=3, created="2026-02-01T12:00:00+00:00")]
    assert [path.name for path in paths] == ["run.jsonl", "run-2.jsonl"]
    told = run_blocks(labelled_runs([store.read(path) for path in paths]))
    assert told[0].startswith("[ok]") and told[1].startswith("[LOOK]")


def test_a_layer_whose_change_rounds_to_nothing_has_a_level_line(tmp_path):
    writer = store.create(tmp_path, header(0))
    for number in range(1, 30):
        writer.append({**step(number), "columns": {"norm_lower": [2.0 + 1e-3 * (-1) ** number], "norm_upper": [2.1]}})
    layers = run_blocks(labelled_runs([store.read(tmp_path)]))[-1]
    row = dict(zip(layers.headers, layers.rows[0], strict=True))
    assert row["decades"] == "0.00" and set(row["trend"]) == {"▁"}

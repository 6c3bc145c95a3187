"""The parts of the page of runs: thinning, labels, maps, pictures, small lines."""

from __future__ import annotations

import base64
import math
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core import store
from normgauge.render import runs_heat
from normgauge.render.numbers import enclosure, log_enclosure
from normgauge.render.runs_console import headline, run_blocks, run_snapshot, small_line
from normgauge.render.runs_data import (
    both_ends,
    column_evidence,
    labelled_runs,
    layer_cells,
    loss_series,
    run_alarms,
    sampled_steps,
    step_span,
    thin_band,
    thin_series,
)
from normgauge.render.runs_heat import heat_maps
from normgauge.render.runs_table import row_cells, run_layer_rows, signed_change, spark, worst_layers
from tests.core.store.made import alarm, header, step, written


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
        (["/x/a/run.jsonl", "/x/a/run-2.jsonl"], ["a", "run-2"]),
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


def test_the_lines_of_a_map_go_on_inside_a_run_and_not_outside():
    lines = [{"step": s} for s in (20, 21, 60)]
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
    got = [(w.layer, w.first, w.last, w.times) for w in run_alarms(run)]
    assert got == [("", 0, 0, 1), ("y", 5, 5, 1), ("x", 9, 11, 2)]


def test_the_mean_loss_is_preferred():
    run = store.Run(Path("a"), {"layers": []}, ({"step": 1, "loss": 1.0, "loss_mean": 2.0, "totals": {}},))
    assert loss_series(run) == [(1, 2.0)]
    assert step_span(labelled_runs([run])) == (1, 2)


def decoded(address: str) -> tuple[int, int, bytes]:
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        (check,) = struct.unpack(">I", data[place + 8 + size : place + 12 + size])
        assert check == zlib.crc32(kind + content)
        chunks[kind] = content
        place += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    assert len(chunks[b"PLTE"]) == 768
    return width, height, zlib.decompress(chunks[b"IDAT"])


def test_a_picture_is_a_png_of_its_cells():
    assert decoded(runs_heat.heat_picture([b"\x01\x02\x03", b"\x00\xff\x05"])) == (
        3,
        2,
        b"\x00\x01\x02\x03\x00\x00\xff\x05",
    )
    shades = [sum(runs_heat.palette()[3 * i : 3 * i + 3]) for i in range(1, 255)]
    assert shades == sorted(shades)  # darker is smaller, also without colours


def test_a_map_tells_small_large_absent_and_not_finite_apart(tmp_path):
    writer = store.create(tmp_path, header())
    for number in range(1, 101):
        record = step(number)
        record["columns"] = {"norm_lower": [1.0, None, 10.0 if number < 50 else math.inf, 0.0, 0.5, None, 100.0]}
        writer.append(record)
    writer.close()
    item = labelled_runs([store.read(tmp_path)])[0]
    ((title, drawn),) = heat_maps([item], step_span([item]))
    assert title == "norm, lower end (proved)"
    packed = base64.b64decode(drawn.split('data-cells="')[1].split('"')[0])
    width = len(packed) // 5
    lines = [set(packed[i * width : (i + 1) * width]) for i in range(5)]
    assert lines[2] == {1} and lines[4] == {254} and lines[3] == {1}  # zero, largest, smallest
    assert 255 in lines[1] and len(lines[1]) == 2
    assert drawn.count("<image") == 2


def test_one_value_has_a_scale_and_no_value_no_map(tmp_path):
    writer = store.create(tmp_path, header())
    writer.append({**step(1), "columns": {"norm_lower": [3.0]}})
    writer.close()
    item = labelled_runs([store.read(tmp_path)])[0]
    assert [title for title, _ in heat_maps([item], (1, 2))] == ["norm, lower end (proved)"]


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


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
@settings(max_examples=60, deadline=None)
def test_ends_in_few_digits_still_enclose(low, width):
    for spell in (enclosure, log_enclosure):
        first, *rest = spell(low, low + width).split(" to ")
        assert float(first) <= low and low + width <= float((rest or [first])[0])


def test_ends_that_are_absent_or_not_finite():
    assert enclosure(None, None) == "·" and enclosure(1.0, math.inf) == "1 to inf" and enclosure(1.5, None) == "≥ 1.5"
    assert log_enclosure(-math.inf, None) == "≥ -inf" and log_enclosure(math.nan, 2.0) == "nan to 2.00"


def test_small_lines():
    assert small_line([]) == "" and small_line([(1, 3.0)]) == "▁"
    assert small_line([(1, 0.0), (2, math.nan), (3, 1.0)]) == "▁!█"
    assert small_line([(i, 0.3 + i * 1e-17) for i in range(50)], 5) == "▁▁▁▁▁"
    assert spark([(1, 2.0)]) == "" == spark([(1, math.nan), (2, 1.0)])
    assert 'points="0,17.0 88,1.0"' in spark([(1, 1.0), (2, 10.0)])
    assert spark([(1, -1.0), (2, 1.0)]) and signed_change(-0.2) == "-0.20"


def test_the_terminal_shows_several_runs(tmp_path):
    paths = [written(tmp_path / name, steps=9, alarms=(4,) if name == "a" else ()) for name in "ab"]
    items = labelled_runs([store.read(path) for path in paths])
    told = run_blocks(items)
    assert told[0].startswith("[LOOK] a: 1 alarm,") and told[1].startswith("[ok] b: No alarm")
    titles = [block.title for block in told[2:]]
    assert titles == ["Totals", "Layers: those with alarms first, then those that changed most", "Alarms"]
    assert all(len(row) == len(block.headers) for block in told[2:] for row in block.rows)
    assert headline(items) == "2 runs, up to step 9 after 0 s, 1 alarm"
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

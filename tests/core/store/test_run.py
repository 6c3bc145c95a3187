"""Reading: torn lines, other schemas, steps taken twice, and a file that grows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core import store
from tests.core.store.made import alarm, header, step, written


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a run with every kind of line, and the ends of its lines."""
    writer = store.create(tmp_path_factory.mktemp("whole"), header())
    for number in range(1, 6):
        writer.append(step(number))
    for record in (alarm(5), {"kind": "note", "step": 5, "sentence": "§ ünïcode σ"}, {"kind": "reading", "step": 5}):
        writer.append(record)
    writer.append({"kind": "end", "step": 5, "share": 0.02})
    writer.close()
    return writer.path.read_bytes()


def test_every_kind_has_its_place(tmp_path, whole):
    (tmp_path / "run.jsonl").write_bytes(whole)
    run = store.read(tmp_path)
    assert [len(part) for part in (run.steps, run.alarms, run.notes, run.readings, run.resumes)] == [5, 1, 1, 1, 0]
    assert run.end["step"] == 5 and run.problems == ()
    assert run.layers[1] == "blocks.0.norm"


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_cut_at_any_byte_all_whole_lines_are_read(data, whole, tmp_path_factory):
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    if not lines:
        with pytest.raises(store.StoreError, match="no complete header"):
            store.read(path)
        return
    run = store.read(path)
    assert len(run.steps) == min(lines - 1, 5)
    torn = cut - whole[:cut].rfind(b"\n") - 1
    assert run.problems == ((f"the last line is torn ({torn} bytes) and was left out",) if torn else ())
    writer = store.resume(path, header())  # and it can be gone on with from there
    assert writer.resumed_from == (len(run.steps) or None) or torn
    writer.append(step(6))
    writer.close()
    again = store.read(path)
    assert [s["step"] for s in again.steps][-1] == 6 and len(again.resumes) == 1
    assert len(again.problems) == (1 if torn and again.resumes[0]["torn_bytes"] else 0)


def test_series_and_totals_skip_what_was_not_measured(tmp_path):
    writer = store.create(tmp_path, header())
    for number, value in ((1, 2.0), (2, None), (3, float("inf"))):
        record = step(number)
        record["columns"]["norm_upper"][0] = value
        record["totals"]["log10_folded"] = value
        writer.append(record)
    writer.close()
    run = store.read(tmp_path)
    assert run.series("norm_upper", "blocks.0.linear") == [(1, 2.0), (3, float("inf"))]
    assert run.series("norm_upper", 0) == run.series("norm_upper", "blocks.0.linear")
    assert run.series("sigma_rms", "blocks.0.linear") == [] == run.series("no such column", 3)
    assert run.total("log10_folded") == [(1, 2.0), (3, float("inf"))]
    assert [s for s, _ in run.total("loss")] == [1, 2, 3] and run.total("nothing") == []
    with pytest.raises(store.StoreError, match=r"no layer 'blocks.9'; its layers are blocks.0.linear"):
        run.series("norm_upper", "blocks.9")


def test_steps_taken_again_after_a_resume_replace_the_old_ones(tmp_path):
    path = written(tmp_path / "a", steps=20, alarms=(8, 15), end=False)
    writer = store.resume(path, header(), step=10)
    writer.append(alarm(12, "head"))
    for number in range(12, 31, 2):
        writer.append(step(number, seed=9))
    writer.close()
    run = store.read(path)
    assert [s["step"] for s in run.steps] == [*range(1, 11), *range(12, 31, 2)]
    assert run.steps[-1]["loss"] == pytest.approx(step(30, seed=9)["loss"], rel=1e-5)
    assert [(a["step"], a["layer"]) for a in run.alarms] == [(8, "blocks.1.norm"), (12, "head")]
    assert run.problems == ("steps 11 to 20 were taken again from line 26 on; what was written before was left out",)


def test_without_a_known_checkpoint_the_first_line_decides(tmp_path):
    path = written(tmp_path / "a", steps=20)
    writer = store.resume(path, header())
    writer.append(step(20))
    writer.append({"kind": "end", "step": 20})
    writer.close()
    run = store.read(path)
    assert len(run.steps) == 20 and run.end["step"] == 20
    assert run.problems == ("step 20 was taken again from line 24 on; what was written before was left out",)


def test_layers_that_come_later_have_longer_columns(tmp_path):
    writer = store.create(tmp_path, header())
    writer.append(step(1))
    extra = [{"name": "adapter", "type": "Linear", "role": "matrix", "shape": [4, 4]}]
    writer.append({"kind": "layers", "step": 2, "layers": extra})
    longer = step(2)
    longer["columns"] = {name: [*cells, 5.0] for name, cells in longer["columns"].items()}
    writer.append(longer)
    writer.close()
    run = store.read(tmp_path)
    assert run.layers[-1] == "adapter" and run.problems == ()
    assert run.series("norm_upper", "adapter") == [(2, 5.0)] and len(run.series("norm_upper", "head")) == 2
    full = header()
    full["layers"] = [*full["layers"], *extra]
    again = store.resume(tmp_path, full)
    again.append({"kind": "layers", "step": 3, "layers": extra})  # said again after a resume, it comes once
    again.close()
    assert store.read(tmp_path).layers == run.layers
    with pytest.raises(store.StoreError, match="8 layers there, 7 here"):
        store.resume(tmp_path, header())


def test_another_schema_is_read_as_far_as_it_is_known(tmp_path):
    path = tmp_path / "run.jsonl"
    records = [
        {"kind": "header", "format": "normgauge-run", "schema": 7, "layers": ["a", {"name": "b"}]},
        {"kind": "step", "step": 1, "columns": {"norm_upper": [1, "inf"], "odd": 3}},
        {"kind": "step", "step": 2, "totals": {"x": 1}},
        {"kind": "step", "step": "three"},
        {"kind": "frame", "z": 1},
        {"kind": "frame", "z": 2},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    run = store.read(path)
    assert run.layers == ["a", "b"] and run.series("norm_upper", "b") == [(1, float("inf"))]
    told = "; ".join(run.problems)
    for words in (
        "schema 7 and this normgauge knows 1", "lacks run, created, versions, model, columns, totals",
        "line 2, step 1, lacks its totals", "columns that are no lists", "line 3, step 2, lacks its columns",
        "line 4 is a step without its number", "2 lines of the unknown kind 'frame'",
    ):  # fmt: skip
        assert words in told


@pytest.mark.parametrize("content", ["hello\n", "{}\n", '{"kind":"step","step":1}\n', '{"kind":"header"}\n'])
def test_what_is_no_run_is_said(tmp_path, content):
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(store.StoreError, match="is no run file: expected a header of normgauge-run"):
        store.read(tmp_path / "x.jsonl")


def test_a_run_that_is_not_there_is_said(tmp_path):
    with pytest.raises(store.StoreError, match="no run at"):
        store.read(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(store.StoreError, match="cannot read"):
        store.follow(tmp_path / "a").poll()
    (tmp_path / "odd").write_bytes(written(tmp_path / "b").read_bytes())
    assert len(store.read(tmp_path / "odd").steps) == 60


def test_following_gives_each_record_once(tmp_path, whole):
    path = tmp_path / "run.jsonl"
    follower = store.follow(path)
    assert follower.poll() == [] and not follower.there
    got, place = [], 0
    for size in (10, 3000, 1, 700, 10_000, 10**6):
        with path.open("ab") as file:
            file.write(whole[place : place + size])
        place += size
        got += follower.poll()
        assert len(got) == whole[:place].count(b"\n")
    assert [r["kind"] for r in got[:2]] == ["header", "step"] and follower.poll() == [] and follower.waiting == 0


@pytest.mark.parametrize("grown", [False, True])
def test_a_file_begun_anew_is_read_anew(tmp_path, whole, grown):
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole)
    follower, collector = store.follow(path), store.Collector(path)
    for line in follower.lines():
        collector.add(line)
    other = written(tmp_path / "b", steps=20 if grown else 1, seed=5).read_bytes()
    path.write_bytes(other)
    for line in follower.lines():
        collector.add(line)
    assert len(collector.run().steps) == (20 if grown else 1) and collector.run().alarms == ()
    path.unlink()
    assert follower.poll() == []
    path.write_bytes(whole)
    assert len(follower.poll()) == whole.count(b"\n")


def test_following_reads_only_what_is_new(tmp_path, whole, monkeypatch):
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole)
    follower = store.follow(path)
    follower.poll()
    with path.open("ab") as file:
        file.write(b'{"kind":"note"}\n')
    parsed = []
    monkeypatch.setattr(
        "normgauge.core.store.follower.parse_record", lambda text: parsed.append(text) or {"kind": "note"}
    )
    follower.poll()
    assert parsed == [b'{"kind":"note"}']


def test_runs_are_found_newest_last(tmp_path):
    late = written(tmp_path / "a", created="2026-03-01T00:00:00+00:00")
    early = written(tmp_path / "b" / "c", created="2026-01-01T00:00:00+00:00")
    second = written(tmp_path / "b" / "c", created="2026-01-01T00:00:00+00:00")
    tenth = written(tmp_path / "b" / "c" / "run-10.jsonl", created="2026-01-01T00:00:00+00:00")
    written(tmp_path / ".hidden")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    assert store.find(tmp_path) == [early, second, tenth, late]
    assert store.find(late) == [late] and store.find(tmp_path / "none") == []

"""Where run files lie: names for new ones, the newest, and all below a folder."""

from __future__ import annotations

import json
from itertools import islice

from normgauge.core.store.lines import FORMAT
from normgauge.core.store.places import candidate_paths, find, newest


def begun(path, created):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, "created": created}) + "\n")
    return path


def test_a_new_run_takes_the_name_given_or_the_next_number(tmp_path):
    named = list(islice(candidate_paths(tmp_path / "a.jsonl"), 3))
    assert [path.name for path in named] == ["a.jsonl", "a-2.jsonl", "a-3.jsonl"]
    assert next(candidate_paths(tmp_path / "folder")) == tmp_path / "folder" / "run.jsonl"


def test_the_newest_has_the_highest_number_and_other_names_do_not_count(tmp_path):
    assert newest(tmp_path) is None and newest(tmp_path / "a.jsonl") is None
    for name in ("run", "run-2", "run-10", "runner-99", "run-x"):
        begun(tmp_path / f"{name}.jsonl", "2026")
    assert newest(tmp_path) == tmp_path / "run-10.jsonl"
    assert newest(tmp_path / "run-2.jsonl") == tmp_path / "run-2.jsonl"


def test_all_runs_below_a_folder_oldest_first(tmp_path):
    late, early = begun(tmp_path / "b" / "run.jsonl", "2026-02"), begun(tmp_path / "c" / "run.jsonl", "2026-01")
    begun(tmp_path / ".hidden" / "run.jsonl", "2025")
    begun(tmp_path / "1" / "2" / "3" / "4" / "5" / "run.jsonl", "2025")  # deeper than a person would put it
    (tmp_path / "other.jsonl").write_text('{"text": "no run"}\n')
    assert find(tmp_path) == [early, late]
    assert find(late) == [late] and find(tmp_path / "none") == []

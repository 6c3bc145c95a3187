"""The checker as a file of its own: standard library only, several readings in a file."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from normgauge.core import checker, consistency
from tests.core.conftest import resealed


def test_it_imports_the_standard_library_only():
    tree = ast.parse(Path(checker.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(module).partition(".")[0] for module in modules} <= set(sys.stdlib_module_names)


def test_it_runs_alone(net, tmp_path):
    """A copy of the file, isolated from everything installed."""
    alone = tmp_path / "checker.py"
    alone.write_bytes(Path(checker.__file__).read_bytes())
    good, bad, cut = (tmp_path / name for name in ("good.json", "bad.json", "cut.json"))
    good.write_text(json.dumps(net[0]))
    bad.write_text(json.dumps({**net[0], "log10_upper": 0.0}))
    cut.write_text(json.dumps(net[0])[:-20])
    files = ["good.json", "bad.json", "cut.json", "nowhere.json"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(alone), *files], capture_output=True, text=True, cwd=tmp_path
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and done.stderr == ""
    assert lines[0] == "good.json: verified, without the weights"
    assert any(line.startswith("bad.json: log10_upper: stored 0, recomputed") for line in lines)
    assert any(line.startswith("cut.json: expected a JSON file") for line in lines)
    assert any(line.startswith("nowhere.json: expected a JSON file") for line in lines)


def test_main_in_this_process(net, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.json").write_text(json.dumps(net[2]))
    monkeypatch.setattr(sys, "argv", ["checker.py", str(tmp_path / "a.json")])
    assert checker.main() == 0
    monkeypatch.setattr(sys, "argv", ["checker.py", str(tmp_path)])
    assert checker.main() == 1
    assert "expected a JSON file" in capsys.readouterr().out


def test_the_fields_of_a_file_must_repeat_its_first_reading(net):
    several = {**net[0], "readings": net}
    assert [label for label, _ in checker.readings_of(several)] == ["point: ", "ball:0.1: ", "global: "]
    assert checker.check_file(several) == checker.check_file(several, consistency.check_consistency) == []
    for key in set(several) - {"schema", "readings"}:
        gone = {name: value for name, value in several.items() if name != key}
        assert checker.check_file(gone) == [f"{key}: missing at the top of the file"]
        changed = checker.check_file({**several, key: "something else"})
        assert len(changed) == 1 and changed[0].startswith(f"{key}: not the same at the top of the file")


def test_a_top_level_without_its_scope_is_still_held_against_the_first_reading(net):
    edited = {**net[0], "log10_upper": -9.0, "readings": net}
    del edited["scope"]
    assert checker.check_file(edited) == ["scope: missing at the top of the file"]
    only = {"schema": 2, "log10_upper": -9.0, "labels": ["a"], "readings": net}
    assert checker.check_file(only) == ["normgauge: missing at the top of the file"]
    later = {**net[0], "readings": [resealed({**net[0], "later": 1}), *net[1:]]}
    later["digest"] = later["readings"][0]["digest"]
    assert checker.check_file(later) == ["later: missing at the top of the file"]
    assert checker.check_file({**later, "later": 2})[0].endswith("file (2) and in the first of its readings (1)")
    first = {key: value for key, value in net[0].items() if key != "witness"}
    assert checker.file_problem({**net[0], "readings": [first]}) == "witness: missing in the first of its readings"


def test_a_collection_repeats_nothing_and_has_a_schema(net):
    collection = {"labels": ["a"] * 3, "accuracy": {}, "output_change": {}, "readings": net}
    assert checker.check_file({"schema": 2, **collection}) == []
    assert checker.check_file(collection) == ["schema: expected 2 at the top of the file, got null"]
    assert checker.check_file({"schema": 1, **collection}) == ["schema: expected 2 at the top of the file, got 1"]
    assert checker.file_problem({"schema": 2, "readings": None}).startswith("readings: expected a list")
    assert checker.check_file({"schema": 2, "readings": [3]})[0].startswith("expected a reading of schema 2")

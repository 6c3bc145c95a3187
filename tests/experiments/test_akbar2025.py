"""Akbar 2025: a slice of every experiment against the direction of its verdict."""

from __future__ import annotations

import json
import math
import os
import pickle
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.akbar2025 import (
    collect,
    figures,
    plan,
    reproduce,
    results,
    run,
    table,
)
from experiments.akbar2025.results import Result

EXPECTED = json.loads(Path(plan.__file__).with_name("expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def slice_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every experiment at tiny scale, two seeds; once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "akbar-tiny"
    try:
        folder.mkdir()
    except FileExistsError:  # another worker is at it: its folder is moved here when it is done
        while not (folder / "done").exists():
            assert not (folder / "failed").exists()
            time.sleep(0.2)
        return folder / "done"
    part = folder / "part"
    if run.launch(plan.load("tiny"), part, run.TINY_SEEDS, 1):
        (folder / "failed").touch()
        pytest.fail("a unit failed")
    return part.rename(folder / "done")


@pytest.fixture(scope="module")
def found(slice_folder: Path) -> dict[str, Result]:
    return results.load(slice_folder)


def test_the_plan() -> None:
    units = plan.load()
    assert len({u.file for u in units}) == len(units) > 80
    assert {u.experiment for u in units} == {u.experiment for u in plan.load("tiny")}
    assert [u.name for u in plan.select(units, ["plane/base", "shift"])] == [
        "plane/base",
        "shift/base",
        "shift/task-committee",
    ]
    assert plan.heavy_first(units)[0].experiment == "scales"
    with pytest.raises(plan.PlanError, match="no unit or experiment 'plain'"):
        plan.select(units, ["plain"])
    with pytest.raises(plan.PlanError, match="no scale 'digits'"):
        plan.load("digits")


def test_units_that_are_there_are_not_run_again(slice_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--scale", "tiny", "--out", str(slice_folder)]) == 0
    assert "21 there already" in capsys.readouterr().out
    assert run.main(["--scale", "tiny", "--out", str(slice_folder), "--only", "nothing"]) == 1
    assert run.main(["--scale", "tiny", "--out", str(slice_folder), "--list", "--only", "plane"]) == 0
    assert capsys.readouterr().out.splitlines() == ["plane/base", "plane/lr-matched"]


def test_a_unit_that_fails_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = plan.select(plan.load("tiny"), ["depth/activation-linear"])[0]
    bad = plan.Unit("depth", "bad", {})
    # threads for processes: what a process is given must be picklable, the rest is the same
    assert pickle.loads(pickle.dumps((run._one, good)))[1] == good
    threads = {"spawn": SimpleNamespace(Pool=ThreadPool)}
    monkeypatch.setattr(run, "multiprocessing", SimpleNamespace(get_context=threads.__getitem__))
    assert run.launch([bad, good], tmp_path, 1, 2) == 1
    said = capsys.readouterr().out
    assert "depth/bad: failed: KeyError" in said and run.done(good, tmp_path, 1) and not run.done(good, tmp_path, 2)


def test_collected(slice_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect.main([str(slice_folder), str(tmp_path), "--seeds", "2", "--scale", "tiny"]) == 0
    assert len(list(tmp_path.glob("*.json"))) == 21
    assert collect.main([str(slice_folder), str(tmp_path)]) == 1
    assert "missing: plane/base" in capsys.readouterr().err


def test_verdicts_of_the_slice_point_the_expected_way(found: dict[str, Result]) -> None:
    rows = {row.id: row for row in [*table.published(found), *table.text(found)]}
    small = {name: wanted["tiny"] for name, wanted in EXPECTED.items() if "tiny" in wanted}
    assert len(small) >= 18
    for name, wanted in small.items():
        assert rows[name].verdict in wanted["verdicts"], (name, rows[name].verdict, rows[name].value)
        low, high = wanted.get("least", -math.inf), wanted.get("most", math.inf)
        assert low <= rows[name].value <= high, (name, rows[name].value)
    assert all(row.rule and row.published and row.ours for row in rows.values())


def test_figures_and_tables_of_the_slice(found: dict[str, Result], slice_folder: Path, tmp_path: Path) -> None:
    assert figures.main([str(slice_folder), str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(figures.ALL)
    for name in figures.ALL:
        text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert "no runs" not in text and "nan" not in text, name
    readme = tmp_path / "README.md"
    readme.write_text(table.README.read_text(encoding="utf-8"), encoding="utf-8")
    assert table.main([str(slice_folder), "--readme", str(readme)]) == 0
    assert "No results yet." not in readme.read_text(encoding="utf-8")
    widths = [line.count("|") for line in table.tables(found)["published"].splitlines()]
    assert set(widths) == {4}


def test_reproduce(
    tmp_path: Path, slice_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.main(["--list"]) == 0
    assert {"fig5.1", "fig8.1", "fig8.2"} <= set(json.loads(capsys.readouterr().out))
    monkeypatch.setattr(results, "FOLDER", slice_folder)
    assert reproduce.main(["fig8.2", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == ["margins/base"] and Path(told["figure"]).name == "fig8.2.svg"
    assert reproduce.main(["depth", "--out", str(tmp_path), "--train", "--scale", "tiny"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["trained"] and len(told["runs"]) == 4
    for wrong in (["--scale", "digits"], ["--epochs", "3"]):
        assert reproduce.main(["depth", "--out", str(tmp_path), "--train", *wrong]) == 1
        assert "akbar2025" in capsys.readouterr().err
    monkeypatch.setattr(results, "FOLDER", tmp_path / "none")
    assert reproduce.main(["edge", "--out", str(tmp_path)]) == 1

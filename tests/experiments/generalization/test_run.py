"""Units side by side, resumed, failed, late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.generalization import run
from experiments.generalization.place import LateError, Place, read
from experiments.generalization.plan import Unit

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "seed": 0,
    "net": "mlp",
    "norm": "batch",
    "width": 4,
    "depth": 1,
    "sizes": [50],
    "batch": 25,
    "steps": 2,
    "epochs": 1,
    "recipe": {"optimizer": "adamw", "lr": 5e-3},
}


def order(folder: Path, **more: Any) -> run.Order:
    unit = Unit("samples", "one", {**SETTINGS, **more})
    return run.Order(unit, folder / "out", Place(folder / "state" / unit.slug))


def test_a_unit_is_written_down_and_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = order(tmp_path)
    assert not one.done()
    assert run.launch([one], 1, 1, tmp_path / "state") == 0
    assert "1/1 samples/one" in capsys.readouterr().out
    told = read(one.file)
    assert told["found"]["sizes"][0]["m"] == 50
    assert told["environment"]["device"] == "CPU"
    assert one.done()
    assert not order(tmp_path, width=5).done()  # other settings
    assert not (tmp_path / "state" / one.unit.slug).exists()


def test_a_unit_that_fails_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = run.Order(Unit("samples", "two", SETTINGS), tmp_path / "out", Place(tmp_path / "state" / "two"))
    assert run.launch([order(tmp_path, net="vgg"), other], 2, 1, tmp_path) == 1
    said = capsys.readouterr().out
    assert "failed: NormgaugeError: net='vgg' is not known" in said
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["samples__two.json"]


def test_late_units_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    late = run.Order(Unit("samples", "one", SETTINGS), tmp_path, Place(tmp_path / "s", until=0.0))
    assert run.launch([late], 1, 1, tmp_path) == run.UNFINISHED
    assert "not begun" in capsys.readouterr().out

    def stops(*_: Any) -> None:
        raise LateError("half of it is done")

    monkeypatch.setattr("experiments.generalization.samples.run", stops)
    assert run.launch([order(tmp_path)], 1, 1, tmp_path) == run.UNFINISHED
    assert "half of it is done" in capsys.readouterr().out


def test_units_are_listed_and_unknown_ones_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--out", str(tmp_path), "--state", str(tmp_path)]
    assert run.main([*where, "--list", "--only", "disagreement/cifar10"]) == 0
    assert capsys.readouterr().out.split() == [f"disagreement/cifar10-{k}" for k in range(3)]
    assert run.main([*where, "--only", "cake"]) == 1
    assert "'cake'" in capsys.readouterr().err
    assert run.main([*where, "--minutes", "0", "--only", "local", "--quick"]) == run.UNFINISHED


def test_a_process_of_its_own(tmp_path: Path) -> None:
    one = order(tmp_path)
    assert run.launch([one], 1, 2, tmp_path) == 0
    assert one.done()

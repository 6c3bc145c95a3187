"""`normgauge reproduce`: what there is, a figure from results, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from normgauge.cli import main, reproduce


def test_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("than2025/fig1 ") and "weight norms" in line for line in lines)
    assert main(["reproduce", "--json", "-"]) == 0
    assert "than2025/fig3" in json.loads(capsys.readouterr().out)["figures"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("than2026/fig1", "there is akbar2025, than2025"),
        ("than2025/fig9", "it has fig1, fig2"),
        ("than2025", "no figure ''"),
    ],
)
def test_names_that_are_not_there(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", name]) == 1
    assert words in capsys.readouterr().err


def test_outside_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "normgauge.core.checkout.__file__", str(tmp_path / "src" / "normgauge" / "core" / "checkout.py")
    )
    assert main(["reproduce", "than2025/fig1"]) == 1
    assert "in a checkout of the repository" in capsys.readouterr().err


def told(monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str = "") -> list[list[str]]:
    """Stand in for the experiment's process; returns the commands it was given."""
    given: list[list[str]] = []

    def run(command: list[str], **_: object) -> reproduce.subprocess.CompletedProcess[str]:
        given.append(command[3:])
        listing = json.dumps({"fig1": "a figure."})
        return reproduce.subprocess.CompletedProcess(
            command, *((0, listing, "") if "--list" in command else (code, out, err))
        )

    monkeypatch.setattr(reproduce.subprocess, "run", run)
    return given


def test_a_figure_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.dumps({"figure": "x/fig1.svg", "runs": ["a", "b"], "words": "Drawn.", "devices": []})
    given = told(monkeypatch, 0, f"progress\n{answer}\n")
    options = ["--out", str(tmp_path), "--train", "--scale", "digits", "--epochs", "2", "--data-dir", "d"]
    assert main(["reproduce", "than2025/fig1", *options, "--json", str(tmp_path / "a.json")]) == 0
    assert capsys.readouterr().out == "Drawn.\nWritten: x/fig1.svg (2 runs)\n"
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["schema"] == 1
    passed = [str(tmp_path), "--scale", "digits", "--train", "--data-dir", str(Path("d").resolve()), "--epochs", "2"]
    assert given[-1] == ["fig1", "--out", *passed]


def test_an_experiment_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told(monkeypatch, 1, "", "something\nnormgauge: the runs of fig1 are not there\n")
    assert main(["reproduce", "than2025/fig1"]) == 1
    assert capsys.readouterr().err == "normgauge: the runs of fig1 are not there\n"

"""Eighty columns everywhere: help of every command, tables, sentences; wider where COLUMNS says so."""

from __future__ import annotations

import io

import pytest

from normgauge.cli import COMMANDS, build_parser, main
from normgauge.cli.parsing import subparsers
from normgauge.render.console import draw_blocks
from normgauge.render.table import Grid

NET = "examples/net.py"
RUNS = {
    "gauge": ["gauge", f"{NET}:build", "--batch", f"{NET}:batch", "--no-search", "--effort", "quick"],
    "advise": ["advise", f"{NET}:build", "--batch", f"{NET}:batch"],
    "symmetries": ["symmetries", f"{NET}:build", "--batch", f"{NET}:batch", "--mode", "train"],
    "curvature": ["curvature", f"{NET}:build", "--loss", f"{NET}:loss", "--data", f"{NET}:data"],
    "ratios": ["ratios", f"{NET}:build", "--batch", f"{NET}:batch"],
    "radius": ["radius", f"{NET}:build", "--batch", f"{NET}:batch", "--effort", "quick"],
    "rules": ["rules"],
    "theory": ["theory", "--claim", "T.L1", "--seed", "1"],
    "claims": ["theory", "--list"],
    "explain": ["explain", "examples/ci/reading.json", "ln"],
    "verify": ["verify", "examples/ci/reading.json"],
    "diff": ["diff", "examples/ci/reading.json", "examples/ci/reading.json"],
}


def longest(text: str) -> str:
    return max(text.splitlines(), key=len, default="")


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits(capsys, command):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    line = longest(capsys.readouterr().out)
    assert len(line) <= 80, line


@pytest.mark.parametrize("name", RUNS)
def test_what_a_command_prints_fits(capsys, name):
    assert main(RUNS[name]) == 0
    out = capsys.readouterr().out
    line = longest(out)
    assert len(line) <= 80, line
    assert not [line for line in out.splitlines() if line != line.rstrip()]


def test_a_wide_table_goes_on_below_itself():
    headers = ("layer", *(f"column{i}" for i in range(12)))
    rows = tuple((f"row{j}", *(f"<{i}.{j}00>" for i in range(12))) for j in range(3))
    stream = io.StringIO()
    draw_blocks([Grid("wide", headers, rows, frozenset(range(1, 13)))], stream, 80)
    text = stream.getvalue()
    assert len(longest(text)) <= 80
    assert text.count("layer") == text.count("row1") == 2
    assert all(text.count(cell) == 1 for row in rows for cell in row[1:])


def test_every_part_of_a_wide_table_has_all_that_names_its_rows():
    rows = tuple((f"norm{j % 2}", f"rate{j // 2}", *(f"<{i}.{j}00>" for i in range(12))) for j in range(4))
    headers, stream = ("norm", "lr", *(f"column{i}" for i in range(12))), io.StringIO()
    draw_blocks([Grid("wide", headers, rows, frozenset(range(2, 14)), keys=2)], stream, 80)
    assert stream.getvalue().count("lr") == stream.getvalue().count("norm0  rate1") == 2


def test_columns_widen_the_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["rules"]) == 0
    assert 80 < len(longest(capsys.readouterr().out)) <= 120


def test_bare_command_lists_all_by_group(capsys):
    assert main([]) == 0
    told = capsys.readouterr().out
    for words in ("measure a network:", "train:", "learn:", *(f"\n  {name} " for name in COMMANDS)):
        assert words in told


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["guage", "x"], "did you mean gauge?"),
        (["gauge", "x", "--scpe", "point"], "did you mean --scope?"),
        (["gauge", "x", "--jsn=a"], "did you mean --json?"),
        (["gauge", "x", "--mode", "evl"], "did you mean eval?"),
        (["sweep", "x", "--engin", "ray", "--adress", "auto"], "did you mean --address?"),
        (["--versoin"], "did you mean --version?"),
    ],
)
def test_a_mistyped_word_names_the_nearest(capsys, given, meant):
    with pytest.raises(SystemExit) as ended:
        main(given)
    error = capsys.readouterr().err
    assert ended.value.code == 1 and meant in error and error.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command(capsys, shell):
    pytest.importorskip("shtab", reason="completion is made by shtab: pip install normgauge[completion]")
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(name in told for name in COMMANDS) and "--fail-above" in told


def test_completion_without_shtab_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])
    assert ended.value.code == 1 and "normgauge[completion]" in capsys.readouterr().err


def test_every_command_has_a_parser_of_its_own():
    assert len(list(subparsers(build_parser()))) == len(COMMANDS)

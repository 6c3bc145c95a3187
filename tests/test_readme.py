"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from normgauge.cli import build_parser

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = README.split("```")[1::2]
PYTHON = [block.removeprefix("python\n") for block in BLOCKS if block.startswith("python\n")]
COMMANDS = re.findall(r"^normgauge (.*?)(?:\s+#.*)?$", "".join(b for b in BLOCKS if b[0] == "\n"), re.MULTILINE)


@pytest.mark.parametrize("code", PYTHON)
def test_the_code_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = nn.Sequential()
    block.add_module("fc", nn.Linear(4, 6))
    block.add_module("bn1", nn.BatchNorm1d(6))
    model = nn.Sequential()
    model.add_module("layer3", block)
    exec(code, {"model": model, "batch": torch.randn(5, 4)})
    assert "BatchNorm1d" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "a.html"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_are_understood(command):
    build_parser().parse_args(command.split())


def test_the_readme_shows_both():
    assert len(PYTHON) == 1 and len(COMMANDS) >= 4

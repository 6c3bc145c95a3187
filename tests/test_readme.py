"""What the README shows runs as it stands there, and what it points to exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

from normgauge.cli import build_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = README.split("```")[1::2]
PYTHON = [block.removeprefix("python\n") for block in BLOCKS if block.startswith("python\n")]
SHELL = "".join(block for block in BLOCKS if re.match(r"(?:sh|bash|console)?\n", block))
COMMANDS = re.findall(r"^(?:\$ )?normgauge (.*?)(?:\s+[#|>].*)?$", SHELL, re.MULTILINE)


def test_the_code_runs(tmp_path, monkeypatch, capsys):
    """The blocks one after the other, for a model with a layer of the name they ask about."""
    monkeypatch.chdir(tmp_path)
    block = nn.Sequential()
    block.add_module("fc", nn.Linear(4, 6))
    block.add_module("bn1", nn.BatchNorm1d(6))
    model = nn.Sequential()
    model.add_module("layer3", block)
    names = {"model": model, "batch": torch.randn(5, 4, generator=torch.Generator().manual_seed(0))}
    names |= {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss": torch.tensor(1.0)}
    names |= {"loss_function": nn.functional.mse_loss, "target": torch.ones(5, 6)}
    draw = torch.Generator().manual_seed(1)
    names |= {
        name: (torch.randn(60, 4, generator=draw), torch.randint(6, (60,), generator=draw))
        for name in ("train", "holdout")
    }
    for code in PYTHON:
        exec(compile(code, "README.md", "exec"), names)
    names["monitor"].close()
    assert (tmp_path / "runs" / "a" / "run.jsonl").exists()
    assert "BatchNorm1d" in capsys.readouterr().out
    written = set(re.findall(r"\"(\w+\.(?:json|html))\"", re.sub(r"#.*", "", "".join(PYTHON))))
    assert written
    assert written <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_the_commands_are_understood(command):
    build_parser().parse_args(shlex.split(command))


def test_links_and_pictures_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:\s]+)[^)]*\)|<img[^>]*src=\"([^\":]+)\"", README)
    assert targets
    for target in ("".join(pair) for pair in targets):
        assert (ROOT / target).exists(), f"README.md points to {target}"


def test_the_readme_shows_both():
    assert PYTHON and len(COMMANDS) >= 4
    assert "make demo " in SHELL and "make test " in SHELL


def test_the_readme_is_short_and_its_first_screen_is_whole():
    """Sentence, install, six lines of code, a picture, why not to multiply norms, what is proved and what observed."""
    assert len(README.split()) <= 700
    screen = "\n".join(README.splitlines()[:30])
    code = screen.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line]) == 6
    for words in ("pip install", "![", "multiply norms", "| as trained |", "**Proved**", "**Observed**"):
        assert words in screen

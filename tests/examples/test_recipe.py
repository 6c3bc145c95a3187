"""The recipes of docs/adding-a-rule.md, applied word for word to a copy of the library, give a rule that passes."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-rule.md").read_text(encoding="utf-8")
INTRODUCED = r"^`([\w/.]+)`, (new|at the end|after|in place of)(?: `([^`\n]+)`)?:\n\n```\w+\n(.*?)^```"
NEEDED = ("src", "tests/contracts", "tests/theory", "tests/fuzz/blocks.py", "tests/cases.py", "tests/conftest.py")
RULE = "src/normgauge/instrument/rules/difference.py"
TIES = "tests/theory/test_ties.py"


class Block(NamedTuple):
    """What the page tells to do to one file."""

    path: str
    where: str
    line: str  # how the line begins, below which or in place of which the code stands
    code: str

    def apply(self, root: Path) -> None:
        file = root / self.path
        if self.where == "new":
            assert not file.exists()
            file.write_text(self.code, encoding="utf-8")
            return
        text = file.read_text(encoding="utf-8")
        if self.where == "at the end":
            file.write_text(f"{text}\n\n{self.code}", encoding="utf-8")
            return
        lines = text.splitlines(keepends=True)
        (place,) = [k for k, line in enumerate(lines) if line.strip().startswith(self.line)]
        lines[place : place + 1] = [self.code] if self.where == "in place of" else [lines[place], self.code]
        file.write_text("".join(lines), encoding="utf-8")


BLOCKS = [Block(*found) for found in re.findall(INTRODUCED, PAGE, re.MULTILINE | re.DOTALL)]
COMMANDS = [shlex.split(line) for line in re.findall(r"^python -m pytest (.+)$", PAGE, re.MULTILINE)]


def copied(root: Path, claim: str = '"X.diff"') -> Path:
    """The library with the page's blocks applied; ``claim`` is written where the new rule names its own."""
    for name in (*NEEDED, "tests/__init__.py", "pyproject.toml"):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target)  # with what is compiled already
        else:
            shutil.copy2(ROOT / name, target)
    for block in BLOCKS:
        block.apply(root)
    rule = (root / RULE).read_text(encoding="utf-8")
    assert rule.count('claim="X.diff"') == 1
    (root / RULE).write_text(rule.replace('claim="X.diff"', f"claim={claim}"), encoding="utf-8")
    return root


def run_tests(root: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    """Tests of a copy, run there."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *asked]
    places = {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=root, env=os.environ | places, capture_output=True, text=True, timeout=300)


def test_the_page_names_every_file_it_changes():
    fenced = re.findall(r"^```(?:py|toml|text)$", PAGE, re.MULTILINE)
    assert len(BLOCKS) == len(fenced) == 10  # no block without its file
    assert len(COMMANDS) == 2


def test_what_the_recipes_write_passes(tmp_path):
    root = copied(tmp_path)
    paths = dict.fromkeys(word for command in COMMANDS for word in command if word.startswith("tests/"))
    words = " or ".join(command[command.index("-k") + 1] for command in COMMANDS)
    done = run_tests(root, *paths, "-k", words)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"^tests/\w+/(\w+)\.py::(\w+)(?:\[(.+)\])? PASSED", done.stdout, re.MULTILINE)
    rules = {test for _, test, name in passed if name.startswith("difference.diff")}
    assert rules == {"test_a_rule_keeps_its_contract", "test_every_rule_has_a_case_that_reaches_it"}
    assert [name for file, _, name in passed if file == "test_all" and name == "X.diff"]
    assert [name for file, _, name in passed if file == "test_every_rule" and "CrossMapLRN2d" in name]
    table = [test for file, test, name in passed if file == "test_normalizer_table" and "CrossMapLRN2d" in name]
    asked = re.findall(r"^def test_", (root / "tests/contracts/test_normalizer_table.py").read_text("utf-8"), re.M)
    assert len(set(table)) == len(asked) > 5
    assert len([file for file, _, _ in passed if file == "test_ties"]) > 5


def test_a_random_network_can_contain_the_new_rule(tmp_path):
    makers = runpy.run_path(str(copied(tmp_path) / "tests/fuzz/blocks.py"))["MAKERS"]
    for axes in (2, 3, 4):
        make = dict(makers[axes])["difference"]
        x = torch.randn(2, 3, 4, 5)[(0,) * (4 - axes)]
        assert torch.equal(make(Random(0), x.shape)(x), x.diff()) and make(Random(0), (*x.shape[:-1], 1)) is None


def test_without_its_claim_the_rule_fails(tmp_path):
    done = run_tests(copied(tmp_path, claim="None"), TIES, "-k", "rests_on_a_claim")
    assert done.returncode == 1 and "difference.diff names no claim" in done.stdout, done.stdout + done.stderr

"""Rounding has one home: a small constant in a room that proves bounds is named, with its reason, or imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import normgauge

SOURCE = Path(normgauge.__file__).parent
ROOMS = ("core", *(f"instrument/{part}" for part in ("rules", "balance", "loop", "spectral", "probe", "trace")))
FILES = ("instrument/compose.py", "instrument/records.py")
SMALL = 1e-7  # constants at most this large are about rounding, or about when to stop
HOME = SOURCE / "core" / "rounding.py"


def files() -> list[Path]:
    folders = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    plain = [SOURCE / name for name in FILES]
    return [path for path in (*folders, *plain) if path != HOME]


def unexplained(text: str) -> list[str]:
    """Small constants that are no named constant of the module with a comment beside it or a sentence below it."""
    lines, tree = text.splitlines(), ast.parse(text)
    named: set[int] = set()
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            after = tree.body[place + 1 : place + 2]
            told = bool(after) and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant)
            beside = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
            if told or beside:
                named.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [
        f"{node.lineno}: {lines[node.lineno - 1].strip()}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, float)
        and 0 < abs(node.value) <= SMALL
        and node.lineno not in named
    ]


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_small_constant_stands_in_the_code(path):
    assert not unexplained(path.read_text()), "name it with its reason, or take a step of normgauge.core.rounding"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("y = x * (1 + 1e-12)", 1),
        ("def f(x, eps=1e-9):\n    return x + eps", 1),
        ("NEAR = 1e-9\nx = 1", 1),
        ("NEAR = 1e-9  # what two runs may differ by\nx = NEAR", 0),
        ('NEAR = 1e-9\n"""What two runs may differ by."""', 0),
        ("y = 1e-3 * x", 0),
    ],
)
def test_the_search_finds_what_it_should(text, count):
    assert len(unexplained(text)) == count


def test_every_room_has_files():
    assert all(any(SOURCE / room in path.parents for path in files()) for room in ROOMS)


def test_the_home_says_why_of_every_step():
    tree = ast.parse(HOME.read_text())
    steps = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert steps and all(ast.get_docstring(node) for node in steps)

"""The keys of a config: every one is described, and a value is drawn inside its range."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from normgauge.lab.sweep.keys import KEYS, ValueDraw

DOCS = Path(__file__).parents[3] / "docs" / "sweep.md"


def test_every_key_is_described():
    text = DOCS.read_text(encoding="utf-8")
    for key in KEYS:
        assert f"`{key}`" in text, f"docs/sweep.md does not describe {key}"


@pytest.mark.parametrize("kind", ["uniform", "log_uniform", "int", "choice"])
def test_a_draw_stays_inside_and_reaches_both_halves(kind):
    draw = ValueDraw.of(kind, [1, 2, 3, 4] if kind == "choice" else [1, 100])
    values = [draw.value(random.Random(k)) for k in range(200)]
    ends = draw.ends[0], draw.ends[-1]
    assert all(ends[0] <= value <= ends[1] for value in values)
    middle = {"log_uniform": 10, "choice": 2.5}.get(kind, 50.5)
    assert 60 < sum(value < middle for value in values) < 140
    if "uniform" in kind:
        assert all(float(f"{value:.6g}") == value for value in values)

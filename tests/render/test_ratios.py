"""Ratios in words: numbers with their power, honest about what they do not say."""

from __future__ import annotations

import math

from normgauge.core.ratios import LayerRatio, Ratios
from normgauge.core.spelled import LN10
from normgauge.render.console import as_text
from normgauge.render.ratios import MEANING, SCALE, ratio_blocks, ratio_verdict
from normgauge.render.table import Grid


def made(*layers: LayerRatio) -> Ratios:
    return Ratios("with", "without", "point", layers, ("A note.",))


def one(name: str, log10_a: float | None, log10_b: float | None, scale_free: bool = False, why: str = "") -> LayerRatio:
    logs = [None if log is None else log * LN10 for log in (log10_a, log10_b)]
    return LayerRatio(name, "Linear", logs[0], logs[1], (3, 1), scale_free, why)


def test_the_verdict_names_the_extremes_and_what_is_missing():
    found = made(one("stem", 1.0, 3.0), one("mid", 2.0, 1.0), one("head", math.inf, 1.0, why="no finite bound in A"))
    assert ratio_verdict(found) == [
        "Bounds of A's slopes in the weights, as these are, are 0.01 (stem) to 10 (mid) times B's, scope point.",
        "No statement for 1 layer of 3.",
    ]
    assert ratio_verdict(made(one("stem", None, 1.0, why="A has no bound for it"))) == [
        "No statement for 1 layer of 1."
    ]


def test_the_table_has_the_ratio_and_its_square():
    grid = next(part for part in ratio_blocks(made(one("stem", 1.0, 3.0, True))) if isinstance(part, Grid))
    assert grid.rows == (("stem", "Linear", "1.00", "3.00", "-2.00", "-4.00", "2", "scale-free"),)
    silent = made(one("stem", math.inf, 3.0, why="no finite bound in A"))
    grid = next(part for part in ratio_blocks(silent) if isinstance(part, Grid))
    assert grid.rows[0][2:] == ("inf", "3.00", "·", "·", "2", "no statement: no finite bound in A")


def test_what_it_does_not_mean_is_always_said():
    found = made(one("stem", 1.0, 3.0))
    assert MEANING in ratio_blocks(found) and SCALE not in ratio_blocks(found) and "A note." in ratio_blocks(found)
    assert SCALE in ratio_blocks(made(one("stem", 1.0, 3.0, True)))
    assert "never iterations of this training" in as_text(ratio_blocks(found)).replace("\n", " ").replace("  ", " ")
    assert "(LR/α)²" in as_text(ratio_blocks(found)) and "(A/B)^1" in as_text(ratio_blocks(found))

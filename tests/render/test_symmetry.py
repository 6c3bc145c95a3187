"""Symmetries as a terminal shows them."""

from __future__ import annotations

from normgauge.core.symmetry import Symmetries, Symmetry
from normgauge.render.symmetry import symmetry_blocks
from normgauge.render.table import Grid

SCALE = Symmetry("scale", "rows before f.1", ("f.0.weight", "f.0.bias"), 8, 2e-16, 3e-6, 1e-15, 0.4)
SHIFT = Symmetry("shift", "logits", ("head.bias",), 1, 0.0, 0.0)


def test_a_sentence_then_a_table_a_kind_then_notes():
    found = Symmetries("train", (SHIFT, SCALE), 9, 90, unknown=("roll",), unused=("dead",), notes=("float64",))
    blocks = symmetry_blocks(found)
    assert blocks[0] == "at least 9 of 90 directions of weight space (10 %) change nothing (train mode)."
    scale, shift = [block for block in blocks if isinstance(block, Grid)]
    assert scale.title.startswith("scale:") and shift.title.startswith("shift:")
    assert scale.rows == (("rows before f.1", "f.0.weight, f.0.bias", "8", "1e-16", "1e-06", "1e-15", "broken"),)
    assert shift.headers[-1] == "with ε" and shift.rows[0][-2:] == ("0", "0")  # no running statistics, no columns
    told = str(found)
    for words in ("no statement on roll", "does not depend on dead", "· float64", "eval alone: left as they are"):
        assert words in told


def test_nothing_found_says_what_was_looked_at():
    found = Symmetries("eval", (), 0, 10, looked_at=(("Linear", 2), ("relu", 1)))
    assert symmetry_blocks(found) == ["no symmetry found; looked at 2 Linear, 1 relu (eval mode).", ""]

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from normgauge.core.errors import ReadingError
from normgauge.core.symmetry import Symmetries, Symmetry, defect_size

SCALE = Symmetry("scale", "rows", ("w",), 8, 0.0, 1e-6, rows=(8, 0))
PAIR = Symmetry("pair", "q and k", ("q", "k"), 4, 0.0, 1e-3)
FOUND = Symmetries("train", (SCALE, PAIR), 11, 110, looked_at=(("Linear", 2),))


def test_the_summary_counts_independent_directions_or_says_that_it_does_not():
    assert FOUND.summary() == "at least 11 of 110 directions of weight space (10 %) change nothing"
    assert replace(FOUND, dimension=None).summary().startswith("about 12 of 110 directions")
    assert replace(FOUND, groups=(PAIR,)).summary().endswith("; no scale symmetry found, looked at 2 Linear")
    assert Symmetries("eval", (), 0, 0).summary() == "no symmetry found; looked at nothing"


def test_families_by_kind_and_the_worst_of_them():
    assert FOUND.of("pair") == (PAIR,) and FOUND.of("shift") == ()
    assert FOUND.worst == 1e-3 and replace(FOUND, groups=()).worst == 0.0


def test_it_comes_back_from_its_file():
    assert Symmetries.from_json(json.loads(json.dumps(FOUND.to_json(), allow_nan=False))) == FOUND


@pytest.mark.parametrize(
    ("defect", "told"),
    [(None, ""), (0.0, "0"), (3e-16, "1e-16"), (0.5, "1e-01"), (20.0, "1e+01"), (math.inf, "broken")],
)
def test_a_defect_in_few_characters(defect, told):
    assert defect_size(defect) == told


def test_a_defect_below_zero_is_no_defect():
    data = json.loads(json.dumps(FOUND.to_json()))
    data["groups"][0]["defect"] = -1
    with pytest.raises(ReadingError, match=r"groups\[0\]\.defect: expected a number from 0 on, or \"inf\", got -1"):
        Symmetries.from_json(data)

"""Where a unit works."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from experiments.generalization.place import LateError, Place, read, write


def test_a_part_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> dict[str, list[int]]:
        made.append(1)
        return {"n": made}

    place = Place(tmp_path / "a")
    assert place.once("x", make) == place.once("x", make) == {"n": [1]}
    assert made == [1]


def test_when_late_only_what_is_there_is_given(tmp_path: Path) -> None:
    Place(tmp_path).once("x", lambda: {"n": 1})
    late = Place(tmp_path, until=time.time() - 1)
    assert late.once("x", lambda: {"n": 2}) == {"n": 1}
    with pytest.raises(LateError, match="no time left for y"):
        late.once("y", lambda: {"n": 2})


def test_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    told = {"a": [0.1 + 0.2, math.inf, -math.inf, None], "b": {"c": (1, "word")}}
    write(tmp_path / "x.json", told)
    assert read(tmp_path / "x.json") == {"a": [0.1 + 0.2, math.inf, -math.inf, None], "b": {"c": [1, "word"]}}
    write(tmp_path / "x.json", {"a": math.nan})
    assert math.isnan(read(tmp_path / "x.json")["a"])
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]

"""The figures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from experiments.generalization import figures


@pytest.mark.parametrize("name", list(figures.DRAWN))
def test_figures_are_drawn(folder: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "figures"
    assert figures.main(["--results", str(folder), "--out", str(out)]) == 0
    text = (out / f"{name}.svg").read_text(encoding="utf-8")
    ET.fromstring(text)
    assert "<circle" in text
    assert "no runs" not in text


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    assert figures.main(["--results", str(tmp_path), "--out", str(tmp_path / "f")]) == 0
    assert not list((tmp_path / "f").iterdir())

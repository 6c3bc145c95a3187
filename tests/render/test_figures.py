from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import pytest

from normgauge.core.errors import InputError, ReadingError
from normgauge.render.bracket import BracketRow, bracket
from normgauge.render.document import LIGHT
from normgauge.render.figures import figure_formats, save, standalone
from normgauge.render.sigma import sigma_ranges
from normgauge.render.waterfall import waterfall
from tests.render.networks import hostile, residual, scopes


@pytest.mark.parametrize("draw", [waterfall, sigma_ranges, lambda r: bracket([BracketRow(r.model, r)])])
def test_hostile_names_are_only_names(draw):
    assert "<img" not in draw(hostile())
    ElementTree.fromstring(draw(hostile()))


def test_figures_are_saved_as_files_of_their_own(tmp_path):
    written = save(residual(), tmp_path / "new" / "folder")
    assert [path.name for path in written] == [
        f"{name}.{form}" for name in ("bracket", "waterfall", "sigma") for form in ("svg", "png")
    ]
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG") and int.from_bytes(content[16:20]) == 1920
        else:
            assert b"var(" not in content and LIGHT["weight"].encode() in content and len(content) < 100_000
            assert ElementTree.fromstring(content).get("width") == "960"


def test_several_readings_get_names_that_differ(tmp_path):
    labels = ["a/../b: point", "a/../b: point", "..."]
    written = save(scopes(), tmp_path, ["svg"], labels=labels)
    assert sorted(path.name for path in written) == [
        "bracket.svg", "sigma-a-..-b-point-2.svg", "sigma-a-..-b-point.svg", "sigma-reading.svg",
        "waterfall-a-..-b-point-2.svg", "waterfall-a-..-b-point.svg", "waterfall-reading.svg",
    ]  # fmt: skip
    assert {path.parent for path in written} == {tmp_path}


def test_without_the_converter_png_says_what_to_install(tmp_path, monkeypatch):
    assert figure_formats() == ("svg", "png")
    monkeypatch.setitem(sys.modules, "vl_convert", None)  # an import of it fails
    assert figure_formats() == ("svg",)
    assert save(residual(), tmp_path, ["svg"])
    for formats in (["png"], ["svg", "png"]):
        with pytest.raises(InputError, match=r"pip install 'normgauge\[plot\]'"):
            save(residual(), tmp_path / "none", formats)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("formats", "shown"), [(["pdf"], "pdf"), ([], "none")])
def test_other_formats_are_refused(tmp_path, formats, shown):
    with pytest.raises(InputError, match=f"expected the formats svg, png or both, got {shown}"):
        save(residual(), tmp_path / "none", formats)
    assert not (tmp_path / "none").exists()


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ReadingError, match="got 0 and 0 labels"):
        save([], tmp_path)
    with pytest.raises(ReadingError, match="got 1 and 2 labels"):
        save(residual(), tmp_path, labels=["a", "b"])


def test_a_drawing_alone_keeps_its_content():
    assert standalone(waterfall(residual())).count("<title>") == 5

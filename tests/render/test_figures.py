from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from normgauge.core.errors import InputError, ReadingError
from normgauge.core.spelled import LN10
from normgauge.render.bracket import BracketRow, bracket
from normgauge.render.document import DARK, LIGHT, NOTEBOOK, document, figure_css
from normgauge.render.figures import figure_formats, save, standalone
from normgauge.render.sigma import sigma_ranges
from normgauge.render.svg import NARROW, WIDE
from normgauge.render.waterfall import waterfall
from tests.made import layer, reading
from tests.render.networks import SIGMA, deep, endless, hostile, residual, scopes

SVG = "{http://www.w3.org/2000/svg}"


def nodes(drawing: str, tag: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawing).iter(SVG + tag)
    return [node for node in found if kind in node.get("class", "").split() or not kind]


def words(drawing: str) -> list[str]:
    return ["".join(node.itertext()) for node in nodes(drawing, "text")]


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_the_waterfall_has_a_bar_a_layer_and_says_its_levels(shape):
    drawing = waterfall(residual(), shape, "k-")
    assert [node.get("data-row") for node in nodes(drawing, "g", "bar")] == [f"k-{i}" for i in range(5)]
    assert [len(nodes(drawing, "rect", kind)) for kind in ("weight", "norm", "other")] == [4, 2, 2]  # one in the key
    told = " ".join(words(drawing))
    for level in ("layer by layer", "1.80", "balanced", "1.60", "found", "1.25"):
        assert level in told
    assert len(nodes(drawing, "polyline", "reached")[0].get("points", "").split()) == 5


def test_bars_are_as_high_as_their_gains():
    tall = [float(n.get("height", "0")) for n in nodes(waterfall(residual()), "rect", "weight")]
    assert tall[0] / tall[1] == pytest.approx(1.0 / 1.6, rel=0.02)


def test_the_shading_ends_at_the_two_bounds():
    drawing = waterfall(residual())
    truth, floor = nodes(drawing, "rect", "truth")[0], nodes(drawing, "rect", "floor")[0]
    lines = {kind: float(nodes(drawing, "line", kind)[0].get("y1", "0")) for kind in ("balanced", "found")}
    assert float(truth.get("y", "0")) == lines["balanced"]
    assert float(truth.get("y", "0")) + float(truth.get("height", "0")) == pytest.approx(lines["found"], abs=0.2)
    assert float(floor.get("y", "0")) == lines["found"]


def test_infinite_gains_are_marked_and_named_in_the_key():
    drawing = waterfall(endless())
    assert len(nodes(drawing, "polygon", "open")) == 1
    assert "no finite gain, left out of what follows" in words(drawing)
    assert "no finite gain, left out of what follows" not in words(waterfall(residual()))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_the_axis_fits_any_scale(scale):
    layers = tuple(layer(f"n{i}", "Linear", scale * (i + 1), i, log_cumulative=scale * i * LN10) for i in range(3))
    drawing = waterfall(reading(layers=layers, log_upper=scale, log_lower=-math.inf))
    assert 2 <= len(nodes(drawing, "line", "grid")) <= 10
    assert nodes(drawing, "rect", "floor") == []


def test_no_layers_no_waterfall_and_no_normalizers_no_sigma():
    assert waterfall(reading(layers=())) == ""
    assert sigma_ranges(reading(layers=(layer("a", "Linear", 1.0, 0),))) == ""


def test_a_thousand_layers_share_bars_and_stay_small():
    assert len(nodes(waterfall(deep(1000)), "g", "bar")) == 200
    assert len(nodes(waterfall(deep(1000), NARROW), "g", "bar")) == 77
    assert all(len(waterfall(deep(1000), shape)) < 100_000 for shape in (WIDE, NARROW))


def test_layers_are_named_where_there_is_room():
    assert {"stem Linear", "add", "block"} <= set(words(waterfall(residual())))
    assert {"blocks.0", "blocks.1", "blocks.9"} <= set(words(waterfall(deep(40))))


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_the_first_and_the_last_layer_are_named_where_no_other_is(shape):
    names = words(waterfall(deep(1000), shape))
    assert {"blocks.0", "blocks.249"} <= set(names) and "blocks.1" not in names
    layers = tuple(layer(f"stage{i}", "Linear", 0.1, i, log_cumulative=0.1) for i in range(15))
    assert {"stage0", "stage14"} <= set(words(waterfall(reading(layers=layers), NARROW)))
    alone = (layer("a" * 300, "Linear", 0.1, 0, log_cumulative=0.1),)
    assert [w for w in words(waterfall(reading(layers=alone), shape)) if w.startswith("aa")] != []


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_the_bracket_draws_every_row_from_found_to_folded(shape):
    rows = [BracketRow("here", residual(), "now"), BracketRow("there", residual(log_upper=3 * LN10), "beside")]
    drawing = bracket(rows, shape)
    own, other = nodes(drawing, "rect", "strong")[0], nodes(drawing, "rect", "reference")[0]
    assert float(other.get("width", "0")) / float(own.get("width", "1")) == pytest.approx(1.75 / 0.35, rel=0.02)
    assert {"here", "there", "17.8 to 39.8", "17.8 to 1,000"} <= set(words(drawing))
    assert len(nodes(drawing, "g", "beside")) == 1


def test_the_bracket_runs_off_the_edge_where_there_is_no_end():
    drawing = bracket([BracketRow("open", endless()), BracketRow("none found", residual(log_lower=-math.inf))])
    assert len(nodes(drawing, "polygon", "open")) == 2
    assert "17.8, no finite bound" in words(drawing) and "0 to 39.8" in words(drawing)
    assert [len(nodes(drawing, "line", kind)) for kind in ("found", "balanced")] == [
        2,
        2,
    ]  # one a row less, and the key


def test_the_key_of_the_bracket_names_both_ticks_and_references_where_there_are_any():
    alone, compared = (
        bracket([BracketRow("a", residual()), BracketRow("b", residual(), kind)]) for kind in ("", "beside")
    )
    for name in ("found", "balanced", "the truth lies between", "up to folded", "layer by layer"):
        assert name in words(alone)
    assert "for comparison" in words(compared) and "for comparison" not in words(alone)
    upright = [n for n in nodes(alone, "line", "solid") if n.get("x1") == n.get("x2")]
    assert len(upright) == 2 * 2 + 2  # two a row and two in the key


def test_no_finite_bound_is_an_arrow_and_not_a_line():
    for shape in (WIDE, NARROW):
        drawing = waterfall(endless(), shape)
        assert nodes(drawing, "line", "balanced") == []
        assert len(nodes(drawing, "polygon", "endless")) == len(nodes(drawing, "line", "endless")) == 1
        assert "the truth lies here" not in words(drawing)
        assert "the truth lies here or above: no finite bound" in words(drawing)
    assert "no finite bound" in words(waterfall(endless())) and "∞" not in waterfall(endless())
    assert nodes(waterfall(residual()), "polygon", "endless") == []


def test_powers_of_ten_are_raised_in_a_drawing_and_plain_in_its_label():
    drawing = bracket([BracketRow("a", residual(log_upper=15.06 * LN10))])
    assert [n.text for n in nodes(drawing, "tspan", "sup")] == ["15.06"]
    assert "17.8 to 1015.06" in words(drawing)
    assert "at most 10^15.06" in (ElementTree.fromstring(drawing).get("aria-label") or "")


def test_sigma_is_drawn_from_smallest_to_largest_beside_the_least_it_can_be():
    drawing = sigma_ranges(residual(), WIDE, "k-")
    assert [n.get("data-row") for n in nodes(drawing, "g", "bar")] == ["k-1"]
    bar = nodes(drawing, "rect", "norm")[0]
    marks = [float(nodes(drawing, "line", kind)[0].get("y1", "0")) for kind in ("balanced", "floor-mark")]
    top = float(bar.get("y", "0"))
    assert top < marks[0] < top + float(bar.get("height", "0")) < marks[1]


def test_a_sigma_without_all_its_ends_is_drawn_as_far_as_known():
    odd = ({"max": 2.0}, {"min": 0.0, "rms": 1.0, "max": 4.0, "eps": 0.0}, {"rms": 1.0}, SIGMA)
    layers = tuple(layer(f"n{i}", "LayerNorm", 1.0, i, sigma=s) for i, s in enumerate(odd))
    assert len(nodes(sigma_ranges(reading(layers=layers)), "g", "bar")) == 3


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
        with pytest.raises(InputError, match=r"pip install normgauge\[plot\]"):
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


def test_every_theme_has_every_colour():
    assert set(LIGHT) == set(DARK) == set(NOTEBOOK)
    assert "var(" not in figure_css() and "var(" not in figure_css(NOTEBOOK, ".x")
    assert all(f"--{name}:" in document("", "", "") for name in LIGHT)


def test_a_drawing_alone_keeps_its_content():
    assert standalone(waterfall(residual())).count("<title>") == 5

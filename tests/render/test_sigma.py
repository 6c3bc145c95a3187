"""σ by layer as a drawing."""

from __future__ import annotations

from dataclasses import replace

from normgauge.core.bound import Scope
from normgauge.render.sigma import sigma_ranges
from normgauge.render.svg import WIDE
from tests.made import layer, reading
from tests.render.drawings import nodes, words
from tests.render.networks import SIGMA, residual


def test_no_normalizers_no_sigma():
    assert sigma_ranges(reading(layers=(layer("a", "Linear", 1.0, 0),))) == ""


def test_sigma_is_drawn_from_smallest_to_largest_beside_the_least_it_can_be():
    drawing = sigma_ranges(residual(), WIDE, "k-")
    assert [n.get("data-row") for n in nodes(drawing, "g", "bar")] == ["k-1"]
    bar = nodes(drawing, "rect", "norm")[0]
    marks = [float(nodes(drawing, "line", kind)[0].get("y1", "0")) for kind in ("balanced", "floor-mark")]
    top = float(bar.get("y", "0"))
    assert top < marks[0] < top + float(bar.get("height", "0")) < marks[1]


def test_sigma_is_that_of_the_samples_in_every_scope():
    for scope in ("point", "ball:0.1", "global"):
        drawing = sigma_ranges(residual(scope=Scope.parse(scope)))
        assert "log10 σ at the samples" in words(drawing) and "everywhere" not in drawing


def test_a_sigma_without_all_its_ends_is_drawn_as_far_as_known():
    odd = ({"max": 2.0}, {"min": 0.0, "rms": 1.0, "max": 4.0, "eps": 0.0}, {"rms": 1.0}, SIGMA)
    layers = tuple(layer(f"n{i}", "LayerNorm", 1.0, i, sigma=s) for i, s in enumerate(odd))
    assert len(nodes(sigma_ranges(reading(layers=layers)), "g", "bar")) == 3


def test_a_normalizer_with_a_number_for_a_name_is_told_by_its_kind():
    norm = replace(residual().layers[1], name="2")
    told = words(sigma_ranges(residual(layers=(norm,))))
    assert "2 BatchNorm1d" in told and "2" not in told


def test_where_a_kind_does_not_fit_its_capitals_stand_for_it():
    norms = [replace(residual().layers[1], name=f"{i}") for i in range(12)]
    assert "11 BN" in words(sigma_ranges(residual(layers=tuple(norms))))

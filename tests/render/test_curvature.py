"""A curvature measurement as tables and as a page."""

from __future__ import annotations

from dataclasses import replace

from normgauge.core.curvature import Condition, Curvature, Density, Eigenvalue, LayerCurvature, TraceEstimate
from normgauge.render.curvature import (
    curvature_blocks,
    curvature_html,
    curvature_sentences,
    eigenvalue_grid,
    layer_grid,
    spectrum,
    total_grid,
)
from tests.render.drawings import nodes, words

TRACE = TraceEstimate(6.0, 0.25, 10)
DENSITY = Density(4, (0.5, 1.0), (0.25, 0.25), (4.0, -0.5), 2, 5, 10, 1, 4.0)
FOUND = Curvature(
    "Net<b>", "eval", "float64", 4, 8, 1, 0.5, 0.125, (Eigenvalue(4.0, 1e-9, 1e-12),), Eigenvalue(-0.5, 1e-9, 1e-12),
    TRACE, Eigenvalue(2.5, 1e-8, 1e-8), (LayerCurvature("f.0", 3, TRACE, None),), products={"the trace": 10, "λ": 5},
)  # fmt: skip


def test_sentences_say_what_must_not_be_overlooked():
    assert curvature_sentences(FOUND) == ["The loss curves downwards: an eigenvalue of -0.5 or below, no minimum."]
    vague = replace(FOUND, smallest=Eigenvalue(-0.5, 0.6, 0.6), converged=False, density=DENSITY, notes=("odd",))
    told = curvature_sentences(vague)
    assert told[0].startswith("The largest eigenvalues did not settle")  # a residual that reaches zero is no minimum
    assert told[1:] == ["1 outlier stands above the rest, at least 4 times the next eigenvalue.", "Odd."]


def test_tables_hold_every_number_that_was_measured():
    assert eigenvalue_grid(FOUND).rows == (("λ1", "4", "1e-09", "1e-12"), ("smallest found", "-0.5", "1e-09", "1e-12"))
    assert layer_grid(FOUND).rows == (("f.0", "3", "6", "0.25", "·", "·"),)
    full = replace(FOUND, density=DENSITY, condition=Condition(8.0, 0.1, 3))
    assert [row[0] for row in total_grid(FOUND).rows] == ["loss", "gradient norm", "trace", "scale-free sharpness"]
    rows = {row[0]: row[1:] for row in total_grid(full).rows}
    assert rows["negative mass"] == ("8.33 %", "Σ|λ<0| / Σ|λ|, from 2 probes")  # 0.5 / (0.5 + 1 + 4 + 0.5)
    assert rows["condition number"] == ("8", "3 of 4 eigenvalues above 0.1 λ1")
    assert curvature_blocks(FOUND)[-1] == "15 Hessian-vector products: 10 for the trace, 5 for λ."


def test_the_page_draws_single_eigenvalues_and_the_density_where_it_is_known():
    bare, full = spectrum(FOUND), spectrum(replace(FOUND, density=DENSITY))
    assert [len(nodes(drawn, "polyline", "reached")) for drawn in (bare, full)] == [0, 1]
    places = [float(line.get("x1", "0")) for kind in ("balanced", "found") for line in nodes(bare, "line", kind)[:1]]
    assert places == sorted(places) and "density of all, log10" in words(full)
    page = curvature_html(FOUND)
    assert "Net<b>" not in page and "Net&lt;b&gt;" in page and page.count("<svg") == 2

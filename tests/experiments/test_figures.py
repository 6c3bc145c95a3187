"""Figures and tables from small results."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from experiments import plot, study
from experiments.than2025 import figures, results, table
from experiments.than2025.plan import load as load_plan
from normgauge.render.svg import round_ticks


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_plot_says_what_it_shows_in_light_and_dark() -> None:
    line = plot.Line("a < b", ((0, 1.0), (1, float("nan")), (2, 3.0)), marks=True, band=((0, 0.5, 1.5),))
    svg = plot.figure("two & more", [plot.Panel("first", (line,), rules=((2.0, "here"),))] * 4, below="a note")
    assert {"two & more", "first", "a < b", "here", "a note", "epoch"} <= set(texts(svg))
    assert "prefers-color-scheme:dark" in svg
    assert svg.count("<circle") == 8  # the point that is no number is left out
    assert "nan" not in svg
    assert 'viewBox="0 0 1200 ' in svg


def test_a_plot_without_points() -> None:
    assert "no runs" in texts(plot.figure("empty", [plot.Panel("p", (plot.Line("x", ()),))]))
    flat = plot.figure("flat", [plot.Panel("p", (plot.Line("x", ((1, 2), (1, 2))),))])
    assert "inf" not in flat


@pytest.mark.parametrize(("low", "high"), [(0, 1e-9), (-3, 7), (1e5, 1.00001e5), (0, 100)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = round_ticks(low, high, plot.ABOUT)
    assert 3 <= len(found) <= 7
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in found)


def test_logarithmic_axes_say_powers_of_ten() -> None:
    line = plot.Line("a", ((0, -25.0), (1, 50.0)))
    words = set(texts(plot.figure("t", [plot.Panel("p", (line,), y="log")])))
    assert {"10⁻²⁰", "1", "10⁴⁰"} <= words
    share = plot.Panel("p", (plot.Line("a", ((0, 0.1), (1, 0.9))),), y="%")
    assert {"20 %", "80 %"} <= set(texts(plot.figure("t", [share])))
    narrow = plot.Panel("p", (plot.Line("a", ((0, 2.6), (1, 3.4))),), y="log")
    assert {"500", "1,000", "2,000"} <= set(texts(plot.figure("t", [narrow])))


def test_what_lies_below_the_floor_is_cut_off() -> None:
    lines = (plot.Line("a", ((0, 3.0), (1, -300.0))),)
    svg = plot.figure("t", [plot.Panel("p", lines, y="log", floor=-10.0)])
    assert 'clip-path="url(#in)"' in svg
    assert "10⁻¹⁰⁰" not in svg and "10⁻¹⁰⁰" in plot.figure("t", [plot.Panel("p", lines, y="log")])


def test_a_path_ends_where_its_last_point_is() -> None:
    points = tuple((x, math.sin(x)) for x in range(100))
    svg = plot.figure("t", [plot.Panel("p", (plot.Line("a", points, marks=True),))])
    (path,) = re.findall(r'class="line h0" d="M([^"]*l[^"]*)"', svg)
    steps = re.findall(r"(-?[\d.]+) ?(-?[\d.]+)", path.replace("l", " "))
    x, y = (sum(float(step[k]) for step in steps) for k in (0, 1))
    cx, cy = re.findall(r'<circle[^>]*cx="([\d.]+)" cy="([\d.]+)"', svg)[-1]
    assert x == pytest.approx(float(cx), abs=0.11) and y == pytest.approx(float(cy), abs=0.11)


def test_figures_whose_runs_are_there(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main([str(finished), str(tmp_path)]) == 0
    out = capsys.readouterr().out
    drawn = {path.stem for path in tmp_path.glob("*.svg")}
    assert drawn == {"fig1", "fig2", "optimizers", "norms", "affine", "count"}
    assert "never near" not in (tmp_path / "fig1.svg").read_text(encoding="utf-8")  # what is said of other results
    assert "fig3: its runs are not there" in out
    for path in tmp_path.glob("*.svg"):
        words = texts(path.read_text(encoding="utf-8"))
        assert any("balanced" in w for w in words)
        assert any("Jacobian" in w for w in words)


def test_every_figure_has_its_groups_and_a_sentence() -> None:
    known = {name for spec in load_plan() for name in (spec.group, spec.name)}
    assert set(figures.NEEDS) == set(figures.ALL)
    for name, needed in figures.NEEDS.items():
        assert set(needed) <= known
        assert (figures.ALL[name].__doc__ or "").endswith(".")


def test_titles_fit_their_panels() -> None:
    found = results.load()
    for name, draw in figures.ALL.items():
        made = draw(found)
        assert made and max(len(panel.title) for panel in made) <= 46, name


def test_curves_are_those_of_the_file(finished: Path) -> None:
    run = results.load(finished)["nets/mlp-adam"]
    assert [x for x, _ in run.gap()] == [0, 1, 2]
    last = run.epochs[-1]
    assert run.gap()[-1][1] == pytest.approx(last["train"][1] - last["test"][1])
    assert run.reading("point")[-1] == (2.0, run.data["readings"]["2"]["point"]["upper"])
    assert run.total("log10_P_w")[-1][1] == pytest.approx(sum(run.column("norm", k)[-1][1] for k in range(4)), abs=0.01)
    assert not run.diverged
    # the bound holds over the slope found, both at the samples of the reading
    assert run.reading("point", "lower")[-1][1] <= run.reading("point")[-1][1]


def test_tables_go_between_their_markers(finished: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(table.README.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):  # a second time changes nothing
        assert table.main([str(finished), "--readme", str(readme)]) == 0
        text = readme.read_text(encoding="utf-8")
    main, _, rest = text.partition("<!-- end nets -->")
    rows = [line.split(" | ") for line in main.splitlines() if line.startswith("| MLP |")]
    assert [row[1] for row in rows] == ["Adam, L2 0.0001", "SGD 0.0001", "Adam, no decay"]
    assert {len(row) for row in rows} == {16}
    counted = rest.partition("<!-- table count -->")[2].partition("<!-- end count -->")[0].splitlines()[3:]
    assert [line[:5] for line in counted] == ["| 0 |", "| 2 |"] and "±" in counted[0]
    assert "| MLP | layer | 2 |" in rest
    with pytest.raises(ValueError, match="no <!-- table other -->"):
        study.between("nothing", "other", "x")


def test_a_reading_that_is_older_than_the_run_says_so(finished: Path) -> None:
    run = results.load(finished)["nets/mlp-adam"]
    run.data["readings"].pop("2")
    assert "(epoch 0)" in table.nets({"nets/mlp-adam": run})


def test_products_come_from_the_readings_where_an_estimate_failed(finished: Path) -> None:
    run = results.load(finished)["nets/mlp-adam"]
    assert len(run.total("log10_P_w")) == 3 and not run.read_at(run.total("log10_P_w"))
    run.epochs[-1]["totals"]["log10_P_w"] = "nan"
    run.data["readings"]["2"]["point"]["published"]["log10_P_w"] = -62.4
    assert run.total("log10_P_w")[-1] == (2, -62.4) and run.read_at(run.total("log10_P_w"))
    assert " −62.40 " in table.nets({"nets/mlp-adam": run})
    run.epochs[-1]["columns"]["norm"][0] = 1e6  # more than any layer of this Frobenius norm has
    assert [x for x, _ in run.column("norm", 0)] == [0, 1]
    run.epochs[-1]["totals"]["jacobian_max"] = 0.0
    assert " −∞ " in table.nets({"nets/mlp-adam": run})


def test_the_gap_at_a_training_accuracy(finished: Path) -> None:
    run = results.load(finished)["nets/mlp-adam"]
    for epoch, (train, test) in zip(run.epochs, ((0.2, 0.2), (0.4, 0.3), (0.6, 0.4)), strict=True):
        epoch["train"][1], epoch["test"][1] = train, test
    assert run.gap_at(0.5) == pytest.approx(0.15)
    assert math.isnan(run.gap_at(0.9))


def test_correlation_and_slope_with_their_errors() -> None:
    r, error, slope, slope_error = table.correlation([(0, 1.0), (1, 3.0), (2, 5.0), (3, 7.0)])
    assert (r, error, slope, slope_error) == pytest.approx((1, 0, 2, 0), abs=1e-6)
    r, error, slope, slope_error = table.correlation([(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0)])
    # least squares by hand: slope 0.2, residual sum of squares 0.8, standard error √(0.8 / 2 / 5)
    assert r == pytest.approx(math.sqrt(0.2)) and slope == pytest.approx(0.2)
    assert slope_error == pytest.approx(math.sqrt(0.08)) and error == pytest.approx(math.sqrt(0.4))

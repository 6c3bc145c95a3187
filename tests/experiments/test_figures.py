"""Figures and tables from small results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from experiments import plot
from experiments.than2025 import figures, results, table
from experiments.than2025.plan import load as load_plan


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_plot_says_what_it_shows_in_light_and_dark() -> None:
    line = plot.Line("a < b", ((0, 1.0), (1, float("nan")), (2, 3.0)), marks=True, band=((0, 0.5, 1.5),))
    svg = plot.figure("two & more", [plot.Panel("first", (line,), rules=((2.0, "here"),))] * 4, note="a note")
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
    found = plot.ticks(low, high)
    assert 3 <= len(found) <= 7
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in found)


def test_figures_whose_runs_are_there(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main([str(finished), str(tmp_path)]) == 0
    out = capsys.readouterr().out
    drawn = {path.stem for path in tmp_path.glob("*.svg")}
    assert drawn == {"fig1", "fig2", "optimizers", "norms", "affine", "count"}
    assert "fig3: its runs are not there" in out
    for path in tmp_path.glob("*.svg"):
        words = texts(path.read_text(encoding="utf-8"))
        assert path.stat().st_size < 200_000
        assert any("balanced" in w for w in words)
        assert any("Jacobian" in w for w in words)


def test_every_figure_has_its_groups_and_a_sentence() -> None:
    groups = {spec.group for spec in load_plan()}
    assert set(figures.NEEDS) == set(figures.ALL)
    for name, needed in figures.NEEDS.items():
        assert set(needed) <= groups
        assert (figures.ALL[name].__doc__ or "").endswith(".")


def test_titles_fit_their_panels(finished: Path) -> None:
    found = results.load(finished)
    for draw in figures.ALL.values():
        svg = draw(found) or "<svg/>"
        titles = re.findall(r'class="title"[^>]*>([^<]*)<', svg)
        assert all(len(title) <= 46 for title in titles), titles


def test_curves_are_those_of_the_file(finished: Path) -> None:
    run = results.load(finished)["nets/mlp-adam"]
    assert [x for x, _ in run.gap()] == [0, 1, 2]
    last = run.epochs[-1]
    assert run.gap()[-1][1] == pytest.approx(last["train"][1] - last["test"][1])
    assert run.reading("point")[-1] == (2.0, run.data["readings"]["2"]["point"]["upper"])
    assert run.total("log10_P_w")[-1][1] == pytest.approx(
        sum(y for _, y in (run.column("norm", k)[-1:][0] for k in range(4))), abs=1e-3
    )
    assert not run.diverged
    # the bound holds over the slope found, both at the samples of the reading
    assert run.reading("point", "lower")[-1][1] <= run.reading("point")[-1][1]


def test_tables_go_between_their_markers(finished: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(table.README.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):  # a second time changes nothing
        assert table.main([str(finished), "--readme", str(readme)]) == 0
        text = readme.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| MLP |")]
    assert [row[1] for row in rows] == ["Adam, L2 0.0001", "SGD 0.0001", "Adam, no decay"]
    assert len({len(row) for row in rows} | {len(table.HEADERS)}) == 1
    counted = [line for line in text.splitlines() if line.startswith("| batch |")]
    assert len(counted) == 2 and " 2 | " in counted[0] and "±" in counted[0]
    assert "mlp-norms/mlp-layer" in text
    with pytest.raises(ValueError, match="no <!-- table other -->"):
        table.between("nothing", "other", "x")


def test_a_reading_that_is_older_than_the_run_says_so(finished: Path) -> None:
    run = results.load(finished)["nets/mlp-adam"]
    run.data["readings"].pop("2")
    assert "(epoch 0)" in table.nets({"nets/mlp-adam": run})


def test_committed_results_are_whole() -> None:
    for name, run in results.load().items():
        assert run.spec.name == name
        assert run.data["environment"]["torch"]
        assert [e["epoch"] for e in run.epochs] == list(range(len(run.epochs)))
    size = sum(path.stat().st_size for path in results.FOLDER.glob("*.json"))
    assert size < 10 * 2**20

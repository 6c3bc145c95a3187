"""Every quantity of runs over the steps as files: which there are, what is marked, and that no words overlap."""

from __future__ import annotations

import math

import pytest

from normgauge.core import store
from normgauge.render.figures import standalone, write_drawings
from normgauge.render.runs_data import labelled_runs
from normgauge.render.runs_figures import run_drawings, run_style
from normgauge.render.svg import TINY, text_width
from tests.core.store.made import header, step, written
from tests.render.drawings import nodes
from tests.render.networks import residual


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    place = tmp_path_factory.mktemp("two")
    names = ("a-run-with-a-name-that-is-far-too-long-for-a-legend" * 2, "b")
    return labelled_runs([store.read(written(place / name, steps=30, blocks=6, seed=len(name))) for name in names])


def boxes(drawing: str) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of every text."""
    found = []
    for node in nodes(drawing, "text"):
        wide = text_width("".join(node.itertext()), TINY)
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        left = {"end": x - wide, "middle": x - wide / 2}.get(node.get("text-anchor", ""), x)
        found.append((left, left + wide, y - TINY, y))
    return found


def test_two_runs_have_every_total_together_and_their_columns_each(two):
    names = [name for name, _ in run_drawings(two)]
    assert {"loss", "P_w", "prod_inv_sigma", "log10_folded", "gradient", "lr", "norm_lower-b"} <= set(names)
    assert len(names) == len(set(names)) and sum(name.startswith("sigma_rms") for name in names) == 2


def test_no_words_overlap_or_leave_the_drawing(two):
    for name, drawing in run_drawings(two):
        found = boxes(drawing)
        for i, (left, right, top, bottom) in enumerate(found):
            assert left >= 0 and right <= 640, name
            for other in found[:i]:
                apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
                assert apart, (name, i)


def test_what_is_not_finite_is_marked(tmp_path):
    writer = store.create(tmp_path, header(1))
    for number in range(1, 9):
        record = step(number, 3)
        record["columns"]["gradient"][0] = math.nan if number > 4 else 1.0
        record["totals"]["log10_folded"] = math.inf if number == 6 else 1.0
        writer.append(record)
    writer.close()
    drawn = dict(run_drawings(labelled_runs([store.read(tmp_path)])))
    for name in ("gradient-2", "log10_folded"):
        assert ">not finite</text>" in drawn[name] and nodes(drawn[name], "polygon", "alarmed"), name


def test_capacity_is_the_bracket_of_the_full_readings(tmp_path):
    writer = store.create(tmp_path, header(1))
    for number in (1, 2, 3):
        writer.append(step(number, 3))
        writer.append({"kind": "reading", "step": number, "reading": residual().to_json()})
    writer.append({"kind": "reading", "step": 3, "reading": {}})
    writer.close()
    drawn = dict(run_drawings(labelled_runs([store.read(tmp_path)])))["capacity"]
    assert len(nodes(drawn, "circle", "dot")) == 3 and nodes(drawn, "polygon", "band")


def test_files_bring_their_colours(two, tmp_path):
    drawn = run_drawings(two)
    found = write_drawings(drawn[:2], tmp_path, ("svg", "png"), run_style())
    assert [path.suffix for path in found] == [".svg", ".png"] * 2
    text = standalone(drawn[0][1], run_style())
    assert "var(" not in text and ".fig .curve.c1{fill:none;stroke:#c8553d" in text

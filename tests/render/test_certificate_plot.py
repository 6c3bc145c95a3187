"""Pictures of a certificate: every bound on one axis, and the terms of one."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

import pytest

from normgauge.core.certificate import RowKind
from normgauge.render.certificate_plot import (
    TOTAL,
    certificate_overview,
    describe_overview,
    describe_row_bar,
    drawn_rows,
    share_ticks,
    shows_limit,
    sides,
    stackable_rows,
    term_axis,
    term_bars,
    term_stack,
)
from normgauge.render.certificate_words import (
    adds_up,
)
from normgauge.render.svg import NARROW, WIDE
from tests.made_certificates import (
    CLOPPER,
    DISAGREE,
    ENDLESS,
    FEATURE,
    FULL,
    GIBBS,
    KL,
    NEARLY,
    NOT_HERE,
    NOTHING,
    PUBLISHED,
    SCORES,
    SPECTRAL,
    summed,
)

SVG = "{http://www.w3.org/2000/svg}"


def drawn(figure: str) -> ElementTree.Element:
    return ElementTree.fromstring(figure[figure.index("<svg") : figure.index("</svg>") + 6])


def bars(root: ElementTree.Element) -> list[tuple[str, float, float]]:
    """Class, start and end of every bar, without the legend."""
    groups = root.iter(f"{SVG}g")
    boxes = [group.findall(f"{SVG}rect")[1] for group in groups]
    return [(b.attrib["class"], float(b.attrib["x"]), float(b.attrib["x"]) + float(b.attrib["width"])) for b in boxes]


def limit(root: ElementTree.Element) -> float:
    return next(float(n.attrib["x1"]) for n in root.iter(f"{SVG}line") if n.attrib["class"] == "balanced")


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_every_bound_has_a_bar_and_only_bounds_end_before_the_limit(shape):
    root = drawn(certificate_overview(FULL.rows, shape))
    rows = drawn_rows(FULL.rows)
    assert len(bars(root)) == len(rows) == 12
    for row, (kind, start, end) in zip(rows, bars(root), strict=True):
        assert (end < limit(root)) == (row.kind is RowKind.BOUND), row.key
        assert kind == ("other" if row.kind is RowKind.VACUOUS else "norm" if row.about == "this network" else "mixed")
        assert start < end <= shape.width
    mine = [end for kind, _, end in bars(root) if kind == "norm"]
    assert mine == sorted(mine) and mine[-1] > mine[0] + 30


def test_a_bar_is_told_in_words_and_so_is_the_picture():
    titles = [node.text for node in drawn(certificate_overview(FULL.rows)).iter(f"{SVG}title")]
    assert titles[0] == ("hold-out, Clopper–Pearson: bound, error of this network at most 2.24 %, confidence 95 %")
    unfinished = replace(GIBBS, kind=RowKind.VACUOUS, value=0.5468, reason="at least this, even with no error on D")
    assert describe_row_bar(unfinished).endswith("vacuous, no bound was worked out, as it would be ≥ 54.6 %")
    assert "at most" not in describe_row_bar(unfinished)
    assert describe_row_bar(GIBBS).endswith(
        "error of this network with Gaussian noise on its weights at most 31.0 %, confidence 95 %"
    )
    assert describe_overview(drawn_rows(FULL.rows)).startswith("7 bounds and 5 vacuous rows")
    assert describe_overview(drawn_rows(NOTHING.rows[:2])) == "0 bounds and 2 vacuous rows on a logarithmic axis."
    assert drawn(certificate_overview(FULL.rows)).attrib["aria-label"] == describe_overview(drawn_rows(FULL.rows))


def test_infinite_rows_point_off_the_edge_and_nothing_is_nothing():
    assert len(list(drawn(certificate_overview(FULL.rows)).iter(f"{SVG}polygon"))) == 1
    assert certificate_overview((*SCORES, *NOT_HERE)) == "" and certificate_overview(()) == ""
    bare = replace(PUBLISHED, value=None, terms=())
    assert len(bars(drawn(certificate_overview((bare,))))) == 1


@pytest.mark.parametrize("shares", [[0.02], [1e-9, 1e300], [0.5, math.inf, 0.0], [1.0], [2.0, 30.0]], ids=str)
def test_the_two_sides_meet_at_the_limit(shares):
    axis = sides(shares, 100.0, 500.0)
    assert axis.at(1.0) == pytest.approx(320.0)
    assert all(100 <= axis.at(share) <= 500 for share in shares) and axis.at(0.0) == 100
    assert axis.at(0.5) < 320 < axis.at(2.0)
    ticks = share_ticks(axis)
    assert 3 <= len(ticks) <= 9 and any(words == "100 %" for _, words in ticks)
    assert all(after[0] > before[0] for before, after in pairwise(ticks))


def test_a_stack_shows_what_makes_a_row_vacuous():
    root = drawn(term_stack(PUBLISHED))
    kinds = [node.attrib["class"] for node in root.iter(f"{SVG}rect")]
    assert kinds == ["norm", "weight", "norm", "other"]
    ends = [float(n.attrib["x"]) + float(n.attrib["width"]) for n in root.iter(f"{SVG}rect")]
    assert ends[0] < ends[2] < limit(root) < ends[1] <= ends[3]
    assert "logarithmic" in term_stack(PUBLISHED) and "10<sup>2.52</sup>" in term_stack(PUBLISHED)
    assert root.attrib["aria-label"].startswith("Terms of Theorem 20 as published: training loss 0.300 %")


def test_an_even_stack_goes_on_where_the_term_before_ended():
    rects = [(float(n.attrib["x"]), float(n.attrib["width"])) for n in drawn(term_stack(FEATURE)).iter(f"{SVG}rect")]
    assert rects[1][0] == pytest.approx(sum(rects[0]), abs=0.2) and rects[2][0] == pytest.approx(sum(rects[1]), abs=0.2)
    assert sum(rects[2]) == pytest.approx(sum(rects[3]), abs=0.2)
    assert "logarithmic" not in term_stack(FEATURE) and limit(drawn(term_stack(FEATURE))) > sum(rects[3])
    assert "far from 100 %" in term_stack(DISAGREE) and "balanced" not in term_stack(DISAGREE)
    assert len(list(drawn(term_stack(ENDLESS)).iter(f"{SVG}polygon"))) == 2  # the term and the total
    early, late = (drawn(term_stack(row)) for row in (NEARLY, FEATURE))
    assert limit(early) < limit(late)


def test_terms_that_add_up_are_parts_whether_it_is_said_or_not():
    silent = replace(NEARLY, additive=False)
    assert adds_up(silent) and stackable_rows((silent,)) == [silent]
    assert not adds_up(SPECTRAL) and not adds_up(CLOPPER) and not adds_up(KL)
    assert adds_up(replace(ENDLESS, additive=False))


def test_an_even_waterfall_is_stacked_and_a_wide_one_starts_at_the_left():
    found = term_bars(FEATURE)
    assert [step.name for step in found] == ["training loss", "Lipschitz term", "slack", TOTAL]
    assert found[1].start == found[0].end and found[2].end == pytest.approx(found[3].end)
    assert not any(step.culprit for step in found)
    wide = term_bars(PUBLISHED)
    assert all(step.start == 0 for step in wide) and [step.culprit for step in wide] == [False, True, False, False]
    assert term_axis(PUBLISHED).logarithmic and not term_axis(FEATURE).logarithmic
    assert [step.culprit for step in term_bars(NEARLY)] == [False, True, False, False]
    small = term_bars(summed("s", "s", "f", {"one": 0.6, "other": 0.7}))
    assert [step.culprit for step in small] == [False, True, False]  # neither alone, so the larger
    both = term_bars(summed("b", "b", "f", {"one": 2.0, "other": 3.0, "slack": 0.1}))
    assert [step.culprit for step in both] == [True, True, False, False]
    assert term_bars(replace(NEARLY, value=None))[-1].value == pytest.approx(1.55)


def test_an_axis_holds_the_limit_unless_it_is_far():
    assert shows_limit(FEATURE) and shows_limit(PUBLISHED) and not shows_limit(DISAGREE)
    axis = term_axis(PUBLISHED)
    assert 0 < axis.at(0.003) < axis.at(0.086) < axis.at(1.0) < axis.at(327.0) < axis.at(math.inf) == 1.0
    assert axis.at(0.0) == 0.0 == axis.at(1e-9)
    assert term_axis(ENDLESS).at(math.inf) == 1.0 and term_axis(DISAGREE).at(math.inf) == 1.0
    negative = summed("n", "n", "f", {"loss": 0.6, "credit": -0.3})
    assert 0 <= term_axis(negative).at(0.0) < term_axis(negative).at(0.3) < term_axis(negative).at(0.6) <= 1

"""The bracket as a drawing: a row a reading, from the slope found to the bounds."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from normgauge.core.bound import Evidence, Scope
from normgauge.core.spelled import LN10
from normgauge.render.bracket import BracketRow, bracket, bracket_figure
from normgauge.render.page import bracket_rows
from normgauge.render.svg import NARROW, WIDE
from tests.render.drawings import nodes, words
from tests.render.networks import endless, residual


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_the_bracket_draws_every_row_from_found_to_at_most(shape):
    rows = [BracketRow("here", residual(), "now"), BracketRow("there", residual(log_upper=3 * LN10), "beside")]
    drawing = bracket(rows, shape)
    own, other = nodes(drawing, "rect", "strong")[0], nodes(drawing, "rect", "reference")[0]
    assert float(other.get("width", "0")) / float(own.get("width", "1")) == pytest.approx(1.75 / 0.35, rel=0.02)
    assert {"here", "there", "17.78 to 39.82", "17.78 to 1,000"} <= set(words(drawing))
    assert len(nodes(drawing, "g", "beside")) == 1


def test_the_bracket_runs_off_the_edge_where_there_is_no_end():
    drawing = bracket([BracketRow("open", endless()), BracketRow("none found", residual(log_lower=-math.inf))])
    assert len(nodes(drawing, "polygon", "open")) == 2
    assert "17.78, no finite bound" in words(drawing) and "0 to 39.82" in words(drawing)
    assert [len(nodes(drawing, "line", kind)) for kind in ("found", "balanced")] == [
        2,
        2,
    ]  # one a row less, and the key


def test_the_key_of_the_bracket_names_both_ticks_and_references_where_there_are_any():
    alone, compared = (
        bracket([BracketRow("a", residual()), BracketRow("b", residual(), kind)]) for kind in ("", "beside")
    )
    for name in ("found", "at most", "the truth lies between"):
        assert name in words(alone)
    assert "the median sample" not in words(alone)
    assert "for comparison" in words(compared) and "for comparison" not in words(alone)
    upright = [n for n in nodes(alone, "line", "solid") if n.get("x1") == n.get("x2")]
    assert len(upright) == 2 * 2 + 2  # two a row and two in the key


def test_the_bracket_speaks_in_factors_alone():
    told = words(bracket([BracketRow("a", residual())]))
    assert "how many times a small change grows, logarithmic" in told and not [word for word in told if "log10" in word]
    assert {"18", "20", "30"} <= set(told) or {"20", "30", "40"} <= set(told)  # every line of the grid has its number


def test_the_figure_of_two_networks_has_their_medians_and_nothing_that_depends_on_the_gauge():
    def made(name, middle, most):
        ends = [most - 0.5, middle, middle, middle, most]
        rows = tuple({"index": i, "log10_lower": e, "log10_upper": e + 1e-8} for i, e in enumerate(ends))
        return residual(samples=rows, log_lower=most * LN10, log_upper=(most + 1e-8) * LN10, weights=f"sha256:{name}")

    drawing = bracket([BracketRow("bn", made("a", 1.1, 1.2)), BracketRow("ln", made("b", 0.9, 1.3))])
    told = words(drawing)
    assert "at the steepest of 5 samples and at their median; one training of each" in " ".join(told)
    assert "15.849; median 12.589" in told and "19.953; median 7.9433" in told
    assert not {"up to folded", "layer by layer", "the truth lies between"} & set(told)
    found, most = (nodes(drawing, "line", kind)[0] for kind in ("found", "balanced"))
    assert found.get("y1") == most.get("y1") and found.get("y2") != most.get("y2")  # neither hides the other


def test_powers_of_ten_are_raised_in_a_drawing_and_plain_in_its_label():
    drawing = bracket([BracketRow("a", residual(log_upper=15.06 * LN10))])
    assert [n.text for n in nodes(drawing, "tspan", "sup")] == ["4", "6", "8", "10", "12", "14", "15.06"]
    assert "17.78 to 1015.06" in words(drawing)
    assert "at most 10^15.06" in (ElementTree.fromstring(drawing).get("aria-label") or "")


def seen(*slopes, **changes):
    """A reading at the samples, whose bound is closed."""
    rows = tuple({"index": i, "log10_lower": s, "log10_upper": s + 1e-9} for i, s in enumerate(slopes))
    ends = {"log_lower": max(slopes) * LN10, "log_upper": (max(slopes) + 1e-9) * LN10}
    return residual(samples=rows, **ends, **changes)


def caption(*rows):
    return next(line for line in words(bracket(rows)) if "how many times" in line)


def test_the_caption_says_of_the_samples_what_does_not_hold_of_all_rows():
    point, anywhere = seen(*[1.0] * 6), residual(scope=Scope.parse("global"))
    assert caption(BracketRow("a", point)).endswith(", at the steepest of 6 samples and at their median")
    mixed = caption(BracketRow("a: point", point), BracketRow("a: global", anywhere))
    assert mixed.endswith("; at the samples: the steepest of 6 samples and their median")
    other = caption(BracketRow("a", point), BracketRow("b", seen(*[1.0] * 7)))  # not as many, so others
    assert other.startswith("measured on different samples: not to be compared at them")


def test_a_figure_of_different_samples_says_that_they_are_not_to_be_compared():
    rows = [BracketRow(name, seen(*[1.0] * 6, batch=f"sha256:{name}")) for name in "ab"]
    assert caption(*rows).startswith("measured on different samples: not to be compared")
    assert "different samples: not to be compared" in words(bracket(rows, NARROW))
    assert "different samples" not in caption(rows[0], rows[0])


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_several_trainings_share_a_row_with_a_dot_each(shape):
    trained = [seen(*[0.9 + 0.02 * i] * 5, 1.1 + 0.1 * i, weights=f"sha256:{i}") for i in range(5)]
    drawing = bracket([BracketRow("bn", trained[0], others=tuple(trained[1:]))], shape)
    assert len(nodes(drawing, "g", "row")) == 1
    assert [len(nodes(drawing, "circle", kind)) for kind in ("steepest", "typical")] == [6, 6]  # five and the key
    told = words(drawing)
    assert "median 8.7096 (7.9433 to 9.5499)" in told
    assert {"8", "10", "15", "20", "30"} <= set(told) or {"10", "15", "20", "30"} <= set(told)
    if shape.wide:
        assert "steepest 19.953 (12.589 to 31.623)" in told and "a dot is one training" in " ".join(told)
    open_still = [residual(log_upper=log * LN10) for log in (2.0, 3.0, math.inf)]
    drawing = bracket([BracketRow("bn", open_still[0], others=tuple(open_still[1:]))], shape)
    assert {"found 17.78 (17.78 to 17.78)", "at most 1,000 (100 to infinite)"} <= set(words(drawing))
    assert len(nodes(drawing, "polygon", "open")) == 1  # where there is no end


def test_a_narrow_figure_keeps_every_label_and_number_of_several_trainings():
    trained = [seen(*[0.9 + 0.02 * i] * 5, 1.1 + 0.1 * i, weights=f"sha256:{i}") for i in range(3)]
    wide = [residual(scope=Scope.parse("global"), log_upper=log * LN10) for log in (7.9, 8.0, 8.1)]
    rows = [BracketRow(f"LayerNorm, {r[0].scope}", r[0], others=tuple(r[1:])) for r in (trained, wide)]
    drawing = bracket(rows, NARROW)
    told = {*words(drawing)}
    assert {"LayerNorm, point", "LayerNorm, global", "found 17.78 (17.78 to 17.78)"} <= told
    assert {"steepest 15.849 (12.589 to 19.953)", "median 8.3176 (7.9433 to 8.7096)"} <= told
    lines = [n for n in nodes(drawing, "text") if "ink" in n.get("class", "") or "soft" in n.get("class", "")]
    places = [(n.get("y"), n.get("text-anchor")) for n in lines]
    assert len(set(places)) == len(places)  # no two on one line from one side


def test_the_key_says_found_of_what_was_found_and_truth_of_what_is_enclosed():
    wide = [residual(log_upper=log * LN10) for log in (2.0, 3.0)]
    told = words(bracket([BracketRow("a", wide[0], others=(wide[1],))]))
    assert {"the steepest slope found in a training", "the median of the dots", "the truth lies between"} <= {*told}
    rough = residual(evidence=Evidence.ESTIMATED)
    assert "from found to at most" in words(bracket([BracketRow("a", rough)]))
    assert "Where the truth lies" in bracket_figure([BracketRow("a", wide[0])])
    assert "truth" not in re.sub('class="[^"]*"', "", bracket_figure([BracketRow("a", rough)]))


def test_what_was_not_found_is_not_said_to_be_in_the_label():
    wide = [residual(log_upper=log * LN10) for log in (2.0, 3.0, 4.0)]
    label = ElementTree.fromstring(bracket([BracketRow("a", wide[0], others=tuple(wide[1:]))])).get("aria-label")
    assert label == "Slopes found and bounds: a: found 17.78 (17.78 to 17.78); at most 1,000 (100 to 10,000)."
    drawing = bracket([BracketRow("a", wide[0])])
    assert {n.text for n in nodes(drawing, "title")} == {"a: found 17.78, at most 100"}
    unknown = bracket([BracketRow("a", residual(evidence=Evidence.UNKNOWN, log_upper=math.inf))])
    assert "17.78, no known bound" in words(unknown) and "no finite bound" not in unknown


def test_rows_of_files_that_contradict_themselves_are_not_drawn():
    torn = residual(edited=True, log_refuted=0.0, log_upper=math.inf, evidence=Evidence.REFUTED)
    assert bracket_figure([BracketRow("torn", torn)]) == ""
    drawn = bracket_figure(bracket_rows([("a", "a (1)", torn), ("a", "a (2)", residual()), ("torn", "torn", torn)]))
    assert "torn" not in drawn and "a: found 17.78, at most 39.82" in drawn


def test_a_dot_says_of_which_training_it_is():
    both = [seen(*[1.0] * 5, 1.1, weights=f"sha256:{i}") for i in range(2)]
    drawing = bracket(bracket_rows([("bn", f"bn ({name})", r) for name, r in zip(("x", "y"), both, strict=True)]))
    assert {"bn (x): 12.589", "bn (y): 12.589"} <= {n.text for n in nodes(drawing, "title")}

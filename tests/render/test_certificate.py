"""A certificate in a terminal: one line a family, or every row, and what the best are made of."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from normgauge.core.certificate import Certificate, Consumed, Row, RowKind
from normgauge.render.certificate import (
    BAR,
    BEST,
    LIMIT,
    bar,
    by_class,
    certificate_blocks,
    certificate_text,
    family_grids,
    family_summary,
    listed_conditions,
    term_waterfall,
)
from normgauge.render.certificate_families import rows_by_family
from normgauge.render.certificate_page import certificate_html, certificate_notebook
from normgauge.render.certificate_plot import TOTAL, term_axis, term_bars
from normgauge.render.certificate_words import (
    promises,
    row_value,
)
from normgauge.render.console import draw_blocks
from normgauge.render.table import Grid
from tests.made_certificates import (
    ATTACK,
    CLIPPED,
    CLOPPER,
    DISAGREE,
    EMPTY,
    ENDLESS,
    FEATURE,
    FREE,
    FULL,
    HELD,
    KL,
    NEARLY,
    PUBLISHED,
    SCORES,
    bound,
    certificate,
    hostile,
    plain_row,
    small,
    summed,
)


def test_the_tables_hold_every_row_and_say_the_kind_in_words():
    grids = family_grids(FULL)
    assert sum(len(grid.rows) for grid in grids) == len(FULL.rows)
    held, *_ = grids
    assert held.title == "Hold-out" and held.rows[0][:5] == (
        "Clopper–Pearson", "BOUND", "2.24 %", "95 %", "hold-out labels",
    )  # fmt: skip
    kinds = {line[1] for grid in grids for line in grid.rows}
    assert kinds == {"BOUND", "vacuous", "estimate", "score", "not applicable"}
    assert all(("about" in grid.headers) == (grid.title == "PAC-Bayes") for grid in grids)


def test_every_family_gets_one_line_and_all_of_them_fit_a_small_terminal():
    grid = family_summary(FULL)
    assert [line[0] for line in grid.rows] == [name for name in rows_by_family(FULL.rows) if name != "score"]
    lines = {name: rest for name, *rest in grid.rows}
    assert lines["hold-out"] == ["2.24 %", "(1)", "Clopper–Pearson"]
    assert lines["PAC-Bayes"][2].startswith("not this network: this network with Gaussian n")
    assert lines["cells"][0] == "vacuous" and lines["cells"][2].startswith("largest term: Lipschitz term, 140 %")
    assert lines["compression"][0] == "·" and lines["compression"][2].startswith("the network depends on all")
    assert "All 20 rows (4 scores)" in grid.footer
    stream = io.StringIO()
    draw_blocks(certificate_blocks(FULL), stream, 80)
    printed = stream.getvalue().splitlines()
    assert len(printed) <= 32 and all(len(line) <= 80 for line in printed)
    assert printed[0].startswith("Promise: ")


def test_what_is_bounded_is_said_where_it_is_not_the_error():
    (line,) = family_summary(certificate(CLIPPED)).rows
    assert line == ("cells", "0.75", "(1)", "cross-entropy: Theorem 20, clipped cross-entropy")


def test_every_row_and_every_reason_with_all():
    full = certificate_text(FULL, every=True)
    names = {word for row in SCORES for word in row.name.split()}  # a narrow column wraps
    assert "Littlestone" in full and all(word in full for word in names) and full == FULL.text(every=True)
    assert "Littlestone" not in certificate_text(FULL)


def test_classes_have_a_table_and_the_worst_a_line():
    terms = (("class 0: 2 of 90 wrong", 0.08), ("class 1: 9 of 90 wrong", 0.19012), ("class 2: no sample", 1.0))
    row = bound("holdout.per_class", "Hold-out, class by class", "hold-out", 0.19012, HELD, terms=terms,
                quantity="error of the worst class met", reason="class 1: 9 of 90 wrong")  # fmt: skip
    c = certificate(CLOPPER, row, DISAGREE)
    assert family_summary(c).rows[:2] == (
        ("hold-out", "2.24 %", "(1)", "Clopper–Pearson"), ("worst class", "19.1 %", "(1)", "class 1: 9 of 90 wrong"),
    )  # fmt: skip
    assert ("class 1: 9 of 90 wrong", "19.1 %") in by_class(c)[0].rows
    assert "class 2: no sample" in certificate_text(c, every=True) and "class 2: no sample" not in certificate_text(c)
    assert by_class(FULL) == []


def test_bars_of_characters():
    lines = {name: drawn for name, _, drawn in term_waterfall(NEARLY).rows}
    limit = lines["training loss"].index(LIMIT)
    assert lines[TOTAL].index(LIMIT) == limit < len(lines[TOTAL]) <= BAR + 1
    assert lines["training loss"].startswith("█") and lines["slack"].index("█") > limit
    assert "█" in lines["Lipschitz term"][:limit] and "█" in lines["Lipschitz term"][limit:]
    assert LIMIT not in "".join(line[2] for line in term_waterfall(DISAGREE).rows)
    assert "far from 100 %" in term_waterfall(DISAGREE).footer and "logarithmic" in term_waterfall(ENDLESS).footer
    tiny = term_bars(summed("t", "t", "f", {"a": 1e-9, "b": 0.9, "c": 0.0}))
    axis = term_axis(summed("t", "t", "f", {"a": 1e-9, "b": 0.9, "c": 0.0}))
    assert bar(tiny[0], axis, True).startswith("█") and "█" not in bar(tiny[2], axis, True)  # there, and not there


def test_the_waterfalls_shown_are_of_different_families():
    holdout = replace(KL, terms=(("error", 0.02), ("price", 0.00291)), additive=True)
    aside = replace(holdout, family="PAC-Bayes", about="another", value=0.0001)
    c = certificate(aside, holdout, replace(holdout, key="k2"), DISAGREE, FEATURE, NEARLY)
    shown_grids = [p for p in certificate_blocks(c, every=True) if isinstance(p, Grid) and p.title.startswith("Where")]
    assert len(shown_grids) == BEST == 3  # none about another predictor
    assert [grid.title.split(": ")[1] for grid in shown_grids] == ["kl inverse", DISAGREE.name, FEATURE.name]


def test_the_terminal_shows_sentences_warnings_and_what_kinds_mean():
    told = certificate_text(FULL, every=True)
    assert told.index("Promise") < told.index("Warning: reading a sample") < told.index("Hold-out\n")
    assert "vacuous: A true bound that says nothing" in told and "Measured in eval mode." in told
    assert certificate_text(FULL) == str(FULL) and "Warning: reading a sample" in certificate_text(FULL)
    assert "Nothing can be promised" in certificate_text(EMPTY) and "vacuous:" not in certificate_text(
        EMPTY, every=True
    )


def test_a_terminal_without_rich_gets_plain_columns(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "Clopper–Pearson" in certificate_text(FULL) and "│ is 100 %" in certificate_text(FULL, every=True)


def test_a_narrow_terminal_loses_no_number():
    stream = io.StringIO()
    draw_blocks(certificate_blocks(FULL, every=True), stream, 60)
    joined = stream.getvalue()
    assert all(row_value(row) in joined for row in FULL.rows if row.kind not in (RowKind.NOT_APPLICABLE, RowKind.SCORE))


def test_no_width_crops_what_a_row_says():
    named = {
        "name": "PAC-Bayes with scale-free noise (Maurer)",
        "about": "a network drawn from a Gaussian around this one",
    }
    row = summed("g", "g", "PAC-Bayes", {"loss": 0.135, "divergence": 0.784}, consumed=(*CLOPPER.consumed, FREE))
    for width in range(60, 180):
        stream = io.StringIO()
        draw_blocks(certificate_blocks(certificate(replace(row, **named)), every=True), stream, width)
        table = stream.getvalue().partition("PAC-Bayes\n")[2].partition("Where")[0]
        assert table.count("%") == 3, width  # value, confidence, largest term


def test_hostile_names_are_printed_as_they_are():
    assert ATTACK in certificate_text(hostile(), every=True).replace("\n", "")


SAME, UNSEEN, FRESH = "new data come from the same source", "the encoder never saw train", "the inputs are fresh"


def resting() -> Certificate:
    """Two bounds that share a condition, and a row that promises nothing."""
    return small(
        plain_row("disagreement.surrogate", 0.3, condition=f"{SAME}; {FRESH}", consumed=(Consumed.UNLABELED,)),
        plain_row("features.theorem20.kl", 0.2, condition=f"{UNSEEN}; {SAME}"),
        replace(PUBLISHED, condition="never mind"),
    )


def test_the_promise_tells_its_conditions_in_words_and_every_other_bound_by_number():
    told = promises(resting())
    assert told[0].endswith(f", provided (1) {SAME}; (2) {FRESH}; this cannot be checked here.")
    assert told[-1].endswith("paid with nothing, provided (1), (3).")
    lines = {line[0]: line[2] for line in family_summary(resting()).rows}
    assert lines == {"feature cells": "(1)(3)", "cells": "(1)(2)"}
    assert listed_conditions(resting()) == [f"(3) only if {UNSEEN}"]
    assert [grid.rows[0][-1] for grid in family_grids(resting())] == [
        "holds only if (1), (3)", "holds only if (1), (2)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "drawn", [certificate_text, certificate_html, certificate_notebook], ids=lambda one: one.__name__
)
def test_each_condition_is_told_and_that_of_a_row_that_promises_nothing_is_not(drawn):
    told = " ".join(drawn(resting()).split())
    assert all(f"only if {clause}" in told or f"(1) {clause}" in told or f"(2) {clause}" in told
               for clause in (SAME, FRESH, UNSEEN))  # fmt: skip
    assert "(4)" not in told


def test_with_all_every_condition_is_listed_once_in_full():
    told = " ".join(certificate_text(resting(), every=True).split())
    assert told.count(UNSEEN) == 1 and listed_conditions(resting(), every=True) == [
        f"(1) only if {SAME}", f"(2) only if {FRESH}", f"(3) only if {UNSEEN}",
    ]  # fmt: skip
    assert "never mind" not in told


def test_tries_are_told():
    told = " ".join(certificate_text(small(CLOPPER, tries=7)).split())
    assert "delta 0.05 for 7 tries together" in told and "tries" not in certificate_text(small(CLOPPER))


def test_scores_are_counted_and_shown_with_all():
    score = Row("score.a", "alpha score", "score", RowKind.SCORE, 3.0)
    assert "alpha score" not in certificate_text(small(score)) and "All 1 rows (1 score)" in certificate_text(
        small(score)
    )
    assert "alpha score" in certificate_text(small(score), every=True)

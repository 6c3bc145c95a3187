"""A certificate in words and in a terminal: what is promised, and that nothing else sounds like a promise."""

from __future__ import annotations

import io
import math
import sys
from dataclasses import replace
from decimal import Decimal
from html import escape

import pytest

from normgauge.core.certificate import GUESSING, Certificate, Consumed, Row, RowKind
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
from normgauge.render.certificate_families import EXPLAINED, SPEAKING, ordered_rows, rows_by_family, speaking_row
from normgauge.render.certificate_page import certificate_html, certificate_notebook
from normgauge.render.certificate_plot import TOTAL, shows_limit, stackable_rows, term_axis, term_bars
from normgauge.render.certificate_words import (
    ONE_AT_A_TIME,
    adds_up,
    bare_number,
    certificate_sentences,
    format_amount,
    promises,
    row_confidence,
    row_name,
    row_reason,
    row_value,
)
from normgauge.render.console import draw_blocks
from normgauge.render.table import Grid
from tests.made_certificates import (
    ATTACK,
    CLIPPED,
    CLOPPER,
    DIRECT,
    DISAGREE,
    EMPTY,
    ENDLESS,
    FEATURE,
    FREE,
    FULL,
    GIBBS,
    HELD,
    HUGE,
    KL,
    NEARLY,
    NO_HOLDOUT,
    NOT_HERE,
    NOTHING,
    PUBLISHED,
    RESTS,
    SCORES,
    SPECTRAL,
    TIGHT_GIBBS,
    bound,
    hostile,
    summed,
)


def certificate(*rows: Row, **more: object) -> Certificate:
    return replace(FULL, rows=rows, warnings=(), **more)


def test_the_promise_is_the_hold_out_and_is_said_first():
    first, *rest = certificate_sentences(replace(FULL, warnings=()))
    assert first == (
        "Promise: on unseen data from the same source this network errs at most 2.24 % of the time, with 95 % "
        "confidence: hold-out, Clopper–Pearson, provided (1) the samples are independent; this cannot be checked here."
    )
    assert rest[0].startswith("Without hold-out labels: at most 11.0 %, with 95 % confidence: disagreement with")
    assert rest[0].endswith("paid with train labels and unlabeled data and extra training, provided (1).")
    assert rest[1].startswith("From the training data alone: at most 35.6 %")
    assert rest[2:] == ["2 bounds speak about another predictor made from this network, not about it.", ONE_AT_A_TIME]


def test_a_smaller_row_of_another_kind_does_not_take_the_place_of_the_hold_out():
    smaller = replace(DISAGREE, value=0.01)
    first, second, *_ = promises(certificate(smaller, CLOPPER))
    assert first.startswith("Promise: on unseen data") and "2.24 %" in first and "Clopper–Pearson" in first
    assert second.startswith("Without hold-out labels: at most 1.00 %")


def test_without_a_hold_out_the_next_in_the_order_is_the_promise():
    first, second, *_ = promises(NO_HOLDOUT)
    assert first.startswith("Promise:") and "11.0 %" in first and "disagreement" in first
    assert second.startswith("No labelled hold-out was given")


def test_which_row_speaks_does_not_depend_on_any_value():
    """A row that says nothing is not passed over for one that happens to say something."""
    silent = summed("disagreement.surrogate", "surrogate", "disagreement", {"a": 0.9, "b": 0.4})
    assert speaking_row((FEATURE, silent)) is silent
    told = promises(certificate(FEATURE, silent))
    assert told[0] == "Nothing can be promised: disagreement, surrogate, the row that speaks here, is vacuous."
    rows = [bound(key, key, "cells", 0.9 - index / 100) for index, key in enumerate(SPEAKING)]
    assert speaking_row(rows) is speaking_row(rows[::-1]) is rows[0] and rows[0].key == "holdout.clopper_pearson"
    assert len(set(SPEAKING)) == len(SPEAKING)
    unknown = [bound("b", "b", "x", 0.5), bound("a", "a", "x", 0.1)]
    assert (
        speaking_row(unknown) is unknown[0]
        and speaking_row([*unknown, PUBLISHED]) is PUBLISHED
        and speaking_row([]) is None
    )


def test_nothing_that_is_no_bound_on_this_network_is_promised():
    told = certificate_sentences(NOTHING)
    assert told[0].startswith("Nothing can be promised")
    assert "From the training data alone: no promise about this network." in told
    assert "1 bound speaks about another predictor made from this network, not about it." in told
    for row in (TIGHT_GIBBS, DIRECT, SCORES[0]):
        assert row.name not in " ".join(told) and row_value(row) not in " ".join(told)
    assert row_value(PUBLISHED) not in " ".join(told)


@pytest.mark.parametrize("row", [GIBBS, DIRECT, CLIPPED, PUBLISHED, SCORES[1]], ids=lambda row: row.key)
def test_one_row_that_is_no_promise_gives_no_promise(row):
    assert promises(certificate(row))[0].startswith("Nothing can be promised")


def test_from_the_training_data_alone_and_its_price():
    told = promises(certificate(FEATURE, CLOPPER))
    assert told[1] == (
        "From the training data alone: at most 35.6 %, with 95 % confidence: feature cells, Theorem 20 in feature "
        "space, our slack, paid with train labels, provided (1)."
    )
    free = bound("a", "free", "b", 0.5, ())
    assert promises(certificate(free))[-1].endswith("paid with nothing, provided (1).")
    assert ONE_AT_A_TIME not in certificate_sentences(certificate(CLOPPER))


def test_a_bound_from_unlabeled_data_is_not_called_one_from_training_data():
    row = bound("u", "unlabeled", "cells", 0.3, (Consumed.TRAIN_LABELS, FREE))
    told = promises(certificate(row))
    assert told[1].startswith("Without hold-out labels") and told[2].endswith("alone: no promise about this network.")


def test_warnings_are_announced_right_after_the_promise():
    assert promises(FULL)[1] == "The warnings below may take that promise away: read them first."
    assert "warnings" not in " ".join(promises(replace(FULL, warnings=())))


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.02239, "2.24 %"), (0.0224, "2.24 %"), (0.02240001, "2.25 %"), (0.05, "5.00 %"),
        (0.999, "99.9 %"), (0.99966, "99.966 %"), (1 - 1e-9, "below 100 %"), (1.0, "100 %"),
        (1.38, "138 %"), (9.999, "1000 %"), (10.0, "10^1.00"), (10.1, "10^1.01"), (6e5, "10^5.78"), (0.0, "0 %"),
        (math.inf, "infinite"), (3e-7, "3e-05 %"), (1e300, "10^300.00"),
    ],
    ids=str,
)  # fmt: skip
def test_a_bound_is_rounded_upwards(value, printed):
    assert format_amount(value, up=True) == printed


@pytest.mark.parametrize("seed", range(5))
def test_what_is_printed_is_never_below_the_bound(seed):
    for k in range(400):
        value = ((seed * 400 + k) * 0.6180339887) % 9.9
        printed = Decimal(format_amount(value, up=True).removesuffix(" %"))
        assert Decimal(repr(value)) * 100 <= printed <= Decimal(repr(value)) * 101 + Decimal("1e-3")


def test_other_numbers():
    assert format_amount(None) == bare_number(None) == bare_number(math.nan) == format_amount(math.nan) == "·"
    assert (
        format_amount(-0.02) == "-2.00 %"
        and format_amount(0.4, "loss") == "0.4"
        and format_amount(-math.inf) == "-infinite"
    )
    assert bare_number(-math.inf) == "-infinite" and bare_number(4.1e12) == "4.1e+12"
    assert row_value(SCORES[0]) == "3.351e+05" and row_value(DIRECT) == "3.85 %" and row_value(NOT_HERE[0]) == "·"
    assert row_confidence(SCORES[0]) == row_confidence(replace(NOT_HERE[0], confidence=0.95)) == "·"
    assert row_name(DISAGREE) == DISAGREE.name and row_name(KL) == "hold-out, kl inverse"


def test_rows_are_ordered_by_kind_then_value_and_scores_as_they_come():
    kinds = [row.kind for row in ordered_rows(FULL.rows)]
    assert kinds == sorted(kinds, key=list(dict.fromkeys(kinds)).index)
    assert list(dict.fromkeys(kinds)) == [
        RowKind.BOUND, RowKind.VACUOUS, RowKind.ESTIMATE, RowKind.SCORE, RowKind.NOT_APPLICABLE,
    ]  # fmt: skip
    bounds = [row for row in ordered_rows(FULL.rows) if row.kind is RowKind.BOUND]
    assert bounds == [CLOPPER, KL, DISAGREE, CLIPPED, FEATURE, TIGHT_GIBBS, GIBBS]  # by share of their limit
    vacuous = [row for row in ordered_rows(FULL.rows) if row.kind is RowKind.VACUOUS]
    assert vacuous == [NEARLY, PUBLISHED, SPECTRAL, HUGE, ENDLESS]
    assert [row for row in ordered_rows(FULL.rows) if row.kind is RowKind.SCORE] == list(SCORES)


def test_the_hold_out_stands_first_even_where_it_does_not_apply():
    absent = replace(CLOPPER, kind=RowKind.NOT_APPLICABLE, reason="no hold-out was given", value=None)
    assert next(iter(rows_by_family((FEATURE, DISAGREE, absent)))) == "hold-out"
    order = list(rows_by_family(FULL.rows))
    assert order == [
        "hold-out", "disagreement", "feature cells", "compression", "cells", "PAC-Bayes", "capacity", "score",
    ]  # fmt: skip


def test_why_names_the_largest_term_the_reason_and_the_samples_needed():
    assert row_reason(PUBLISHED) == "largest term: Lipschitz term, 10^2.51; says something from 12,000,000 samples on"
    assert "the error is at most 1 anyway" in row_reason(PUBLISHED, every=True)
    assert row_reason(CLIPPED).startswith("of the cross-entropy, which is at most 4; largest term: training loss, 0.4")
    assert row_reason(DIRECT) == DIRECT.reason
    assert row_reason(replace(NEARLY, needed=5 * 10**12)).endswith("140 %; says something from 10^12.70 samples on")
    assert row_reason(SPECTRAL) == SPECTRAL.reason  # its terms are no parts of it
    assert row_reason(KL) == f"holds only if {RESTS}" and row_reason(KL, numbers={RESTS: 3}) == "holds only if (3)"


def test_terms_that_add_up_are_parts_whether_it_is_said_or_not():
    silent = replace(NEARLY, additive=False)
    assert adds_up(silent) and stackable_rows((silent,)) == [silent]
    assert not adds_up(SPECTRAL) and not adds_up(CLOPPER) and not adds_up(KL)
    assert adds_up(replace(ENDLESS, additive=False))


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
    assert "Littlestone and" in full and all(row.name in full for row in SCORES) and full == FULL.text(every=True)
    assert "Littlestone and" not in certificate_text(FULL)


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


def plain_row(key, value, **more):
    family = "feature cells" if "features" in key else "cells"
    return Row(key, key, family, RowKind.BOUND, value, 0.95, **{"condition": RESTS, **more})


def made(*rows, **more):
    return Certificate("Net", 0.05, 100, 0, 0, 10, rows, **more)


def test_the_row_that_speaks_is_named_in_advance_not_the_smallest():
    rows = (plain_row("features.theorem20.variation", 0.1), plain_row("features.theorem20.kl", 0.2))
    first = certificate_sentences(made(*rows))[0]
    assert first.startswith("Promise: ") and "20.0 %" in first
    with_surrogate = (*rows, plain_row("disagreement.surrogate", 0.3))
    assert "30.0 %" in certificate_sentences(made(*with_surrogate))[0]


SAME, UNSEEN, FRESH = "new data come from the same source", "the encoder never saw train", "the inputs are fresh"


def resting() -> Certificate:
    """Two bounds that share a condition, and a row that promises nothing."""
    return made(
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
    assert "delta 0.05 for 7 tries together" in certificate_text(
        made(CLOPPER, tries=7)
    ) and "tries" not in certificate_text(made(CLOPPER))


def test_a_promise_worse_than_guessing_says_so():
    row = plain_row("holdout.clopper_pearson", 0.94)
    assert "no better than guessing: always naming the most frequent class errs 90.0 %" in " ".join(
        certificate_sentences(made(row, facts={GUESSING: 0.9}))
    )
    assert "guessing" not in " ".join(certificate_sentences(made(row, facts={GUESSING: 0.95})))


def test_scores_are_counted_and_shown_with_all():
    score = Row("score.a", "alpha score", "score", RowKind.SCORE, 3.0)
    assert "alpha score" not in certificate_text(made(score)) and "All 1 rows (1 score)" in certificate_text(
        made(score)
    )
    assert "alpha score" in certificate_text(made(score), every=True)


def test_every_family_is_explained_once_on_the_page():
    page = certificate_html(FULL)
    assert set(rows_by_family(FULL.rows)) <= set(EXPLAINED)
    for name in rows_by_family(FULL.rows):
        assert page.count(escape(EXPLAINED[name])) == 1, name

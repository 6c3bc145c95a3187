"""Which row speaks, and the order of rows and families."""

from __future__ import annotations

from dataclasses import replace

from normgauge.core.certificate import RowKind
from normgauge.render.certificate_families import SPEAKING, ordered_rows, rows_by_family, speaking_row
from normgauge.render.certificate_words import (
    promises,
)
from tests.made_certificates import (
    CLIPPED,
    CLOPPER,
    DISAGREE,
    ENDLESS,
    FEATURE,
    FULL,
    GIBBS,
    HUGE,
    KL,
    NEARLY,
    PUBLISHED,
    SCORES,
    SPECTRAL,
    TIGHT_GIBBS,
    bound,
    certificate,
    summed,
)


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

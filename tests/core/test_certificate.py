"""Rows and certificates as data: what may be called a bound, and the way to a file and back."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from normgauge.core.certificate import Certificate, Row, RowKind, promised_row
from normgauge.core.errors import InputError, ReadingError
from tests.made_certificates import CLOPPER, FULL, RESTS

ROW = Row("k", "n", "cells", RowKind.VACUOUS, 0.5, 0.95, condition=RESTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": RowKind.NOT_APPLICABLE, "value": None}, "a row that does not apply says why"),
        ({"kind": RowKind.SCORE, "value": None}, "a score has a value, got None"),
        ({"kind": RowKind.ESTIMATE, "value": math.nan}, "a estimate has a value, got nan"),
        ({"kind": RowKind.BOUND, "condition": ""}, "a bound says what it rests on"),
        ({"kind": RowKind.BOUND, "value": 1.0}, "a bound of 1.0 on what is at most 1.0 is vacuous"),
    ],
)
def test_a_row_that_may_not_be_called_so_is_refused(changes, message):
    with pytest.raises(InputError, match=f"row k: {message}"):
        replace(ROW, **changes)


@pytest.mark.parametrize(
    ("value", "limit", "kind"),
    [(0.999, 1.0, RowKind.BOUND), (1.0, 1.0, RowKind.VACUOUS), (3.0, 4.0, RowKind.BOUND), (None, 1.0, RowKind.VACUOUS),
     (math.nan, 1.0, RowKind.VACUOUS)],
)  # fmt: skip
def test_a_row_becomes_a_bound_below_its_limit_only(value, limit, kind):
    row = promised_row(ROW, value=value, limit=limit)
    assert row.kind is kind and (row.value == value or row.value == math.inf)
    assert bool(row.reason) is (kind is RowKind.VACUOUS)


def test_a_vacuous_row_names_its_largest_term_unless_it_has_a_reason():
    terms = (("loss", 0.5), ("slack", 2.0))
    assert promised_row(ROW, value=2.5, terms=terms).reason == (
        "2.5, and the error is at most 1 anyway; largest term: slack"
    )
    assert promised_row(ROW, value=2.5, terms=terms, reason="so").reason == "so"


def test_a_certificate_comes_back_from_its_file_and_another_schema_does_not():
    data = json.loads(json.dumps(FULL.to_json(), allow_nan=False))
    assert Certificate.from_json(data) == FULL
    with pytest.raises(ReadingError, match="expected a certificate of schema 2, got 9"):
        Certificate.from_json({**data, "schema": 9})


def test_a_row_is_found_by_its_key():
    assert FULL.row(CLOPPER.key) is CLOPPER
    with pytest.raises(InputError, match=r"no row 'none'; there are score\.params"):
        FULL.row("none")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (3, r"curves\[0\]\.lines\[0\]: expected an object, got 3"),
        ({"y": [1.0]}, r"lacks the field 'curves\[0\]\.lines\[0\]\.name'"),
        ({"name": "found", "y": ["x"]}, r"curves\[0\]\.lines\[0\]\.y\[0\]: expected a number"),
    ],
)
def test_an_edited_curve_is_named(line, said):
    data = json.loads(json.dumps(FULL.to_json()))
    data["curves"][0]["lines"][0] = line
    with pytest.raises(ReadingError, match=said):
        Certificate.from_json(data)

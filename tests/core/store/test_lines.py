"""Records as lines: strict JSON, six digits where a step is written, every digit where a reading is."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core.store.lines import encode_record, parse_record
from normgauge.core.store.numbers import read_number, rounded_down, rounded_up
from tests.core.store.made import step

numbers = st.floats(allow_nan=True, allow_infinity=True) | st.none()


def strict(line: bytes) -> dict:
    """Parse as JSON without its extensions."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert line.endswith(b"\n") and line.count(b"\n") == 1
    return json.loads(line, parse_constant=refuse)


def same(stored: object, value: float | None) -> bool:
    got = read_number(stored)
    if value is None or got is None:
        return value is got is None
    if not math.isfinite(value):
        return str(got) == str(value)
    return got == float(f"{value:.6g}")


@given(st.dictionaries(st.text(max_size=8), st.lists(numbers, max_size=6), max_size=4))
@settings(max_examples=150, deadline=None)
def test_columns_come_back_to_six_digits(columns):
    got = strict(encode_record({"kind": "step", "step": 3, "columns": columns}))["columns"]
    assert list(got) == list(columns)
    for name, cells in columns.items():
        assert len(got[name]) == len(cells)
        assert all(same(a, b) for a, b in zip(got[name], cells, strict=True))


@pytest.mark.parametrize("name", ["nan_share", "info", "100%", "%s", 'a"b', "\ud800"])
def test_a_column_may_have_any_name(name):
    got = strict(encode_record({"kind": "step", "columns": {name: [1.5, None, math.nan, math.inf]}}))["columns"]
    assert got == {name: [1.5, None, "nan", "inf"]}


def test_integers_and_times_of_a_step_are_kept():
    record = {"kind": "step", "step": 123456789, "fresh": [1234567], "time": 12.5, "loss": -math.inf, "note": "σ"}
    got = strict(encode_record(record))
    assert got == {**record, "loss": "-inf"}
    assert "σ".encode() in encode_record(record)


def test_a_reading_keeps_every_digit_and_a_step_does_not():
    assert strict(encode_record({"kind": "reading", "x": 1 / 3}))["x"] == 1 / 3
    assert strict(encode_record({"kind": "step", "totals": {"x": 1 / 3}}))["totals"]["x"] == 0.333333


def test_what_json_lacks_is_written_as_text():
    assert strict(encode_record({"kind": "header", "path": Decimal("1.5")}))["path"] == "1.5"


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b'"a"', b'{"step": 1}', b"\xff\xfe", b'{"kind": 3}', b"[" * 9999])
def test_what_is_no_record_is_none(line):
    assert parse_record(line) is None


@given(st.floats(allow_nan=False))
@settings(max_examples=300, deadline=None)
def test_rounding_outwards_encloses_and_survives_the_writing(value):
    low, high = rounded_down(value), rounded_up(value)
    assert low <= value <= high
    stored = strict(encode_record({"kind": "step", "columns": {"a": [low], "b": [high]}}))["columns"]
    assert read_number(stored["a"][0]) <= value <= read_number(stored["b"][0])
    if 1e-290 < abs(value) < 1e290:
        assert high - low <= abs(value) * 1.1e-5


def test_a_line_of_twenty_layers_is_small():
    assert len(encode_record(step(100, 21))) < 3500

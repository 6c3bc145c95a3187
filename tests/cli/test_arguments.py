"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from normgauge.cli.arguments import parse_finite, parse_positive, readings_at, users_code, whole_parser
from normgauge.core.errors import ReadingError
from tests.made import reading


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_finite, "x", "expected a number, got 'x'"),
        (parse_finite, "nan", "expected a finite number, got 'nan'"),
        (parse_positive, "inf", "expected a finite number, got 'inf'"),
        (parse_positive, "0", "expected a positive number, got '0'"),
        (whole_parser(" from 1 to 9", 1, 9), "10", "expected a whole number from 1 to 9, got '10'"),
        (whole_parser(""), "-1", "expected a whole number, got '-1'"),
        (whole_parser(""), "1.0", "expected a whole number, got '1.0'"),
    ],
)
def test_a_number_that_is_refused(parse, text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{re.escape(message)}$"):
        parse(text)


def test_numbers_that_pass():
    assert (parse_finite("-2.5"), parse_positive("1e-9"), whole_parser(" from 1 to 9", 1, 9)("9")) == (-2.5, 1e-9, 9)


def test_what_the_users_code_prints_does_not_reach_standard_output(capsys):
    with users_code():
        print("from the user")
    print("from us")
    assert capsys.readouterr() == ("from us\n", "from the user\n")


def test_readings_of_a_file_or_a_reference_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "a.json"
    reading().save(path)
    assert [item.model for item in readings_at(str(path))] == ["MLP"]
    assert len(readings_at("reference:resnet20")) == 3
    with pytest.raises(ReadingError, match=r"got a network; measure it first: normgauge gauge net.py:build --batch"):
        readings_at("net.py:build")
    path.write_text(json.dumps({**reading().to_json(), "mode": 3}))
    with pytest.raises(ReadingError, match=rf"^{re.escape(str(path))}: "):
        readings_at(str(path))

from __future__ import annotations

import json

import pytest

from normgauge.core.errors import ReadingError
from normgauge.core.stored import items_of, read_items, read_json


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"{", "no JSON: Expecting property name.*; was the file cut"),
        (b"[" * 100_000, "no JSON: .*recursion"),
        (b'{"a": [{"b": 1, "c": 2, "b": 1}]}', '"b" stands twice in one object'),
        (b"\xff\xfe\x00", "bytes that are no text"),
    ],
    ids=["empty", "blank", "cut", "deep", "twice", "bytes"],
)
def test_what_is_no_json(tmp_path, content, message):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ReadingError, match=f"expected a JSON file with readings at .*a.json: {message}"):
        read_json(tmp_path / "a.json")


def test_what_cannot_be_read(tmp_path):
    for path, message in ((tmp_path, "Is a directory"), (tmp_path / "a.json", "No such file")):
        with pytest.raises(ReadingError, match=message) as caught:
            read_json(path)
        assert "Errno" not in str(caught.value)


def test_one_reading_or_several(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"schema": 1, "labels": ["a"], "readings": [{"schema": 1}]}))
    assert read_items(tmp_path / "a.json") == [{"schema": 1}]
    assert items_of({"schema": 1}, "a") == [{"schema": 1}]
    assert items_of(3, "a") == [3]
    with pytest.raises(ReadingError, match="a: readings: expected a list of at least one reading, got 3"):
        items_of({"schema": 1, "readings": 3}, "a")

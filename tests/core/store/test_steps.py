"""Step records: as stored, whichever way they were read."""

from __future__ import annotations

import json

import pytest

from normgauge.core import store
from normgauge.core.store.steps import packed_step, quick_step
from tests.core.store.made import header, step


def test_the_quick_way_and_the_long_way_give_the_same(tmp_path):
    writer = store.create(tmp_path, header())
    writer.append(step(3))
    writer.close()
    (record,) = store.read(tmp_path).steps
    told = json.loads(writer.path.read_bytes().split(b"\n")[1])
    del told["check"]
    assert dict(record) == told == dict(packed_step(told))
    assert record.number("loss") == told["loss"] and record.number("gradient") == told["totals"]["gradient"]
    assert record.number("nothing") is None and len(record) == len(told) and "lr" in record
    with pytest.raises(KeyError):
        record["nothing"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"note","columns":{"a":[1]}}',
        b'{"kind":"step","step":1,"totals":{},"columns":{"a":{"b":[1]}}}',
        b'{"kind":"step","step":1,"totals":{},"columns":{"a":[1]},"more":{"b":[1]}}',
        b'{"kind":"step","step":1,"totals":[],"columns":{"a":[1]}}',
        b'{"kind":"step","step":1,"totals":{}}',
    ],
)
def test_a_line_of_another_form_goes_the_long_way(body):
    assert quick_step(body) is None

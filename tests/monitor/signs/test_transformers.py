"""Attention logits and the residual stream."""

from __future__ import annotations

import pytest

from normgauge.monitor.signs.sign import Place
from normgauge.monitor.signs.transformers import Attention, Stream
from tests.monitor.readings import reading

PLACES = [Place(f"blocks.{k}.norm", "norm", (16,), 4.0) for k in range(7)]


def shown(kind, column: str, values) -> list[tuple[str, str]]:
    """What a sign says of readings whose rows have these numbers in one column."""
    sign, found = kind(PLACES), []
    for step, numbers in enumerate(values, 1):
        changed = {row: {column: value} for row, value in enumerate(numbers)}
        found += [(alarm.alarm, alarm.layer) for alarm in sign.look(reading(step, changed=changed))]
    return found


def test_logits_that_saturate_a_softmax_are_named_where_they_are_largest():
    assert shown(Attention, "logit_max", [[3.0, 200.0, 90.0]] * 2) == [("attention_saturated", "blocks.1.norm")]
    assert shown(Attention, "logit_max", [[3.0, 20.0, 9.0]] * 50) == []
    assert shown(Attention, "logit_max", [[3.0, 200.0, 9.0], *[[3.0, 8.0, 9.0]] * 9]) == []  # one batch is none


def test_logits_that_grew_are_named_before_they_saturate():
    grown = [[2.0 * 1.2**k] for k in range(19)]
    assert shown(Attention, "logit_max", grown)[:1] == [("attention_growth", "blocks.0.norm")]


@pytest.mark.parametrize(("factor", "named"), [(3.0, 1), (1.3, 0)])
def test_a_stream_that_grows_with_depth_is_named(factor, named):
    sizes = [0.02, *(factor**k for k in range(6))]
    assert shown(Stream, "input_rms", [sizes] * 2) == [("residual_growth", "blocks.6.norm")] * named


def test_a_stream_that_grows_with_time_is_named():
    flat = [1.0] * 7
    assert shown(Stream, "input_rms", [flat, flat, [40.0] * 7, [50.0] * 7]) == [("residual_growth", "blocks.6.norm")]

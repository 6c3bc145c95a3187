"""Ratios of constants: what is compared, what is counted, and where nothing is said."""

from __future__ import annotations

import json
import math

import pytest

from normgauge.core.bound import Scope
from normgauge.core.errors import ReadingError
from normgauge.core.ratios import LAWS, ratios
from normgauge.core.spelled import LN10
from tests.made import layer, reading

SIGMA = {"min": 0.25, "rms": 1.5, "max": 4.0, "gamma_max": 1.25, "eps": 1e-5}


def net(*logs: float | None, normalized: bool = True, **changes):
    """Linear layers with these constants in their weights (log10), each with a normalizer behind it."""
    layers = []
    for i, log in enumerate(logs):
        constant = None if log is None else log * LN10
        layers.append(layer(f"w{i}", "Linear", 0.0, 2 * i, log_weight_lipschitz=constant))
        if normalized:
            layers.append(layer(f"n{i}", "LayerNorm", 0.0, 2 * i + 1, sigma=SIGMA))
    return reading(layers=tuple(layers), **changes)


def test_ratios_are_differences_of_logarithms_to_the_power_of_the_law():
    found = ratios(net(1.0, 2.5), net(4.0, 2.0, normalized=False))
    assert [one.log_ratio for one in found.layers] == pytest.approx([-3 * LN10, 0.5 * LN10])
    first = found.to_json()["layers"][0]
    assert first["log10_ratio"] == {"1": pytest.approx(-3.0), "2": pytest.approx(-6.0)}
    assert {law.power for law in LAWS} == {1, 2} and found.to_json()["laws"][0]["power"] == 2


def test_normalizers_are_counted_from_the_layer_on():
    found = ratios(net(1.0, 1.0, 1.0), net(1.0, 1.0, 1.0, normalized=False))
    assert [one.normalizers for one in found.layers] == [(3, 0), (2, 0), (1, 0)]
    assert all(one.scale_free for one in found.layers)
    assert not any(one.scale_free for one in ratios(net(1.0, normalized=False), net(1.0)).layers)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (math.inf, 1.0, "no finite bound in A, scope point"),
        (1.0, math.inf, "no finite bound in B, scope point"),
        (1.0, -math.inf, "the output of B does not depend on it"),
        (None, 1.0, "A has no bound for it"),
        (1.0, None, "B has no bound for it"),
    ],
    ids=["infinite", "infinite other", "zero", "missing", "missing other"],
)
def test_where_nothing_can_be_said_that_is_said(a, b, why):
    one = ratios(net(a, 1.0), net(b, 1.0)).layers[0]
    assert one.why == why and one.log_ratio is None
    told = ratios(net(a, 1.0), net(b, 1.0)).to_json()
    assert told["layers"][0]["no_statement"] == why
    assert told["layers"][0]["log10_ratio"] == {"1": None, "2": None}
    json.dumps(told, allow_nan=False)


def test_a_layer_of_one_network_alone_is_listed():
    found = ratios(net(1.0, 2.0), net(1.0))
    assert [one.why for one in found.layers] == ["", "B has no bound for it"]


def test_readings_that_cannot_be_compared_are_refused():
    with pytest.raises(ReadingError, match="one scope, got point and global"):
        ratios(net(1.0), net(1.0, scope=Scope.parse("global")))
    with pytest.raises(ReadingError, match="one mode, got eval and train"):
        ratios(net(1.0), net(1.0, mode="train"))
    with pytest.raises(ReadingError, match="no layer with weights in common"):
        ratios(net(1.0), net(None))

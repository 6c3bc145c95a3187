from __future__ import annotations

from normgauge.render.page import grouped_readings
from tests.render.networks import residual, scopes


def shapes(readings, labels=None):
    return [(group.label, len(group.readings)) for group in grouped_readings(readings, labels)]


def test_scopes_of_one_network_belong_together():
    assert shapes(scopes()) == [("Residual", 3)]
    assert shapes(scopes(), ["a: point", "a: ball:0.1", "a: global"]) == [("a", 3)]
    assert shapes(scopes(), ["a, point", "a, ball:0.1", "a, global"]) == [("a", 3)]


def test_the_same_scope_again_is_another_network():
    assert shapes([*scopes(), *scopes()]) == [("Residual", 3), ("Residual (2)", 3)]


def test_labels_keep_networks_apart():
    point, _, everywhere = scopes()
    assert shapes([point, everywhere], ["a: point", "b: global"]) == [("a", 1), ("b", 1)]
    assert shapes([point, everywhere], ["before", "after"]) == [("before", 1), ("after", 1)]
    assert shapes([point], ["point"]) == [("point", 1)]


def test_other_layers_or_another_mode_are_another_network():
    point, _, everywhere = scopes()
    shorter = residual(layers=point.layers[:2], scope=everywhere.scope)
    trained = residual(mode="train", scope=everywhere.scope)
    assert shapes([point, shorter]) == shapes([point, trained]) == [("Residual", 1), ("Residual (2)", 1)]

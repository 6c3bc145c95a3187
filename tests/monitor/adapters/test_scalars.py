"""Names and floats of a record, for any tracker."""

from __future__ import annotations

from normgauge.monitor.adapters.scalars import Scalars, alarm_text


def test_layers_that_came_later_get_their_names():
    scalars = Scalars(("update",), prefix="p/")
    scalars.learn({"kind": "header", "layers": [{"name": "a"}]})
    scalars.learn({"kind": "layers", "layers": [{"name": "b"}]})
    line = {"kind": "step", "totals": {"gradient": None}, "columns": {"update": [1.0, 2.0]}}
    assert scalars.of(line) == {"p/update/a": 1.0, "p/update/b": 2.0}


def test_an_alarm_of_the_whole_network_names_no_layer():
    alarm = {"step": 3, "alarm": "nan", "layer": "", "sentence": "the loss is nan."}
    assert alarm_text(alarm) == "step 3: nan: the loss is nan."
    assert alarm_text({**alarm, "layer": "fc"}).startswith("step 3: nan in fc:")

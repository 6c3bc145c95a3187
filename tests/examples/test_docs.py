"""The documentation is true: code runs, tables are fresh, fields and numbers are those of a real reading."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from normgauge.cli.gauge import to_json
from normgauge.cli.rules import list_rules, markdown
from normgauge.loading import load_batch, load_model
from normgauge.measure import readings

ROOT = Path(__file__).parents[2]
NET = ROOT / "examples" / "net.py"
TOLERANCE = 0.05  # decades: what the searches may differ by between machines


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    fenced = page(name).split("```")[1::2]
    return [block.removeprefix(f"{language}\n") for block in fenced if block.startswith(f"{language}\n")]


@pytest.fixture(scope="module")
def measured():
    """The network of the documentation in the three usual scopes."""
    return readings(load_model(f"{NET}:build"), load_batch(f"{NET}:batch"))


def test_the_table_of_rules_is_fresh():
    assert page("rules.md") == markdown(list_rules()), "run `make docs`"


def test_the_worked_example_of_a_rule_runs(capsys):
    names: dict[str, object] = {"__name__": "adding_a_rule"}
    for code in blocks("adding-a-rule.md", "python"):
        exec(compile(code, "docs/adding-a-rule.md", "exec"), names)
    assert re.search("above upper|expected slopes up to", capsys.readouterr().out)  # the wrong rule was caught


def test_the_worked_example_is_the_script():
    """The page and the script show the same rule."""
    script = (ROOT / "examples" / "custom_layer.py").read_text(encoding="utf-8")
    body = script[script.index("    (flow,) = incoming") : script.index("def slope")]
    assert body.strip() in page("adding-a-rule.md")


def test_the_layer_table_is_that_of_a_run(measured):
    rows = dict(
        re.findall(r"^(\w+(?:#2)?) +\w+ +(-?\d\.\d\d.*)$", blocks("how-a-reading-is-made.md", "")[-1], re.MULTILINE)
    )
    layers = measured[0].to_json()["layers"]
    assert set(rows) == {layer["name"] for layer in layers}
    for layer in layers:
        gain, folded, _, cumulative = (float(word) for word in rows[layer["name"]].split()[:4])
        assert gain == pytest.approx(layer["log10_gain"]["upper"], abs=0.006), layer["name"]
        assert folded == pytest.approx(layer["log10_folded"], abs=0.006), layer["name"]
        assert cumulative == pytest.approx(layer["log10_cumulative"], abs=0.006), layer["name"]


def test_the_totals_are_those_of_a_run(measured):
    line = r"^(point|ball:0.1|global): log10 upper (\S+) \(folded (\S+)\), lower (\S+), gap (\S+) decades$"
    told = {
        scope: [float(n) for n in rest]
        for scope, *rest in re.findall(line, page("how-a-reading-is-made.md"), re.MULTILINE)
    }
    for reading in measured:
        data = reading.to_json()
        fresh = [data["log10_upper"], data["log10_folded"], data["log10_lower"], reading.gap]
        slack = 0.3 if reading.scope.kind == "global" else TOLERANCE  # how far the ascent comes depends on CPU time
        assert told[data["scope"]][:2] == pytest.approx(fresh[:2], abs=TOLERANCE)
        assert told[data["scope"]][2:] == pytest.approx(fresh[2:], abs=slack)


def test_every_field_of_the_contract_is_described(measured):
    text = page("json.md")
    data = to_json(measured)
    for key in keys(data):
        assert f"`{key}`" in text, f"docs/json.md does not describe {key}"


def test_the_example_of_the_contract_has_the_fields_of_a_real_reading(measured):
    (shown,) = (json.loads(code) for code in blocks("json.md", "json"))
    real = measured[1].to_json()
    assert shape(shown) == shape({**real, "layers": real["layers"][:2], "samples": real["samples"][:2]})


def keys(data: object) -> set[str]:
    """Every key in a nested structure."""
    if isinstance(data, dict):
        return set(data).union(*(keys(value) for value in data.values()))
    return set().union(*(keys(value) for value in data)) if isinstance(data, list) else set()


def shape(data: object) -> object:
    """The structure without its numbers."""
    if isinstance(data, dict):
        return {key: shape(value) for key, value in data.items()}
    if isinstance(data, list):
        return [shape(value) for value in data] if data and isinstance(data[0], dict) else "list"
    return "number or null" if data is None or isinstance(data, float | int) else type(data).__name__


def test_links_lead_somewhere():
    for path in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"

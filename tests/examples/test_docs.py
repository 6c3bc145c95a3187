"""The documentation is true: code runs, tables are fresh, fields and numbers are those of a real reading."""

from __future__ import annotations

import importlib
import json
import math
import re
import runpy
from pathlib import Path

import pytest

import normgauge as ng
from normgauge import theory
from normgauge.advice.whatif import what_if
from normgauge.cli import COMMANDS, build_parser
from normgauge.cli.gauge import gauge_json
from normgauge.cli.rules import list_rules, rules_markdown
from normgauge.instrument.measure import readings
from normgauge.loading import load_batch, load_model
from tests.examples.test_examples import LINES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NET = ROOT / "examples" / "net.py"
TOLERANCE = 0.05  # decades: what the searches may differ by between machines


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    fenced = page(name).split("```")[1::2]
    return [block.removeprefix(f"{language}\n") for block in fenced if block.startswith(f"{language}\n")]


WITH_CODE = sorted(path.name for path in DOCS.glob("*.md") if "```python\n" in path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def measured():
    """The network of the documentation in the three usual scopes."""
    return readings(load_model(f"{NET}:build"), load_batch(f"{NET}:batch"))


def test_the_table_of_rules_is_fresh():
    assert page("rules.md") == rules_markdown(list_rules()), "run `make docs`"


@pytest.mark.parametrize("name", ["json.md", "runs.md"])
def test_the_tables_of_fields_are_fresh(name):
    assert page(name) == runpy.run_path(str(DOCS / "fields.py"))["written"](page(name)), "run `make docs`"


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch, capsys):
    if name == "conformal.md":
        pytest.importorskip("mapie", reason="this page is about mapie: pip install normgauge[conformal]")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": name.replace("-", "_").removesuffix(".md")}
    for code in blocks(name, "python"):
        exec(compile(code, f"docs/{name}", "exec"), names)
    if name == "adding-a-rule.md":
        caught = "the rule user.too_small states a gain for input 0: expected at most "
        assert caught in capsys.readouterr().out and caught in page(name)
    if name == "conformal.md":
        assert 0.85 < names["inside"].mean() < names["least"] + 0.05  # type: ignore[attr-defined,operator]


def test_every_file_of_the_walks_is_there():
    named = re.findall(r"`([\w/]+\.(?:py|toml|md))`", page("architecture.md"))
    assert len(named) > 50
    outside = ("tests/", "docs/")
    gone = [
        p for p in named if not (ROOT if p.startswith(outside) else ROOT / "src" / "normgauge").joinpath(p).exists()
    ]
    assert gone == []


def test_every_room_is_on_the_map():
    rooms = {path.name for path in (ROOT / "src" / "normgauge").iterdir() if (path / "__init__.py").exists()}
    assert len(rooms) == 12
    told = str(importlib.import_module("normgauge").__doc__)
    assert all(f"    {room}/ " in told and f"| `{room}/` |" in page("architecture.md") for room in rooms)


def test_the_commands_of_the_pages_are_understood():
    commands = [
        command
        for path in sorted(DOCS.glob("*.md"))
        for block in blocks(path.name, "")
        for command in re.findall(r"^normgauge (.+)$", block, re.MULTILINE)
    ]
    assert len(commands) >= 5
    for command in commands:
        build_parser().parse_args(command.split())


def test_the_table_of_verbs_is_true():
    """Every command is there and understood, every public verb and every name of a reading exists."""
    rows = re.findall(r"^\| (?!it answers|---)[^|]+\|([^|]*)\|([^|]*)\|$", page("commands.md"), re.MULTILINE)
    commands = [command.strip(" `").removeprefix("normgauge ").split() for _, command in rows if command.strip()]
    for command in commands:
        build_parser().parse_args(command)
    assert {command[0] for command in commands} == set(COMMANDS)
    verbs = re.findall(r"`ng\.(\w+)", " ".join(python for python, _ in rows))
    assert {"gauge", "readings", "Monitor", "certify"} <= set(verbs) <= set(ng.__all__)
    for name in re.findall(r"`reading\.(\w+)", " ".join(python for python, _ in rows)):
        assert callable(getattr(ng.Reading, name))


def test_a_theorem_is_checked_in_python_as_the_table_says():
    (code,) = re.findall(r"`(theory\.check_claims\(.*?\))` \|", page("commands.md"))
    ledger = eval(code, {"theory": theory})
    assert [outcome.claim.id for outcome in ledger.outcomes] == ["T.L1"] and ledger.outcomes[0].passed


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
    assert len(layers) > 5 and set(rows) == {layer["name"] for layer in layers}
    for layer in layers:
        gain, folded, _, cumulative = (float(word) for word in rows[layer["name"]].split()[:4])
        known = layer["log10_gain"]["upper"], layer["log10_folded"], layer["log10_cumulative"]
        for shown, exact in zip((gain, folded, cumulative), known, strict=True):
            assert -1e-3 <= shown - exact <= 0.011, layer["name"]  # rounded up


def test_the_totals_are_those_of_a_run(measured):
    bound = r"log10 upper (\S+) \((?:[A-Za-z ]+; balanced \S+,\s)?folded\s(\S+)\)"
    line = rf"^(point|ball:0.1|global): {bound}, lower (\S+),\sgap\s(\S+) decades$"
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


def test_the_what_if_table_is_that_of_a_run():
    told = re.findall(r"^\| .* \| (-?\d\.\d\d) \| (-?\d\.\d\d) \|$", page("advice.md"), re.MULTILINE)
    asked = what_if(load_model(f"{NET}:build"), load_batch(f"{NET}:batch"), scope="point")
    questions = (asked, asked.without("ln"), asked.with_norm("ln", "rms"), asked.with_norm("up", "layer"))
    fresh = [question.reading for question in questions]
    assert len(told) == len(fresh)
    for row, answer in zip(told, fresh, strict=True):
        assert [float(word) for word in row] == pytest.approx([answer.log10_upper, answer.log10_lower], abs=TOLERANCE)


def test_every_kind_of_advice_is_described():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/normgauge/advice").glob("*.py"))
    kinds = set(re.findall(r"CAUSES \|?= \{(.*?)\}", sources, re.DOTALL))
    named = re.findall(r'"([a-z ]+)"', "".join(kinds))
    assert len(named) > 5
    for kind in named:
        assert re.search(rf"^\|.*\b{kind}\b.*\|.*\|$", page("advice.md"), re.MULTILINE), f"docs/advice.md lacks {kind}"


def test_every_field_of_the_contract_is_described(measured):
    text = page("json.md")
    data = [
        {**reading, "rules": {"": next(iter(reading["rules"].values()))}}
        for reading in gauge_json(measured)["readings"]
    ]
    assert len(keys(data)) > 80
    for key in keys(data) - {""}:
        assert f"`{key}`" in text, f"docs/json.md does not describe {key}"


def test_every_command_that_writes_json_is_described():
    commands = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    writing = [name for name, parser in commands.items() if "--json" in parser.format_help()]  # type: ignore[union-attr]
    assert len(writing) > 4
    for name in set(writing) - {"gauge"}:
        assert f"| `{name} --json` |" in page("json.md"), f"docs/json.md does not describe {name} --json"


def test_the_example_of_the_contract_has_the_fields_of_a_real_reading(measured):
    (shown,) = (json.loads(code) for code in blocks("json.md", "json"))
    real = measured[1].to_json()
    real |= {key: real[key][:2] for key in ("layers", "samples", "multipliers")}
    real["rules"] = {layer["rule"]: real["rules"][layer["rule"]] for layer in real["layers"]}
    real["proof"]["steps"] = real["proof"]["steps"][:2]
    assert shape(shown) == shape(real)


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
    links = [
        (path, target)
        for path in DOCS.glob("*.md")
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    ]
    assert len(links) > 30
    for path, target in links:
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_comparison_is_that_of_the_stored_run():
    """Every figure of the tables is one of a stored run (peers.json, everywhere.json), or the quotient of two."""
    results = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text(encoding="utf-8"))
    numbers = []
    for row in (row for part in ("networks", "layers", "weightwatcher") for row in results[part].values()):
        values = [
            value for value in row.values() if value and not isinstance(value, str)
        ]  # words say why there is none
        numbers += values
        if "global_lower" in row:  # bounds over the largest slope found
            numbers += [value / max(row["global_lower"], row["jacobian_at_samples"]) for value in values]
    rows = json.loads((ROOT / "benchmarks" / "results" / "everywhere.json").read_text(encoding="utf-8"))["rows"]
    for row in rows:
        numbers += [row.get("ratio"), row["own_cpu_seconds"], row["upper"] / row["lower"]]
        numbers += [math.log10(row[key]) for key in ("upper", "balanced")]
    numbers = [number for number in numbers if number is not None]
    cells = [
        cell for line in page("comparison.md").splitlines() if line.startswith("|") for cell in line.split("|")[2:]
    ]
    told = [word for cell in cells for word in re.findall(r"(?<![\w×.-])\d+\.\d+(?:e-\d+)?(?!\.)", cell)]
    assert len(told) > 30
    for word in told:
        digits = len(word.partition("e")[0].replace(".", "").lstrip("0"))
        assert any(float(f"{number:.{digits}g}") == float(word) for number in numbers), word


@pytest.mark.parametrize(
    ("name", "script"), [("six-symmetries.md", "six_symmetries"), ("hessian-defect.md", "hessian_defect")]
)
def test_a_page_shows_what_its_script_is_tested_to_print(name, script):
    assert re.search(LINES[script], page(name))

"""Declared fields: their form in files and the way back; what is of another kind is refused in words."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

import normgauge
from normgauge.core import reference
from normgauge.core.bound import Evidence, Scope
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.fields import Log, Stored, Told, declared_fields
from normgauge.core.interval import LogInterval
from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10
from normgauge.render.page import report

SOURCE = Path(normgauge.__file__).parent
LEAKS = ("NoneType", "object", "argument", "not subscriptable", "unexpected", "str'", "dict'", "list'")


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    data: dict[str, Any] = copy.deepcopy(reference.reference_content("mlp-batchnorm")["readings"][1])
    data["samples"] = data["samples"][:2]
    data["unknown"] = [{"name": "a", "why": "b"}]
    return data


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in the data; of a list its first item stands for all."""
    if path:
        yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*path, key))
    elif isinstance(node, list) and node:
        yield from places(node[0], (*path, 0))


def changed(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(data)
    node: Any = result
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return result


def refusal(data: Any) -> str:
    try:
        Reading.from_json(data)
    except ReadingError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "value",
    [None, "x", 3, 2.5, True, [], {}, [None], {"a": None}, math.nan, 10**400],
    ids=["null", "text", "whole", "number", "true", "list", "object", "a null", "of null", "NaN", "huge"],
)
def test_no_value_of_another_kind_gets_past(stored, tmp_path, value):
    refused = 0
    for path in places(stored):
        data = changed(stored, path, value)
        said = refusal(data)
        if said:
            refused += 1
            assert str(path[0]) in said and "\n" not in said
            assert not any(word in said.replace("an object", "") for word in LEAKS), said
            continue
        reading = Reading.from_json(data)
        json.dumps(reading.to_json(), allow_nan=False)
        assert str(reading)
        if len(path) == 1:
            report([reading], tmp_path / "a.html")
    assert refused > 30


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        *((name, "a text") for name in ("model", "mode", "normgauge", "input", "scope")),
        *((name, "a list") for name in ("notes", "gauges", "layers", "samples", "unknown", "unbounded")),
        *((name, "an object") for name in ("rules", "seconds", "published", "log10_loss")),
        ("evidence", "one of proved"),
        ("log10_lower", "a number"),
    ],
)
def test_null_is_refused_with_the_field_and_the_kind(stored, field, kind):
    with pytest.raises(ReadingError, match=f"{field}: expected {kind}.*, got null; was the file edited"):
        Reading.from_json({**stored, field: None})


def test_a_place_deep_inside_is_named(stored):
    data = changed(stored, ("layers", 0, "log10_gain", "upper"), "high")
    with pytest.raises(ReadingError, match=r'layers\[0\].log10_gain.upper: expected a number.*got "high"'):
        Reading.from_json(data)
    with pytest.raises(ReadingError, match=r"notes\[0\]: expected a text, got \[1, 1"):
        Reading.from_json({**stored, "notes": [[1] * 50]})
    with pytest.raises(ReadingError, match="mode: expected a text, got object"):
        Reading.from_json({**stored, "mode": object()})
    with pytest.raises(ReadingError, match="scope: expected point, global or ball:RADIUS"):
        Reading.from_json({**stored, "scope": "ball:-1"})


@pytest.mark.parametrize(
    ("path", "value"),
    [(("sources",), []), (("steps",), []), (("steps", 0, "inputs"), [7]), (("steps", 0, "log10_folded"), [[]])],
    ids=["no source", "no steps", "an input nobody made", "no gains"],
)
def test_a_proof_that_cannot_be_followed_is_refused(stored, path, value):
    with pytest.raises(ReadingError, match=r"the reading.s proof cannot be followed: proof"):
        Reading.from_json(changed(stored, ("proof", *path), value))


def test_fields_of_later_versions_and_those_an_old_one_lacks(stored):
    old = {key: value for key, value in stored.items() if key not in ("normgauge", "witness", "rules", "proof")}
    assert Reading.from_json({**old, "of a later version": 3}).version == "0.1.0"


def records() -> list[type]:
    """Every record that is stored, wherever it is declared; slots make a second class of the same name."""
    for module in (
        "advice.remark",
        "core.certificate",
        "core.certified",
        "core.compare",
        "core.curvature",
        "core.ratios",
        "core.symmetry",
    ):
        importlib.import_module(f"normgauge.{module}")
    return sorted({cls for cls in Stored.__subclasses__() if "__slots__" in vars(cls)}, key=str)


@pytest.mark.parametrize("cls", records(), ids=lambda cls: cls.__name__)
def test_every_field_that_is_stored_has_a_name_of_its_own_and_a_sentence(cls):
    keys = [field.key for field in declared_fields(cls)]
    assert keys and len(set(keys)) == len(keys)
    assert all(field.told.sentence and field.form.words for field in declared_fields(cls))


@dataclass(frozen=True, slots=True)
class Made(Stored):
    """A record of every form."""

    version: ClassVar[Annotated[int, Told("of the form")]] = 3
    log_size: Annotated[Log | None, Told("natural in memory")]
    scope: Annotated[Scope, Told("a scope")]
    kind: Annotated[Evidence, Told("a word")]
    range: Annotated[LogInterval, Told("an enclosure", key="log10_range")]
    parts: Annotated[tuple[tuple[str, float], ...], Told("pairs")] = ()
    either: Annotated[tuple[int, ...] | str, Told("a list or a text")] = ""
    old: Annotated[Mapping[str, bool], Told("files of older versions lack it", absent={})] = field(default_factory=dict)
    unsaid: int = 0

    @property
    @Told("one more")
    def log_next(self) -> Log:
        return (self.log_size or 0.0) + LN10


def test_a_declaration_gives_the_form_in_files_and_the_way_back():
    made = Made(
        2 * LN10, Scope.parse("ball:0.5"), Evidence.PROVED, LogInterval(-math.inf, LN10), (("a", math.inf),), (1, 2)
    )
    data = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert data == {
        "version": 3, "log10_size": 2.0, "scope": "ball:0.5", "kind": "proved",
        "log10_range": {"lower": "-inf", "upper": 1.0}, "parts": {"a": "inf"}, "either": [1, 2], "old": {},
        "log10_next": pytest.approx(3.0),
    }  # fmt: skip
    assert Made.from_json(data) == made
    del data["old"]
    assert Made.from_json(data) == made


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("either", 3, "wrong kind: either: expected a text, got 3"),
        ("either", [1, -1], r"wrong kind: either\[1\]: expected a whole number, got -1"),
        ("log10_range", {"lower": 0}, "the made lacks the field 'log10_range.upper'"),
        ("parts", {"a": "much"}, 'parts.a: expected a number, "inf" or "-inf", got "much"'),
        ("version", "three", "version: expected a whole number"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(key, value, said):
    made = Made(None, Scope.parse("point"), Evidence.PROVED, LogInterval.one())
    with pytest.raises(ReadingError, match=said):
        Made.from_json({**made.to_json(), key: value})


def test_what_cannot_be_written_is_said_in_words(tmp_path):
    made = Made(None, Scope.parse("point"), Evidence.PROVED, LogInterval.one())
    made.save(tmp_path / "a.json")
    assert Made.from_json(json.loads((tmp_path / "a.json").read_text())) == made
    with pytest.raises(InputError, match=r"cannot write .*: No such file or directory; give a file in a folder"):
        made.save(tmp_path / "none" / "a.json")


def names(node: ast.AST) -> list[object]:
    """What a piece of code lists: the fields of LayerRecord, what one is made of, or texts that stand side by side."""
    match node:
        case ast.ClassDef(name="LayerRecord"):
            return [ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)]
        case ast.Call(func=ast.Name(id="LayerRecord")):
            return [keyword.arg for keyword in node.keywords]
        case ast.Tuple() | ast.List() | ast.Set():
            return [item.value for item in node.elts if isinstance(item, ast.Constant)]
        case ast.Dict():
            return [key.value for key in node.keys if isinstance(key, ast.Constant)]
    return []


def test_a_field_of_a_layer_is_named_where_it_is_declared_and_where_it_is_computed():
    hard = ("log_slack", "sigma", "log_to_output", "log_weight_lipschitz", "rule")
    keys = {field.name: {field.name, field.key} for field in declared_fields(LayerRecord)}
    fields = set[object]().union(*keys.values())
    places: dict[str, list[str]] = {name: [] for name in hard}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name == "advice":
            continue  # the numbers of a remark have names of their own, sigma and depth among them
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            listed = fields.intersection(names(node))
            if len(listed) > 1:  # one alone may be another thing of that name
                for name in hard:
                    places[name] += [str(path.relative_to(SOURCE))] * bool(listed & keys[name])
    assert places == {name: ["core/reading.py", "instrument/records.py"] for name in hard}


def test_what_is_not_all_written_says_that_it_is_not_read_back():
    @dataclass(frozen=True, slots=True)
    class Half(Stored):
        """One field is not told."""

        told: Annotated[int, Told("told")]
        kept: int

    with pytest.raises(ReadingError, match="not read back"):
        Half.from_json(Half(1, 2).to_json())

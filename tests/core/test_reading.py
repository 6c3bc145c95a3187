from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from normgauge.core.bound import Scope
from normgauge.core.errors import ReadingError
from normgauge.core.interval import LogInterval
from normgauge.core.reading import Finding, LayerRecord, Reading
from normgauge.core.spelled import spell_number, unspell_number
from tests.made import reading

CONTRACT = {
    *("schema", "mode", "scope", "evidence", "log10_upper", "log10_folded", "log10_lower", "unknown", "unbounded"),
    *("published", "layers"),
}
LAYER_CONTRACT = {"name", "kind", "log10_gain", "log10_folded", "sigma", "log10_weight_lipschitz"}


def approximate(data):
    """Data with floats to 12 digits: the logarithms change base on the way."""
    if isinstance(data, dict):
        return {k: approximate(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [approximate(v) for v in data]
    return float(f"{data:.12g}") if isinstance(data, float) else data


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"log_upper": math.inf, "unknown": (Finding("block.3", "torch.foo has no rule"),), "evidence": "unknown"},
        {"log_lower": -math.inf, "scope": Scope.parse("ball:0.1"), "displacement": 1.5},
        {"unbounded": (Finding("gate", "a product of unbounded branches"),), "log_upper": math.inf},
        {"layers": (), "published": {}, "samples": (), "loss": {}, "seconds": {}},
    ],
)
def test_a_reading_survives_its_json_form(tmp_path, changes):
    before = reading(**changes)
    before.save(tmp_path / "a.json")
    after = Reading.load(tmp_path / "a.json")
    assert approximate(after.to_json()) == approximate(before.to_json())
    assert after.scope == before.scope and str(after.evidence) == str(before.evidence)


def test_the_json_form_keeps_the_contract():
    data = json.loads(json.dumps(reading(log_upper=math.inf).to_json(), allow_nan=False))
    assert data.keys() >= CONTRACT
    assert data["schema"] == 2
    assert data["log10_upper"] == "inf"
    assert data["log10_folded"] == pytest.approx(2.5)
    assert data["published"]["log10_prod_inv_sigma"]["max"] == "inf"
    assert len(data["layers"]) == 3 and all(record.keys() >= LAYER_CONTRACT for record in data["layers"])
    assert data["layers"][0]["log10_gain"].keys() == {"lower", "upper"}


def test_infinities_are_spelled_and_nan_is_refused():
    assert [spell_number(v) for v in (math.inf, -math.inf, 1.5, None)] == ["inf", "-inf", 1.5, None]
    assert [unspell_number(v) for v in ("inf", "-inf", 1.5, None)] == [math.inf, -math.inf, 1.5, None]
    with pytest.raises(ReadingError, match="NaN"):
        reading(log_upper=math.nan).to_json()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"schema": 3}, "schema 1 or 2, got schema 3"),
        ({"log10_upper": None}, 'wrong kind: log10_upper: expected a number, "inf" or "-inf", got null'),
        ({"evidence": "hearsay"}, 'evidence: expected one of proved.*got "hearsay"'),
        ({"layers": 3}, "layers: expected a list, got 3"),
        ({"unknown": [{"title": "x"}]}, r"lacks the field 'unknown\[0\].name'"),
    ],
)
def test_a_damaged_reading_is_refused_in_words(damage, message):
    with pytest.raises(ReadingError, match=message):
        Reading.from_json({**reading().to_json(), **damage})


@pytest.mark.parametrize("field", ["mode", "log10_lower", "layers", "published"])
def test_a_missing_field_is_named(field):
    data = reading().to_json()
    del data[field]
    with pytest.raises(ReadingError, match=f"lacks the field '{field}'"):
        Reading.from_json(data)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "3"])
def test_a_file_that_is_no_reading_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ReadingError, match="expected a"):
        Reading.load(tmp_path / "a.json")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ReadingError, match="No such file"):
        Reading.load(tmp_path / "none.json")


def test_of_several_readings_in_a_file_the_first_is_loaded(tmp_path):
    point, everywhere = reading().to_json(), reading(scope=Scope.parse("global")).to_json()
    for file in ({**point, "readings": [point, everywhere]}, {"schema": 2, "readings": [point, everywhere]}):
        (tmp_path / "a.json").write_text(json.dumps(file))
        assert str(Reading.load(tmp_path / "a.json").scope) == "point"
    (tmp_path / "a.json").write_text(json.dumps({**everywhere, "readings": [point, everywhere]}))
    with pytest.raises(ReadingError, match="scope: not the same at the top of the file"):
        Reading.load(tmp_path / "a.json")


def test_totals_in_decades():
    made = reading()
    assert (made.log10_upper, made.log10_folded, made.log10_lower) == pytest.approx((2.0, 2.5, 1.25))


def test_gap_and_its_owner():
    made = reading()
    assert made.gap == pytest.approx(0.75)
    assert reading(log_upper=math.inf).gap == math.inf
    assert reading(log_upper=-math.inf, log_lower=-math.inf).gap == 0
    assert made.gap_owner() == made.layer("head")
    assert reading(layers=()).gap_owner() is None
    unscored = tuple(replace(r, log_slack=None) for r in made.layers)
    assert reading(layers=unscored).gap_owner() is None


def test_a_layer_is_found_by_name():
    assert reading().layer("f.1").kind == "BatchNorm1d"
    with pytest.raises(ReadingError, match=r"no layer 'f.9'.*f.0, f.1, head"):
        reading().layer("f.9")


def test_a_layer_record_without_optional_numbers():
    record = LayerRecord(name="relu", kind="ReLU", rule="activation.relu", gain=LogInterval.one(), depth=3)
    assert LayerRecord.from_json(record.to_json()) == record


def test_printing_and_explaining_a_reading_use_the_renderer():
    assert "BatchNorm1d" in str(reading())
    assert "ε floor" in reading().explain("f.1")


def test_the_median_is_stored_and_of_an_even_number_it_is_the_geometric_mean_of_the_middle_two():
    slopes = (0.0, 0.1, 0.2, 0.6, 0.7, 0.9)
    rows = tuple({"index": i, "log10_lower": s, "log10_upper": s + 0.01} for i, s in enumerate(slopes))
    made = reading(samples=rows)
    stored = made.to_json()["log10_median"]
    assert (stored["lower"], stored["upper"]) == pytest.approx((0.4, 0.41))
    assert Reading.from_json(made.to_json()).log_median == made.log_median
    assert reading(samples=rows[:4]).to_json()["log10_median"] is None

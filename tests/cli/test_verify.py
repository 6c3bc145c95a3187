"""`normgauge verify` from the command line to the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from normgauge.cli import main
from normgauge.cli.gauge import gauge_json
from normgauge.core.symmetry import Symmetries
from normgauge.instrument.measure import readings
from tests.made import reading
from tests.made_certificates import FULL


@pytest.fixture(scope="module")
def measured() -> dict:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    return gauge_json(readings(model, torch.randn(3, 4), ("point", "global"), search=False))


@pytest.fixture
def verify(capsys):
    """Run the command; returns exit code, standard output and error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["verify", *map(str, arguments)])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


def test_a_measured_file_is_verified_and_says_what_was_not(verify, tmp_path, measured):
    (tmp_path / "a.json").write_text(json.dumps(measured))
    code, out, err = verify(tmp_path / "a.json")
    assert (code, err) == (0, "")
    assert " ".join(out.split()).startswith(f"verified: {tmp_path / 'a.json'}: 2 readings: every total recomposed")
    assert "not checked, as it needs the network" in out


def test_findings_come_one_a_line_with_their_scope(verify, tmp_path, measured):
    (tmp_path / "good.json").write_text(json.dumps(measured["readings"][0]))
    wrong = json.loads(json.dumps(measured))
    wrong["readings"][1]["log10_upper"] += 5
    (tmp_path / "bad.json").write_text(json.dumps(wrong))
    code, out, _ = verify(tmp_path / "good.json", tmp_path / "bad.json")
    assert code == 1
    assert f"{tmp_path / 'bad.json'}: global: log10_upper: stored" in out
    assert f"verified: {tmp_path / 'good.json'}: 1 reading:" in " ".join(out.split())


def test_the_fields_beside_several_readings_are_checked_too(verify, tmp_path, measured):
    (tmp_path / "a.json").write_text(json.dumps({**measured, "log10_upper": 0.0}))
    code, out, _ = verify(tmp_path / "a.json")
    assert code == 1 and out.count("\n") == 1
    assert f"{tmp_path / 'a.json'}: log10_upper: not the same at the top of the file (0.0) and in the first" in out
    gone = {key: value for key, value in {**measured, "log10_upper": 0.0}.items() if key != "scope"}
    (tmp_path / "a.json").write_text(json.dumps(gone))
    code, out, _ = verify(tmp_path / "a.json")
    assert code == 1 and out == f"{tmp_path / 'a.json'}: scope: missing at the top of the file\n"


def test_json(verify, tmp_path, measured):
    (tmp_path / "a.json").write_text(json.dumps(measured))
    code, out, _ = verify(tmp_path / "a.json", "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["verified"] is True and data["findings"] == {str(tmp_path / "a.json"): []}
    (tmp_path / "a.json").write_text('{"schema": 2, "log10_upper": NaN, "proof": {}}')
    code, out, _ = verify(tmp_path / "a.json", "--json", tmp_path / "findings.json")
    data = json.loads((tmp_path / "findings.json").read_text())
    assert code == 1 and data["verified"] is False
    assert any("is missing" in finding for finding in data["findings"][str(tmp_path / "a.json")])
    assert "is missing" in out


def test_an_older_reading_is_refused_with_its_writer(verify, tmp_path):
    reading().save(tmp_path / "old.json")
    code, out, err = verify(tmp_path / "old.json")
    assert code == 1 and err == "" and out.count("\n") == 1
    assert "it cannot be verified: normgauge 0." in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("{", "was the file cut?"),
        ("[]", "got schema None written by something that is not normgauge"),
        ('{"schema": 9, "normgauge": "7.0"}', "got schema 9 written by normgauge 7.0"),
        ('{"readings": []}', "expected a list of at least one reading, got []"),
        ('{"readings": 3}', "expected a list of at least one reading, got 3"),
        ('{"schema": 2, "proof": {}}', "the field 'model' is missing"),
    ],
    ids=["empty", "cut", "a list", "another schema", "no readings", "a number of readings", "a field is missing"],
)
def test_what_is_no_reading_takes_a_line_and_exit_code_one(verify, tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    code, out, err = verify(tmp_path / "a.json")
    assert code == 1 and "Traceback" not in err + out
    assert message in out + err


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere.json", "No such file"), ("", "Is a directory")], ids=["no file", "a folder"]
)
def test_what_cannot_be_read(verify, tmp_path, name, message):
    code, out, err = verify(tmp_path / name)
    assert code == 1 and out == "" and err.startswith("normgauge: ") and err.count("\n") == 1 and message in err


def test_a_file_that_is_no_text(verify, tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    code, _, err = verify(tmp_path / "a.json")
    assert code == 1 and err.count("\n") == 1


def test_findings_that_cannot_be_written(verify, tmp_path):
    code, _, err = verify(tmp_path / "a.json", "--json", "/nowhere/at/all.json")
    assert code == 1 and "cannot write" in err and err.count("\n") == 1


def test_an_unknown_reference_names_those_that_exist(verify):
    code, _, err = verify("reference:alexnet")
    assert code == 1 and "no reference called 'reference:alexnet'; expected one of" in err and "resnet20" in err


@pytest.mark.parametrize(
    ("stored", "named"),
    [(FULL, "a certificate"), (Symmetries("train", (), 0, 1), "a list of symmetries")],
    ids=["certificate", "symmetries"],
)
def test_another_file_of_ours_is_called_what_it_is(verify, tmp_path, stored, named):
    stored.save(tmp_path / "a.json")
    code, out, _ = verify(tmp_path / "a.json")
    assert code == 1 and out.endswith(
        f": expected a reading, got {named}, which stores no proof that could be checked\n"
    )

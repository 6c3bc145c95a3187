"""`normgauge verify` from the command line to the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from normgauge.cli import main
from normgauge.cli.gauge import gauge_json
from normgauge.core.checker import digest
from normgauge.instrument.measure import readings
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Gain, Transfer
from normgauge.loading import load_batch, load_model
from tests.made import reading


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
    assert (code, err) == (0, "") and out.count("\n") == 1
    assert out.startswith(f"verified: {tmp_path / 'a.json'}: 2 readings: every total recomposed")
    assert "not checked, as it needs the network" in out


def test_findings_come_one_a_line_with_their_scope(verify, tmp_path, measured):
    (tmp_path / "good.json").write_text(json.dumps(measured["readings"][0]))
    wrong = json.loads(json.dumps(measured))
    wrong["readings"][1]["log10_upper"] -= 0.5
    (tmp_path / "bad.json").write_text(json.dumps(wrong))
    code, out, _ = verify(tmp_path / "good.json", tmp_path / "bad.json")
    assert code == 1
    assert f"{tmp_path / 'bad.json'}: global: log10_upper: stored" in out
    assert f"verified: {tmp_path / 'good.json'}: 1 reading:" in out


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


NET = """\
import torch
from torch import nn

def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).eval()

def other():
    return build(1)

def batch():
    torch.manual_seed(2)
    return torch.randn(3, 4)

def another():
    return batch() + 1
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> tuple[Path, dict]:
    """A network as code, and its readings in three scopes as the command writes them."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "net.py").write_text(NET)
    options = ["--no-search", "--width", "0.01", "--json", str(folder / "a.json")]
    assert main(["gauge", f"{folder / 'net.py'}:build", "--batch", f"{folder / 'net.py'}:batch", *options]) == 0
    return folder / "net.py", json.loads((folder / "a.json").read_text())


def given(network: tuple[Path, dict], model: str = "build", batch: str | None = "batch") -> list[str]:
    path = network[0]
    return ["--model", f"{path}:{model}", *([] if batch is None else ["--batch", f"{path}:{batch}"])]


def test_measured_again_all_comes_out_the_same(verify, network):
    code, out, _ = verify(network[0].with_name("a.json"), *given(network))
    assert code == 0 and "every bound and every layer's gain measured again; not checked, that the same slopes" in out
    code, out, _ = verify(network[0].with_name("a.json"), *given(network, batch=None))
    assert code == 0 and "the digest of the weights compared; not checked, as it needs data (--batch)" in out
    code, out, _ = verify(network[0].with_name("a.json"), *given(network), "--json", "-")
    assert code == 0 and set(json.loads(out)) == {"schema", "verified", "findings", "checked", "not_checked"}


def test_other_weights_and_other_data_are_told_apart(verify, network):
    code, out, _ = verify(network[0].with_name("a.json"), *given(network, "other", None))
    assert code == 1 and out.count("weights_digest: the weights are not those that were measured") == 3
    code, out, _ = verify(network[0].with_name("a.json"), *given(network, batch="another"))
    assert code == 1 and "weights_digest" not in out
    assert "point: layers[1].log10_gain.upper: stored " in out and ", measured again " in out
    assert "global: log10_upper" not in out and "global: layers[1].log10_gain" not in out  # they need no data


def forged_gain(data: dict) -> None:
    """One gain, and all that follows from it in a chain."""
    less = 0.5
    step, record = data["proof"]["steps"][-1], data["layers"][-1]
    for column in ("log10_folded", "log10_balanced"):
        step[column] = [[g - less for g in gain] if isinstance(gain, list) else gain - less for gain in step[column]]
    step["log10_everywhere"] -= less
    for key in ("log10_folded", "log10_balanced", "log10_cumulative"):
        record[key] -= less
    tables = [record["log10_gain"], record["log10_spectral"], data["log10_loss"]]
    for table, keys in [
        *((table, tuple(table)) for table in tables),
        (data, ("log10_upper", "log10_folded", "log10_lower")),
        (data["published"], ("log10_P_w", "log10_theorem9")),
        *((row, ("log10_upper", "log10_lower")) for row in data["samples"]),
        *((other, ("log10_to_output",)) for other in data["layers"][:-1]),
    ]:
        for key in keys:
            table[key] -= less
    data["witness"]["output_change"] /= 10**less


def forged_scope(data: dict) -> None:
    """A point called global, with every fact the scope is tied to, as a forger would who knows them all."""
    data.update(scope="global")
    for row in data["samples"]:
        row["log10_upper"] = None
    data["proof"].update(samples=1, log10_radii=["inf"])
    for step in data["proof"]["steps"]:
        for column in ("log10_folded", "log10_balanced"):
            step[column] = [max(gain) if isinstance(gain, list) else gain for gain in step[column]]
        step["log10_radius"] = "inf"
        step["log10_everywhere"] = next(x for x in data["layers"] if x["name"] == step["layer"])["log10_gain"]["upper"]


@pytest.mark.parametrize("forge", [forged_gain, forged_scope])
def test_what_holds_together_and_was_resealed_is_still_found_by_measuring_again(verify, tmp_path, network, forge):
    data = json.loads(json.dumps(network[1]["readings"][0]))
    forge(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    code, out, _ = verify(tmp_path / "a.json")
    assert code == 1 and "digest: it is not that of the content" in out
    data["digest"] = digest(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert verify(tmp_path / "a.json")[0] == 0
    code, out, _ = verify(tmp_path / "a.json", *given(network))
    assert code == 1 and "log10_upper: stored " in out and "layers[" in out


def test_a_batch_needs_its_network_and_a_model_that_does_not_fit_is_named(verify, tmp_path, network):
    code, out, err = verify(network[0].with_name("a.json"), "--batch", f"{network[0]}:batch")
    assert code == 1 and "give --model too" in err and out == ""
    (tmp_path / "net.py").write_text(NET.replace("(3, 4)", "(3, 5)"))
    code, out, _ = verify(network[0].with_name("a.json"), *given((tmp_path / "net.py", {})))
    assert code == 1 and out.count("measured again: ") == 3 and "Traceback" not in out


def test_rules_of_the_users_are_named_where_they_are_missing(verify, tmp_path, network):
    def rule(step, incoming, ctx):
        """Larger than need be."""
        return Transfer((Gain(ctx.log(7.0)),))

    model = load_model(f"{network[0]}:build")
    found = readings(model, load_batch(f"{network[0]}:batch"), ("global",), rules=REGISTRY.extended({nn.ReLU: rule}))
    (tmp_path / "a.json").write_text(json.dumps(gauge_json(found)))
    code, out, _ = verify(tmp_path / "a.json", *given(network))
    assert code == 1 and "rules: user." in out and "that the command does not have" in out

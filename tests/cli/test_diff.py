"""`normgauge diff` from the command line to the exit code, on readings made by hand and on the references."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from normgauge.cli import main
from normgauge.cli.demo_networks import rescaled_twin
from normgauge.cli.gauge import gauge_json
from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import gauge
from tests.made import reading

ROOT = Path(__file__).parents[2]


@pytest.fixture
def diff(capsys):
    """Run the command; returns exit code, standard output and error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["diff", *map(str, arguments)])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


@pytest.fixture
def files(tmp_path):
    """A file of one scope, and one of two whose bounds are 0.5 decades above it."""
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    reading().save(a)
    grown = replace(reading(), log_upper=2.5 * LN10)
    b.write_text(json.dumps(gauge_json([grown, replace(grown, scope=Scope.parse("global"))])))
    return a, b


def test_a_difference_is_told_in_words_and_tables(diff, files):
    code, out, err = diff(*files)
    assert (code, err) == (0, "")
    assert "point: B's bound at the samples is 3.16 times A's (+0.50 decades)." in out
    assert "It cannot be divided among the layers" in out
    assert "Only one of the two was read in scope global." in out
    assert out.index("B's bound") < out.index("Totals") < out.index("Layers, scope point") < out.index("Published")


def test_the_shares_of_two_chains_name_the_layer(diff):
    code, out, _ = diff("reference:mlp-batchnorm", "reference:mlp-layernorm")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    out = " ".join(out.split())  # lines of 80 columns wrap
    assert "the largest parts are" in out and "layers.1.linear with layers.1.norm: BatchNorm1d → LayerNorm" in out
    assert "sample by sample B is steeper on 5, A on 27" in out  # the same 32 images
    assert "BatchNorm1d" in out and "→" in out and "LayerNorm" in out
    assert "the shares add up to the balanced bound's change" in out
    assert all(f"Layers, scope {scope}" in out for scope in ("point", "ball:0.1", "global"))


def test_a_reference_is_other_data_and_says_which(diff, tmp_path):
    own = replace(reading(), batch="sha256:mine", log_upper=9.0 * LN10)
    (tmp_path / "own.json").write_text(json.dumps(gauge_json([own, replace(own, scope=Scope.parse("ball:0.1"))])))
    code, out, _ = diff("reference:mlp-batchnorm", tmp_path / "own.json")
    out = " ".join(out.split())
    assert code == 0 and out.count("Measured on different samples") == 2 and "steeper" not in out
    assert "digits (Adam" in out and "Measured at the first 32 of them" in out


def test_json(diff, files, tmp_path):
    code, out, _ = diff(*files, "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["unmatched"] == ["global"] and data["a"] == str(files[0])
    (scope,) = data["scopes"]
    assert scope["scope"] == "point" and scope["log10_upper"]["change"] == pytest.approx(0.5)
    assert scope["verdict"][0].startswith("B's bound at the samples is 3.16 times A's")
    code, out, _ = diff(*files, "--json", tmp_path / "c.json")
    assert "Totals" in out and json.loads((tmp_path / "c.json").read_text()) == data


def test_scopes_that_do_not_meet_are_a_mistake(diff, files, tmp_path):
    replace(reading(), scope=Scope.parse("ball:0.1")).save(tmp_path / "c.json")
    code, out, err = diff(files[0], tmp_path / "c.json")
    assert code == 1 and out == "" and err.count("\n") == 1
    assert "no scope in common" in err and "has point" in err and "has ball:0.1" in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("{", "Expecting property name"),
        ('{"schema": 9, "normgauge": "7.0"}', "written by normgauge 7.0; open it with that version"),
        ('{"schema": 1}', "lacks the field 'model'"),
        ('{"readings": []}', "at least one reading"),
        ('[{"schema": 2}]', "expected an object, got a list"),
        ('{\n<<<<<<< HEAD\n"schema": 2\n=======\n"schema": 1\n>>>>>>> main\n}', "a merge conflict is in it"),
    ],
    ids=["empty", "cut", "another schema", "a field is missing", "no readings", "a list", "a merge conflict"],
)
def test_what_is_no_reading_takes_one_line(diff, files, tmp_path, content, message):
    (tmp_path / "c.json").write_text(content)
    for pair in ((files[0], tmp_path / "c.json"), (tmp_path / "c.json", files[0])):
        code, out, err = diff(*pair)
        assert code == 1 and out == ""
        assert err.startswith("normgauge: ") and err.count("\n") == 1 and message in err


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        ("nowhere.json", "a.json", (), "No such file"),
        ("a.json", "", (), "Is a directory"),
        ("a.json", "a.json", ("--json", "/nowhere/at/all.json"), "cannot write"),
    ],
    ids=["no file", "a folder", "nowhere to write"],
)
def test_what_cannot_be_read_or_written_takes_one_line(diff, files, tmp_path, a, b, options, message):
    code, _, err = diff(tmp_path / a, tmp_path / b, *options)
    assert code == 1 and err.startswith("normgauge: ") and err.count("\n") == 1 and message in err
    assert "Errno" not in err


def test_a_file_whose_top_level_does_not_repeat_its_first_reading(diff, files):
    data = json.loads(files[1].read_text())
    del data["scope"]
    files[1].write_text(json.dumps({**data, "log10_upper": 0.0}))
    code, out, err = diff(*files)
    assert (code, out) == (1, "") and err == f"normgauge: {files[1]}: scope: missing at the top of the file\n"


def test_different_samples_are_not_compared(diff, tmp_path):
    for name in "ab":
        replace(reading(), batch=f"sha256:{name}").save(tmp_path / f"{name}.json")
    code, out, _ = diff(tmp_path / "a.json", tmp_path / "b.json")
    assert code == 0 and "point: Measured on different samples" in " ".join(out.split()) and "Totals" not in out


@pytest.mark.parametrize(("limit", "message"), [("inf", "expected a finite number"), ("x", "a number, got 'x'")])
def test_a_limit_that_is_no_number(capsys, limit, message):
    with pytest.raises(SystemExit) as ended:
        main(["diff", "a", "b", "--fail-above", limit])
    assert ended.value.code == 1 and message in capsys.readouterr().err


def test_the_same_network_in_another_gauge_is_recognised(diff, tmp_path):
    """Channels under BatchNorm times 1,000: the function stays, and so does the bound; P_w moves by six decades."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    batch = torch.randn(5, 4, dtype=torch.float64)
    for name, log10_scale in (("a.json", 0.0), ("b.json", 3.0)):
        twin = rescaled_twin(model, batch, log10_scale, log10_scale)
        gauge(twin, batch, scope="global", search=False).save(tmp_path / name)
    code, out, _ = diff(tmp_path / "a.json", tmp_path / "b.json", "--fail-above", "0.01")
    assert code == 0
    assert "The bound everywhere is the same in A and B" in out
    assert "The same capacity in another gauge" in out and "P_w by +6.00" in out

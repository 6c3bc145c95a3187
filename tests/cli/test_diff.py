"""`normgauge diff` from the command line to the exit code, on readings made by hand and on the references."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    assert "Most of it comes from" in out and "layers.1.linear with layers.1.norm" in out
    assert "BatchNorm1d" in out and "→" in out and "LayerNorm" in out
    assert "the shares add up to the balanced bound's change" in out
    assert all(f"Layers, scope {scope}" in out for scope in ("point", "ball:0.1", "global"))


@pytest.mark.parametrize(("limit", "code"), [("0.6", 0), ("0.4", 3), ("-1", 3)])
def test_a_gate(diff, files, limit, code):
    found, _, err = diff(*files, "--fail-above", limit)
    assert found == code
    assert err.count("\n") == 1 and f"gate {'FAILED' if code else 'passed'}: the upper bound, scope point, grew" in err


def test_a_bound_that_became_infinite_does_not_pass_the_gate(diff, files, tmp_path):
    replace(reading(), log_upper=float("inf")).save(tmp_path / "inf.json")
    code, out, err = diff(files[0], tmp_path / "inf.json", "--fail-above", "100")
    assert code == 3 and "has no finite value any more" in err and "B has no finite bound" in out
    assert diff(tmp_path / "inf.json", tmp_path / "inf.json", "--fail-above", "0")[0] == 0


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
    ],
    ids=["empty", "cut", "another schema", "a field is missing", "no readings"],
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


def test_no_gate_is_held_against_a_file_that_was_edited(diff, files):
    data = json.loads(files[0].read_text())
    for one in data.get("readings", [data]):
        one["mode"] = "train" if one["mode"] == "eval" else "eval"
    files[0].write_text(json.dumps(data))
    code, out, err = diff(*files, "--fail-above", "9")
    assert code == 1 and not out and "edited after it was written" in err and str(files[0]) in err
    assert "A was edited after it was written" in " ".join(diff(*files)[1].split())


def test_no_gate_is_held_between_different_samples(diff, tmp_path):
    for name in "ab":
        replace(reading(), batch=f"sha256:{name}").save(tmp_path / f"{name}.json")
    code, out, err = diff(tmp_path / "a.json", tmp_path / "b.json", "--fail-above", "9")
    assert code == 1 and not out and "no gate is held: Measured on different samples" in err
    code, out, _ = diff(tmp_path / "a.json", tmp_path / "b.json")
    assert code == 0 and "point: Measured on different samples" in " ".join(out.split()) and "Totals" not in out


@pytest.mark.parametrize(("limit", "message"), [("inf", "expected a finite number"), ("x", "a number, got 'x'")])
def test_a_limit_that_is_no_number(capsys, limit, message):
    with pytest.raises(SystemExit) as ended:
        main(["diff", "a", "b", "--fail-above", limit])
    assert ended.value.code == 1 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "committed", "code"),
    [
        ({}, "reading.json", 0),
        ({"LIMIT": "0.2", "FIRST": "1"}, "nowhere.json", 3),
        ({"GROWTH": "9"}, "nowhere.json", 1),
    ],
    ids=["passes", "above the limit", "nothing to hold it against"],
)
def test_the_example_of_a_gate_runs(tmp_path, settings, committed, code):
    """The script as a pipeline runs it, on the network of the documentation."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    new = tmp_path / "new.json"
    done = subprocess.run(
        ["bash", "ci/gate.sh", "net.py:build", "net.py:batch", f"ci/{committed}", str(new)],
        cwd=ROOT / "examples",
        env={**os.environ, **settings, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert json.loads(new.read_text())["scope"] == "ball:0.1"
    assert f"verified: {new}" in " ".join(done.stdout.split())
    if not settings:
        assert "The bound within 0.1 of the samples is the same in A and B" in done.stdout
    if committed == "nowhere.json":
        said = "commit" if "FIRST" in settings else "no reading at ci/nowhere.json: nothing to hold"
        assert said in done.stderr


def test_the_workflow_runs_the_script():
    text = (ROOT / "examples" / "ci" / "normgauge.yml").read_text(encoding="utf-8")
    assert "bash ci/gate.sh net.py:build net.py:batch ci/reading.json new.json" in text
    for name, default in (("SCOPE", "ball:0.1"), ("LIMIT", "6"), ("GROWTH", "0.3")):
        assert f'{name}: "{default}"' in text
        assert f"${{{name}:-{default}}}" in (ROOT / "examples" / "ci" / "gate.sh").read_text(encoding="utf-8")


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

"""`normgauge explain` from the command line to the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from normgauge.cli import main
from normgauge.cli.gauge import gauge_json
from normgauge.core.bound import Scope
from tests.made import reading


@pytest.fixture
def explain(capsys, tmp_path):
    """Run the command on a file of two scopes; returns exit code, standard output and error."""
    path = tmp_path / "a.json"
    everywhere = replace(reading(), scope=Scope.parse("global"), layers=reading().layers[:2])
    path.write_text(json.dumps(gauge_json([reading(), everywhere])))

    def run(*arguments: str, file: str = str(path)) -> tuple[int, str, str]:
        code = main(["explain", file, *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


def test_a_layer_is_explained(explain):
    code, out, err = explain("f.1")
    assert (code, err) == (0, "") and out == reading().explain("f.1") + "\n"
    assert "at the samples" in out
    assert "everywhere" in explain("f.1", "--scope", "global")[1]


def test_without_a_layer_they_are_listed_with_their_kinds(explain):
    code, out, _ = explain()
    assert code == 0 and "MLP, scope point: 3 layers" in out
    assert [line.split() for line in out.splitlines()[-3:]] == [
        ["f.0", "Linear"],
        ["f.1", "BatchNorm1d"],
        ["head", "Linear"],
    ]
    assert "MLP, scope global: 2 layers" in explain("--scope", "global")[1]


def test_json(explain, tmp_path):
    code, out, _ = explain("f.1", "--json", "-")
    data = json.loads(out)
    told = {item["label"]: item["sentence"] for item in data["sentences"]}
    assert code == 0 and (data["schema"], data["layer"], data["kind"]) == (1, "f.1", "BatchNorm1d")
    assert told["note"] == "2 channels at the ε floor." and data["scope"] == "point"
    words = " ".join(f"{item['label']} {item['sentence']}" for item in data["sentences"])
    assert words.split() == reading().explain("f.1").partition("\n")[2].split()
    code, out, _ = explain("--json", str(tmp_path / "b.json"))
    assert code == 0 and "BatchNorm1d" in out
    assert json.loads((tmp_path / "b.json").read_text())["layers"][1] == {"name": "f.1", "kind": "BatchNorm1d"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("f.9",), "no layer 'f.9'"),
        (("f.1", "--scope", "ball:2"), "has no reading in scope ball:2; it has point, global"),
        (("f.1", "--scope", "everywhere"), "expected point (the samples), ball:RADIUS"),
        (("f.1", "--json", "/nowhere/at/all.json"), "cannot write"),
    ],
    ids=["layer", "scope", "no scope", "target"],
)
def test_a_mistake_is_one_line(explain, arguments, message):
    code, out, err = explain(*arguments)
    assert (code, out) == (1, "") and err.startswith("normgauge: ") and err.count("\n") == 1 and message in err


def test_a_damaged_file_is_one_line_with_its_name(explain, tmp_path):
    (tmp_path / "b.json").write_text(json.dumps({**reading().to_json(), "mode": None}))
    code, _, err = explain(file=str(tmp_path / "b.json"))
    assert code == 1 and err.count("\n") == 1
    assert f"{tmp_path / 'b.json'}: the reading holds a field of the wrong kind: mode: expected a text, got null" in err


def test_a_reference_is_explained_without_torch():
    script = "import sys; from normgauge.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    arguments = ["explain", "reference:resnet20", "conv1"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("conv1 (Conv2d): rule conv.convolution") and done.stdout.endswith("False\n")

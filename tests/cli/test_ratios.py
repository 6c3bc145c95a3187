"""`normgauge ratios`: a model against itself without normalizers, or two files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from normgauge.cli import main
from normgauge.core.bound import Scope
from tests.made import reading

NET = "examples/net.py"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for path, changes in zip(paths, ({}, {}, {"scope": Scope.parse("global")}), strict=True):
        reading(**changes).save(path)
    return [str(path) for path in paths]


def test_a_model_against_itself_without_normalizers(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    out = tmp_path / "ratios.json"
    assert main(["ratios", f"{NET}:build", "--batch", f"{NET}:batch", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "never iterations of this training" in " ".join(shown.split()) and "stem" in shown
    told = json.loads(out.read_text(encoding="utf-8"))
    layers = {layer["name"]: layer for layer in told["layers"]}
    assert list(layers) == ["stem", "up", "down", "head"] and told["scope"] == "point"
    assert layers["stem"]["normalizers"] == {"a": 2, "b": 0} and layers["stem"]["scale_free"]
    ratio = layers["stem"]["log10_a"] - layers["stem"]["log10_b"]
    assert layers["stem"]["log10_ratio"] == {"1": pytest.approx(ratio), "2": pytest.approx(2 * ratio)}


def test_two_files_without_torch(files, capsys):
    assert main(["ratios", files[0], files[1], "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(layer["name"], layer["log10_ratio"]["1"]) for layer in told["layers"]] == [("head", 0.0)]
    assert (told["a"], told["b"]) == tuple(files[:2])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([2], "no scope in common: the files have point and global"),
        ([1, "--scope", "global"], "no scope in common"),
        ([1, "--batch", "net.py:batch"], "got both"),
        ([1, "--scope", "nowhere"], "scope"),
    ],
    ids=["scopes", "scope asked", "batch", "no scope"],
)
def test_mistakes_take_one_line(files, capsys, more, said):
    rest = [files[part] if isinstance(part, int) else part for part in more]
    assert main(["ratios", files[0], *rest]) == 1
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1 and told.out == ""


def test_a_network_without_normalizers_has_nothing_to_compare(tmp_path, capsys):
    code = "import torch\ndef build(): return torch.nn.Linear(2, 2)\ndef batch(): return torch.ones(1, 2)\n"
    (tmp_path / "net.py").write_text(code, encoding="utf-8")
    name = str(tmp_path / "net.py")
    assert main(["ratios", f"{name}:build", "--batch", f"{name}:batch"]) == 1
    assert "no normalizer that is a module" in capsys.readouterr().err


def test_an_encoder_layer_of_torch_can_do_without_its_normalizers(tmp_path, capsys):
    """Its fast path looks at the normalizers' attributes, and must not be taken while others stand there."""
    net = tmp_path / "net.py"
    net.write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)\n"
        "    return nn.Sequential(layer, nn.Linear(8, 2)).eval()\n"
        "def batch():\n    return torch.ones(2, 3, 8)\n"
    )
    assert main(["ratios", f"{net}:build", "--batch", f"{net}:batch"]) == 0
    assert "normalizers from it on" in capsys.readouterr().out

"""`normgauge symmetries`."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from normgauge.cli import main

NET = "examples/net.py"


def run(*more: str) -> int:
    return main(["symmetries", f"{NET}:build", "--batch", f"{NET}:batch", *more])


def test_table_and_notes(capsys):
    assert run("--mode", "train") == 0
    text = " ".join(capsys.readouterr().out.split())  # lines wrap
    assert "change nothing" in text and "stem.weight" in text and "stem.bias" in text and "eval alone" in text


def test_without_a_mode_it_is_that_of_gauge(capsys):
    assert run() == 0
    assert "(eval mode)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_json_is_the_contract(capsys, mode):
    assert run("--mode", mode, "--json", "-") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["mode"] == mode and data["groups"]
    assert all({"parameters", "kind", "count", "defect"} <= set(group) for group in data["groups"])


def test_canonical_weights_are_written(capsys, tmp_path):
    target = tmp_path / "twin.safetensors"
    assert run("--canonical", str(target)) == 0
    weights = load_file(target)
    assert weights["stem.weight"].norm(dim=1).tolist() == pytest.approx([1.0] * 16, rel=1e-4)
    assert "canonical scales: eval output changed by" in capsys.readouterr().out


def test_mistakes_take_one_line(capsys, tmp_path):
    assert run("--canonical", str(tmp_path / "twin.pt")) == 1
    assert "ends in .safetensors" in capsys.readouterr().err
    assert main(["symmetries", f"{NET}:build", "--batch", f"{NET}:nothing"]) == 1
    assert capsys.readouterr().err.count("\n") == 1

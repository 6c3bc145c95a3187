"""`normgauge curvature` from the command line to the exit code."""

from __future__ import annotations

import json

import pytest

from normgauge.cli import main

NET = """\
import torch
import torch.nn.functional as F
from torch import nn

print("a line of the user's own")
number = 3


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))

def loss(output, target):
    return F.cross_entropy(output, target)

def vector(output, target):
    return F.cross_entropy(output, target, reduction="none")

def objective(model, batch):
    return F.cross_entropy(model(batch["x"]), batch["y"])

def pair():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    return x, x[:, :3].argmax(1)

def data():
    return torch.utils.data.TensorDataset(*pair())

def batches():
    x, y = pair()
    return [{"x": x, "y": y}]

def single():
    x, y = pair()
    return [(x[:1], y[:1])]
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET, encoding="utf-8")
    return str(path)


def test_the_contract_on_standard_output(net, capsys):
    code = main(["curvature", f"{net}:build", "--loss", f"{net}:loss", "--data", f"{net}:data", "--json", "-"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0 and len(shown["eigenvalues"]) == 5
    assert shown["mode"] == "eval" and shown["samples"] == 30
    assert shown["eigenvalues"][0]["residual"] < 1e-3 and "sharpness_scale_free" in shown


def test_table_and_page(net, tmp_path, capsys):
    page, file = tmp_path / "c.html", tmp_path / "c.json"
    code = main([
        "curvature", f"{net}:build", "--loss", "torch.nn:CrossEntropyLoss", "--data", f"{net}:data", "--mode", "train",
        "--top", "2", "--density", "--precision", "float64", "--html", str(page), "--json", str(file),
    ])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    assert "Sequential, mode train, 83 parameters, 30 samples in 1 batch, float64" in out
    assert "λ2" in out and "λ3" not in out and "condition number" in out and "Layers" in out
    written = page.read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>") and written.count("<svg") == 2
    assert (
        "<polyline" in written
        and "scale-free sharpness" in written
        and "http" not in written.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    )
    assert json.loads(file.read_text())["density"]["size"] == 83


def test_an_objective_and_no_layers(net, capsys):
    code = main([
        "curvature", f"{net}:build", "--objective", f"{net}:objective", "--data", f"{net}:batches", "--no-layers",
    ])  # fmt: skip
    assert code == 0 and "λ1 of its block" in capsys.readouterr().out


MISTAKES = {
    "a vector": (["--loss", "{net}:vector", "--data", "{net}:data"], "got shape (30,) on batch 0"),
    "no function": (["--loss", "{net}:number", "--data", "{net}:data"], "expected a function, got int"),
    "no such loss": (["--loss", "{net}:nothing", "--data", "{net}:data"], "has no 'nothing'"),
    "no place": (["--loss", "loss", "--data", "{net}:data"], "expected file.py:function"),
    "one sample": (["--loss", "{net}:loss", "--data", "{net}:single", "--mode", "train"], "one value a channel at 1"),
    "top": (["--loss", "{net}:loss", "--data", "{net}:data", "--top", "0"], "at least 1 eigenvalue"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_1(name, net, capsys):
    given, message = MISTAKES[name]
    code = main(["curvature", f"{net}:build", *(part.format(net=net) for part in given)])
    error = capsys.readouterr().err.splitlines()[-1]
    assert code == 1 and message in error and "Traceback" not in error


def test_a_loss_must_be_given(net, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["curvature", f"{net}:build", "--data", f"{net}:data"])
    assert ended.value.code == 1 and "--loss" in capsys.readouterr().err

"""`normgauge radius` from the command line to the exit code."""

from __future__ import annotations

import json

import pytest

from normgauge.advice.certified import predictions
from normgauge.cli import main
from normgauge.core.certified import CertifiedRadii
from tests.advice.certified.test_predictions import Boastful

NET = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

print("a line of the user's own")
x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))

def build():
    torch.manual_seed(0)
    return nn.Linear(4, 3)

def batch(): return x
def labels(): return build()(x).argmax(1)
def wrong(): return (labels() + 1) % 3
def pair(): return x, wrong()
def loader(): return DataLoader(TensorDataset(x, wrong()), batch_size=6)
def few(): return [0, 1]
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET, encoding="utf-8")
    return str(path)


def test_table_page_and_json(net, tmp_path, capsys):
    page, file = tmp_path / "r.html", tmp_path / "r.json"
    code = main(["radius", f"{net}:build", "--batch", f"{net}:batch", "--html", str(page), "--json", str(file)])
    out = capsys.readouterr().out
    assert code == 0 and out.startswith("Linear, 3 classes, 6 samples, attacked by 4 descents of 40 steps a sample\n")
    assert "6 of 6 predictions are certified (6 proved)" in out and "own" not in out
    assert page.read_text(encoding="utf-8").count("<svg") == 2
    found = CertifiedRadii.from_json(json.loads(file.read_text()))
    assert len(found.samples) == 6 and found.weights.startswith("sha256:")


@pytest.mark.parametrize(
    ("batch", "labels", "right"),
    [("batch", "labels", 6), ("batch", "wrong", 0), ("pair", None, 0), ("loader", None, 0), ("loader", "labels", 6)],
)
def test_labels_come_from_the_option_or_with_the_batch(net, capsys, batch, labels, right):
    given = [] if labels is None else ["--labels", f"{net}:{labels}"]
    code = main(["radius", f"{net}:build", "--batch", f"{net}:{batch}", *given, "--restarts", "0", "--json", "-"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0 and sum(s["radius"] > 0 for s in shown["samples"]) == right
    assert all(s["label"] is not None for s in shown["samples"]) and shown["attack"] == {}


def test_data_of_the_zoo_bring_their_labels(capsys):
    pytest.importorskip("sklearn")
    code = main(["radius", "torch.nn:Identity", "--batch", "zoo:digits", "--restarts", "0", "--json", "-"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0 and len({s["label"] for s in shown["samples"]}) == 10


def test_a_contradiction_has_an_exit_code_of_its_own(net, capsys, monkeypatch):
    monkeypatch.setattr(predictions, "ENGINES", (Boastful,))
    assert main(["radius", f"{net}:build", "--batch", f"{net}:batch"]) == 4
    assert "REFUTED: boast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--batch", "{net}:few"], "batch: expected"),
        ([], "a batch is needed"),
        (["--batch", "{net}:batch", "--labels", "{net}:few"], "labels: expected 6 class numbers"),
        (["--batch", "{net}:batch", "--labels", "{net}:none"], "has no 'none'"),
        (["--batch", "{net}:batch", "--steps", "0"], "expected a whole number, 1 or more"),
        (["--batch", "{net}:batch", "--effort", "much"], "invalid choice: 'much'"),
        (["--batch", "{net}:batch", "--json", "/none/r.json"], "cannot write"),
    ],
)
def test_a_mistake_takes_one_line(net, capsys, extra, said):
    try:
        code = main(["radius", f"{net}:build", *(part.format(net=net) for part in extra)])
    except SystemExit as end:
        code = end.code
    shown = capsys.readouterr()
    assert code == 1 and said in shown.err and not shown.out
    assert len([line for line in shown.err.splitlines() if line.startswith("normgauge")]) == 1

"""`normgauge certify` from the command line to the exit code; the certificate itself is made by hand."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from normgauge.certificates import table
from normgauge.cli import main
from normgauge.core.certificate import Certificate, RowKind
from normgauge.core.errors import InputError
from normgauge.render.certificate_families import EXPLAINED, SPEAKING
from tests.made_certificates import FULL, NOTHING

DOCS = Path(__file__).parents[2] / "docs" / "certificates.md"
NET = """\
import torch
from torch import nn

print("a line of the user's own")


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 3))

def train():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    return x, x[:, :3].argmax(1)

def holdout():
    return torch.utils.data.TensorDataset(*train())

def fresh():
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(2))
    return x, x[:, :3].argmax(1)

def unlabeled():
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(3))

def scenes():
    return [0] * 15 + [1] * 15

def broken():
    raise ValueError("no such file")
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET, encoding="utf-8")
    return str(path)


@pytest.fixture
def asked(monkeypatch) -> dict[str, Any]:
    """What the command asked for; the answer is a certificate made by hand."""
    seen: dict[str, Any] = {}

    def certify(model: nn.Module, train: object, holdout: object = None, **more: Any) -> Certificate:
        seen.update(model=model, train=train, holdout=holdout, **more)
        return FULL

    monkeypatch.setitem(vars(table), "certify", certify)
    return seen


def test_the_contract_on_standard_output(net, asked, capsys):
    assert (
        main(["certify", f"{net}:build", "--train", f"{net}:train", "--holdout", f"{net}:holdout", "--json", "-"]) == 0
    )
    told = json.loads(capsys.readouterr().out)  # nothing but JSON, though the user's file prints
    assert len(told["rows"]) == 20 and told["delta"] == 0.05
    for row in told["rows"]:
        assert {"name", "kind", "value", "terms", "consumed"} <= set(row)
        assert row["kind"] in ("bound", "estimate", "score", "vacuous", "not applicable")
    assert next(row for row in told["rows"] if row["key"] == "corollary22.global")["value"] == "inf"
    assert Certificate.from_json(told) == FULL


def test_table_page_and_file(net, asked, tmp_path, capsys):
    page, file = tmp_path / "c.html", tmp_path / "c.json"
    code = main([
        "certify", f"{net}:build", "--train", f"{net}:train", "--html", str(page), "--json", str(file),
    ])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0 and out.startswith("Promise: on unseen data from the same source this network errs")
    assert "Littlestone" not in out and re.search(r"\nTook \d+ s\.\n$", out)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Certificate.from_json(json.loads(file.read_text(encoding="utf-8"))) == FULL


def test_every_option_arrives(net, asked, capsys):
    code = main([
        "certify", f"{net}:build", "--train", f"{net}:train", "--holdout", f"{net}:holdout", "--unlabeled",
        f"{net}:unlabeled", "--encoder", "0", "--delta", "0.01", "--loss", "cross-entropy", "--clip", "4",
        "--epochs", "0", "--seed", "7", "--cells", "30", "--all", "--tries", "12", "--groups", f"{net}:scenes",
        "--data-free", "0.0.weight", "--data-free", "0.0.bias", "--radius", "0.1",
    ])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0 and "Littlestone" in out
    assert asked["encoder"] == "0" and len(asked["train"][0]) == 30 and len(asked["holdout"]) == 30
    assert asked["unlabeled"].shape == (5, 4)
    rest = {name: asked[name] for name in ("delta", "cells", "loss", "clip", "epochs", "seed", "tries", "radius")}
    assert rest == {
        "delta": 0.01, "cells": 30, "loss": "cross-entropy", "clip": 4.0, "epochs": 0, "seed": 7, "tries": 12,
        "radius": 0.1,
    }  # fmt: skip
    assert asked["data_free"] == ("0.0.weight", "0.0.bias") and asked["groups"] == [0] * 15 + [1] * 15


def test_what_is_not_given_is_none(net, asked, capsys):
    assert main(["certify", f"{net}:build", "--train", f"{net}:train"]) == 0
    assert all(asked[name] is None for name in ("holdout", "unlabeled", "encoder", "clip", "groups", "radius"))
    assert asked["tries"] == 1 and asked["data_free"] == ()
    assert (asked["delta"], asked["loss"], asked["epochs"], asked["seed"]) == (0.05, "ramp", None, 0)


MISTAKES = {
    "nothing": ([], "expected MODEL and --train"),
    "no train": (["{net}:build"], "expected --train too"),
    "demo and model": (["{net}:build", "--demo", "mnist"], "leave out MODEL"),
    "demo and data": (["--demo", "mnist", "--holdout", "{net}:holdout"], "leave out --holdout"),
    "demo and settings": (["--demo", "mnist", "--cells", "5", "--clip", "2"], "leave out --cells, --clip"),
    "demo and tries": (["--demo", "mnist", "--tries", "2", "--data-free", "a"], "leave out --tries, --data-free"),
    "a folder without a demo": (["{net}:build", "--train", "{net}:train", "--data-dir", "d"], "goes with --demo"),
    "clip without a loss": (["{net}:build", "--train", "{net}:train", "--clip", "3"], "--clip goes with --loss cross-"),
    "no such data": (["{net}:build", "--train", "{net}:nothing"], "has no 'nothing'; its functions: build, train"),
    "no place": (["{net}:build", "--train", "train"], "--train 'train': expected file.py:function"),
    "broken data": (["{net}:build", "--train", "{net}:broken"], "broken raised ValueError: no such file"),
    "no folder": (["{net}:build", "--train", "{net}:train", "--html", "/no/such/folder/a.html"], "cannot write"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_1(name, net, asked, capsys):
    given, message = MISTAKES[name]
    assert main(["certify", *(part.format(net=net) for part in given)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error and error.startswith("normgauge: ") and asked == {}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--delta", "0", "between 0 and 1"), ("--delta", "5", "between 0 and 1"), ("--delta", "x", "expected a number"),
        ("--epochs", "-1", "0 or more"), ("--epochs", "two", "0 or more"), ("--clip", "0", "positive"),
        ("--tries", "0", "1 or more"), ("--tries", "many", "1 or more"), ("--radius", "-1", "positive"),
        ("--loss", "hinge", "invalid choice"), ("--demo", "imagenet", "invalid choice"),
    ],
    ids=lambda part: str(part).replace(" ", "-"),
)  # fmt: skip
def test_a_wrong_number_is_exit_code_1(option, value, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["certify", "net.py:build", "--train", "net.py:train", option, value])
    assert ended.value.code == 1 and message in capsys.readouterr().err


def test_what_certify_refuses_is_one_line(net, asked, monkeypatch, capsys):
    def refuse(*_: Any, **__: Any) -> Certificate:
        raise InputError("train and hold-out share 12 samples;\n take them out of one")

    monkeypatch.setitem(vars(table), "certify", refuse)
    assert main(["certify", f"{net}:build", "--train", f"{net}:train"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("share 12 samples; take them out of one")


def test_an_interrupt_ends_quietly_and_writes_nothing(net, asked, monkeypatch, tmp_path, capsys):
    def interrupted(*_: Any, **__: Any) -> Certificate:
        raise KeyboardInterrupt

    monkeypatch.setitem(vars(table), "certify", interrupted)
    page = tmp_path / "c.html"
    assert main(["certify", f"{net}:build", "--train", f"{net}:train", "--html", str(page)]) == 130
    told = capsys.readouterr()
    assert told.out == "" and "Traceback" not in told.err and not page.exists()


def test_the_demo_brings_its_own_network(monkeypatch, capsys):
    seen: dict[str, Any] = {}
    module = ModuleType("normgauge.certificates.demo")

    def feature_certificate(name: str, **more: Any) -> Certificate:
        seen.update(name=name, **more)
        return NOTHING

    module.feature_certificate = feature_certificate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert main(["certify", "--demo", "fashion-mnist", "--seed", "3", "--delta", "0.1", "--data-dir", "d"]) == 0
    assert seen["name"] == "fashion-mnist" and seen["seed"] == 3 and seen["delta"] == 0.1 and seen["folder"] == "d"
    assert capsys.readouterr().out.startswith("Nothing can be promised")


def test_the_real_thing_and_the_page_that_lists_its_rows(net, tmp_path, capsys):
    page = tmp_path / "c.html"
    code = main([
        "certify", f"{net}:build", "--train", f"{net}:train", "--holdout", f"{net}:fresh", "--unlabeled",
        f"{net}:unlabeled", "--encoder", "0", "--epochs", "0", "--json", "-", "--html", str(page),
    ])  # fmt: skip
    found = Certificate.from_json(json.loads(capsys.readouterr().out))
    assert code == 0 and page.read_text(encoding="utf-8").count("<tr data-kind") == len(found.rows)
    assert found.row("holdout.clopper_pearson").kind is RowKind.BOUND
    spoken = {row.key for row in found.rows if row.family != "score"}
    assert spoken <= set(SPEAKING), "every row that may promise has its place in the order"
    assert {row.family for row in found.rows} <= set(EXPLAINED)
    keys = [row.key for row in found.rows]
    assert len(set(keys)) == len(keys) > 60
    listed = set(re.findall(r"^\| `([\w.-]+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    inputs = {key for key in keys if not key.startswith("features.")}
    assert listed == inputs | {key for key in keys if key.removeprefix("features.") not in inputs}

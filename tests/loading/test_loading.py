from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from normgauge.core.errors import LoadError
from normgauge.lab.zoo import cifar_resnet
from normgauge.loading import find_batch, load_batch, load_model

NET = """\
import torch
from torch import nn
from helper_of_net import WIDTH

calls = []
ready = nn.Linear(3, 3)
number = 3

def build():
    calls.append("build")
    return nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU())

def batch():
    return torch.ones(2, WIDTH)

def wants(size):
    return nn.Linear(size, size)

def fails():
    raise RuntimeError("no\\nluck")

def text():
    return "a model"
"""


@pytest.fixture
def net(tmp_path):
    (tmp_path / "helper_of_net.py").write_text("WIDTH = 3\n")
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


class Boom:
    """An object whose unpickling would leave a mark."""

    def __reduce__(self):
        return exec, ("open('executed', 'w').close()",)


def refusal(load, spec) -> str:
    with pytest.raises(LoadError) as caught:
        load(str(spec))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_function_in_a_file_with_its_neighbours(net):
    model = load_model(f"{net}:build")
    assert isinstance(model, nn.Sequential)
    assert load_batch(f"{net}:batch").shape == (2, 3)
    assert isinstance(load_model(f"{net}:ready"), nn.Linear)
    assert load_batch(f"{net}:number") == 3


def test_a_batch_is_found_before_it_is_drawn(net, tmp_path):
    draw = find_batch(f"{net}:fails")
    with pytest.raises(LoadError, match="raised RuntimeError: no luck"):
        draw()
    np.save(tmp_path / "a.npy", np.ones((2, 3)))
    kept = find_batch(str(tmp_path / "a.npy"))
    (tmp_path / "a.npy").unlink()
    assert kept().shape == (2, 3)
    assert find_batch("zoo:digits")().shape == (100, 64)
    for spec, message in ((f"{net}:nowhere", "has no 'nowhere'"), (f"{net}:wants", "one that needs size")):
        assert message in refusal(find_batch, spec)
    assert "known: digits" in refusal(find_batch, "zoo:letters")


def test_a_callable_of_a_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_package_of_nets.py").write_text("from torch import nn\ndef net(): return nn.Linear(2, 2)\n")
    assert isinstance(load_model("my_package_of_nets:net"), nn.Linear)
    assert isinstance(load_model("torch.nn:Identity"), nn.Identity)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wants", "expected a function without arguments, got one that needs size"),
        ("fails", "raised RuntimeError: no luck"),
        ("text", "expected a torch.nn.Module, got str"),
        ("buidl", "has no 'buidl'; its functions: build, batch"),
    ],
)
def test_a_wrong_function_is_told_apart(net, name, message):
    assert message in refusal(load_model, f"{net}:{name}")


def test_a_wrong_place_is_told_apart(tmp_path):
    assert "no such file" in refusal(load_model, tmp_path / "none.py:build")
    assert "expected file.py:function" in refusal(load_model, "net.py")
    assert "expected file.py:function" in refusal(load_model, ":build")
    assert "ModuleNotFoundError" in refusal(load_model, "no_such_package_here:build")
    (tmp_path / "broken.py").write_text("import torch\n1 / 0\n")
    assert "importing it raised ZeroDivisionError" in refusal(load_model, tmp_path / "broken.py:build")


def test_a_zoo_name_with_and_without_weights(tmp_path):
    twin = cifar_resnet(20)
    for name in ("weights.safetensors", "weights.pt"):
        path = tmp_path / name
        save_file(twin.state_dict(), path) if path.suffix == ".safetensors" else torch.save(twin.state_dict(), path)
        loaded = load_model(f"zoo:resnet20@{path}")
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), twin.parameters(), strict=True))
    assert isinstance(load_model("zoo:mlp"), nn.Module)
    assert "no network called 'resnet21'" in refusal(load_model, "zoo:resnet21")
    assert "does not exist" in refusal(load_model, f"zoo:resnet20@{tmp_path / 'none.pt'}")


def test_weights_alone_are_no_model(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "weights.pt")
    assert "zoo:NAME@" in refusal(load_model, tmp_path / "weights.pt")
    assert "no such file" in refusal(load_model, tmp_path / "weights.safetensors")
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    assert "holds pickled Python objects" in refusal(load_model, tmp_path / "model.pt")


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_is_refused_and_nothing_executed(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    torch.save({"a": Boom()}, path) if how == "torch" else path.write_bytes(pickle.dumps(Boom()))
    for load, spec in ((load_model, f"zoo:resnet20@{path}"), (load_batch, path)):
        message = refusal(load, spec)
        assert "refused" in message and "convert it" in message
    assert not (tmp_path / "executed").exists()


def test_a_batch_of_the_zoo():
    assert load_batch("zoo:digits").shape == (100, 64)
    assert "known: digits" in refusal(load_batch, "zoo:letters")


def test_without_a_batch_the_error_says_how_to_give_one():
    with pytest.raises(LoadError, match=r"--batch with file\.py:function"):
        load_batch(None)

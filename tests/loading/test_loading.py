from __future__ import annotations

import json
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


def test_batches_from_files(tmp_path):
    wanted = torch.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", wanted.numpy())
    torch.save(wanted, tmp_path / "a.pt")
    save_file({"x": wanted}, tmp_path / "a.safetensors")
    for name in ("a.npy", "a.pt", "a.safetensors"):
        assert torch.equal(load_batch(str(tmp_path / name)), wanted)
    save_file({"x": wanted, "mask": wanted.clone()}, tmp_path / "b.safetensors")
    assert load_batch(str(tmp_path / "b.safetensors")).keys() == {"x", "mask"}


@pytest.mark.parametrize("name", ["a.npy", "a.pt", "a.safetensors"])
def test_a_damaged_or_missing_file_is_refused(tmp_path, name):
    assert "no such file" in refusal(load_batch, tmp_path / name)
    (tmp_path / name).write_bytes(b"not tensors at all")
    assert str(tmp_path / name) in refusal(load_batch, tmp_path / name)


def test_a_pickled_array_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "cannot be read" in refusal(load_batch, tmp_path / "a.npy")


LOADERS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from normgauge.lab.zoo import Split

x, labels, mask = torch.ones(5, 3), torch.arange(5), torch.ones(5, 3)

def plain(): return TensorDataset(x)
def labelled(): return TensorDataset(x, labels)
def masked(): return TensorDataset(x, mask)
def loader(): return DataLoader(labelled(), batch_size=2)
def split(): return Split(x, labels)
def both(): return x, labels
def stream(): return DataLoader([{"x": x[0]}], batch_size=1)
"""


@pytest.mark.parametrize(("name", "size"), [("plain", 5), ("labelled", 5), ("loader", 2), ("split", 5)])
def test_a_loader_or_data_set_gives_its_first_batch_without_labels(tmp_path, name, size):
    (tmp_path / "loaders.py").write_text(LOADERS)
    assert load_batch(f"{tmp_path / 'loaders.py'}:{name}").shape == (size, 3)


def test_a_batch_of_several_inputs_is_kept_whole(tmp_path):
    (tmp_path / "loaders.py").write_text(LOADERS)
    assert [part.shape for part in load_batch(f"{tmp_path / 'loaders.py'}:masked")] == [(5, 3), (5, 3)]
    assert len(load_batch(f"{tmp_path / 'loaders.py'}:both")) == 2
    assert load_batch(f"{tmp_path / 'loaders.py'}:stream")["x"].shape == (1, 3)


def test_a_batch_of_the_zoo():
    assert load_batch("zoo:digits").shape == (100, 64)
    assert "known: digits" in refusal(load_batch, "zoo:letters")


def test_without_a_batch_the_error_says_how_to_give_one():
    with pytest.raises(LoadError, match=r"--batch with file\.py:function"):
        load_batch(None)


@pytest.mark.llm
class TestHuggingFace:
    @pytest.fixture
    def folder(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        config = transformers.BertConfig(**small, vocab_size=11, max_position_embeddings=8)
        self.model = transformers.BertModel(config)
        self.model.save_pretrained(tmp_path)
        return tmp_path

    def test_with_weights(self, folder):
        loaded = load_model(str(folder))
        assert type(loaded).__name__ == "BertModel"
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), self.model.parameters(), strict=True))

    def test_from_the_configuration_alone(self, folder):
        (folder / "model.safetensors").unlink()
        assert type(load_model(str(folder))).__name__ == "BertModel"
        described = json.loads((folder / "config.json").read_text())
        del described["architectures"]
        (folder / "config.json").write_text(json.dumps(described))
        assert type(load_model(str(folder))).__name__ == "BertModel"

    def test_its_own_code_is_never_run(self, folder):
        (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "modeling.Net"}}))
        assert "which is never run" in refusal(load_model, folder)

    def test_pickled_weights_are_refused(self, folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        assert "its weights are pickled" in refusal(load_model, folder)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "expected JSON"),
            ("[]", "expected a JSON object"),
            ("{}", "could not build it"),
            (None, "with a config.json, got none"),
        ],
    )
    def test_a_folder_that_is_none(self, folder, content, message):
        (folder / "config.json").unlink() if content is None else (folder / "config.json").write_text(content)
        assert message in refusal(load_model, folder)

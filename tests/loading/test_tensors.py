"""Tensors from files, nothing executed, and the first batch of a loader."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from normgauge.core.errors import LoadError
from normgauge.loading import find_labelled, load_batch


def refusal(load, spec) -> str:
    with pytest.raises(LoadError) as caught:
        load(str(spec))
    message = str(caught.value)
    assert "\n" not in message
    return message


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


@pytest.mark.parametrize(
    ("name", "labels"), [("labelled", 5), ("loader", 2), ("split", 5), ("plain", None), ("masked", None)]
)
def test_labels_can_be_had_apart(tmp_path, name, labels):
    (tmp_path / "loaders.py").write_text(LOADERS)
    _, found = find_labelled(f"{tmp_path / 'loaders.py'}:{name}")()
    assert found is None if labels is None else torch.equal(found, torch.arange(labels))


def test_a_batch_of_several_inputs_is_kept_whole(tmp_path):
    (tmp_path / "loaders.py").write_text(LOADERS)
    assert [part.shape for part in load_batch(f"{tmp_path / 'loaders.py'}:masked")] == [(5, 3), (5, 3)]
    assert len(load_batch(f"{tmp_path / 'loaders.py'}:both")) == 2
    assert load_batch(f"{tmp_path / 'loaders.py'}:stream")["x"].shape == (1, 3)

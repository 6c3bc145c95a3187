"""The data sets, from small files written here in each layout."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from normgauge.core.errors import InputError, LoadError
from normgauge.lab.zoo import cifar10, digits, mnist, tinyshakespeare
from tests.lab.zoo.written import idx, pixels, same


def test_digits() -> None:
    train, test = digits("train"), digits("test")
    assert train.inputs.shape == (1442, 64)
    assert len(test) == 355
    assert (float(train.inputs.min()), float(train.inputs.max())) == (0.0, 1.0)
    shares = torch.bincount(test.labels) / (torch.bincount(train.labels) + torch.bincount(test.labels))
    assert ((shares > 0.19) & (shares < 0.21)).all()
    everything = torch.cat([train.inputs, test.inputs])
    assert len(everything) == 1797
    assert torch.equal(digits("test", limit=7).inputs, test.inputs[:7])


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(LoadError, match="pip install scikit-learn"):
        digits()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["mnist", "MNIST/raw", "."])
def test_mnist_from_idx(tmp_path: Path, packed: bool, place: str) -> None:
    images, folder = pixels(3, 28, 28), tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3", images), ("labels-idx1", np.array([7, 0, 9], np.uint8))):
        raw = idx(array)
        (folder / f"t10k-{name}-ubyte{'.gz' if packed else ''}").write_bytes(gzip.compress(raw) if packed else raw)
    same(mnist("test", folder=tmp_path), images[:, None], [7, 0, 9])
    same(mnist("test", folder=tmp_path, limit=1), images[:1, None], [7])


def test_files_that_do_not_match_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(pixels(2, 3, 3)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(LoadError, match="do not match"):
        mnist(folder=tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(bytes(3072))
    with pytest.raises(LoadError, match="3,073"):
        cifar10("test", folder=tmp_path)
    with pytest.raises(InputError, match="'train' or 'test'"):
        mnist("valid", folder=tmp_path)  # type: ignore[arg-type]


def test_tinyshakespeare(tmp_path: Path) -> None:
    text = "abcab" * 40
    (tmp_path / "input.txt").write_text(text)
    split = tinyshakespeare("train", folder=tmp_path, context=7)
    assert split.classes == ("a", "b", "c")
    assert split.inputs.shape == (25, 7)  # 180 characters, each window with one to look ahead at
    assert "".join(split.classes[k] for k in split.inputs.flatten()) == text[:175]
    assert "".join(split.classes[k] for k in split.labels.flatten()) == text[1:176]
    assert len(tinyshakespeare("test", folder=tmp_path, context=7)) == 2
    with pytest.raises(InputError, match="context=200"):
        tinyshakespeare(folder=tmp_path, context=200)

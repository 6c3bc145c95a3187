"""The data sets, from small files written here in each layout."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from normgauge.core.errors import InputError, LoadError
from normgauge.lab.zoo import Split, cifar10, digits, fashion_mnist, mnist, tinyshakespeare


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def same(split: Split, images: NDArray[np.uint8], labels: list[int]) -> None:
    assert (split.inputs.dtype, split.labels.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(split.inputs, torch.tensor(images / 255.0, dtype=torch.float32))
    assert split.labels.tolist() == labels


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


def test_split_views() -> None:
    split = digits(limit=6)
    assert split.first(2).inputs.shape == (2, 64)
    assert split.shaped(1, 8, 8).inputs.shape == (6, 1, 8, 8)
    image = Split(torch.full((1, 2, 1, 1), 0.5), torch.zeros(1, dtype=torch.int64))
    assert image.normalized((0.5, 0.0), (1.0, 0.25)).inputs.flatten().tolist() == [0.0, 2.0]


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


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pixels(2, 28, 28)
    for folder in (tmp_path, tmp_path / "fashion_mnist"):
        folder.mkdir(exist_ok=True)
        (folder / "train-images.idx3-ubyte").write_bytes(idx(images))
        (folder / "train-labels.idx1-ubyte").write_bytes(idx(np.array([1, 2], np.uint8)))
    monkeypatch.setenv("NORMGAUGE_DATA", str(tmp_path))
    same(fashion_mnist(), images[:, None], [1, 2])
    with pytest.raises(LoadError, match=r"found no train-images.*mnist.*https://"):
        mnist()  # loose files in a folder shared by all sets could be any of them


def test_nowhere_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NORMGAUGE_DATA", raising=False)
    for reader in (mnist, fashion_mnist, cifar10, tinyshakespeare):
        with pytest.raises(LoadError, match=r"NORMGAUGE_DATA.*https://"):
            reader()


@pytest.mark.parametrize("reader", [mnist, cifar10])
def test_npz(tmp_path: Path, reader: object) -> None:
    name, shape = ("mnist", (4, 28, 28)) if reader is mnist else ("cifar10", (4, 32, 32, 3))
    images, labels = pixels(*shape), np.array([[3], [1], [4], [1]])
    np.savez(tmp_path / f"{name}.npz", x_train=images, y_train=labels)
    wanted = images[:, None] if reader is mnist else images.transpose(0, 3, 1, 2)
    same((mnist if reader is mnist else cifar10)("train", folder=tmp_path), wanted, [3, 1, 4, 1])
    with pytest.raises(LoadError, match="x_test"):
        (mnist if reader is mnist else cifar10)("test", folder=tmp_path)


def test_npz_of_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar10.npz", x_test=np.array([Bomb(tmp_path / "ran")], dtype=object), y_test=np.array([0]))
    with pytest.raises(LoadError, match=r"cifar10\.npz"):
        cifar10("test", folder=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_cifar_binary(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    images, labels = pixels(10, 3, 32, 32), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    for k in range(5):
        rows = [bytes([labels[i]]) + images[i].tobytes() for i in (2 * k, 2 * k + 1)]
        (folder / f"data_batch_{k + 1}.bin").write_bytes(b"".join(rows))
    same(cifar10("train", folder=tmp_path), images, labels)
    same(cifar10("train", folder=folder, limit=3), images[:3], labels[:3])
    with pytest.raises(LoadError, match="test_batch"):
        cifar10("test", folder=tmp_path)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("spell", [str, str.encode])
def test_cifar_pickle(tmp_path: Path, protocol: int, spell: object) -> None:
    images = pixels(2, 3, 32, 32)
    keys = [key.encode() if spell is str.encode else key for key in ("data", "labels", "filenames")]
    batch = dict(zip(keys, (images.reshape(2, 3072), [8, 5], ["a.png", "b.png"]), strict=True))
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=protocol))
    same(cifar10("test", folder=tmp_path), images, [8, 5])


def test_cifar_pickle_as_python_2_wrote_it(tmp_path: Path) -> None:
    """The opcodes of the published files: byte strings for everything, numpy.core, protocol 2."""
    image = pixels(1, 3, 32, 32)

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    raw = b"T" + struct.pack("<i", 3072) + image.tobytes()
    array = start + b"(K\x01K\x01M\x00\x0c\x86" + dtype + b"\x89" + raw + b"tb"
    batch = b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"]K\x06a" + b"u."
    (tmp_path / "test_batch").write_bytes(batch)
    same(cifar10("test", folder=tmp_path), image, [6])


class Bomb:
    """Leaves a file behind when something unpickles it."""

    def __init__(self, path: Path, call: object = os.mkdir) -> None:
        self.path, self.call = path, call

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        code = f"__import__('os').mkdir({str(self.path)!r})"
        return self.call, (code if self.call is eval else str(self.path),)


@pytest.mark.parametrize("call", [os.mkdir, os.system, eval])
@pytest.mark.parametrize("where", ["whole", "labels"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_with_code_is_refused(tmp_path: Path, call: object, where: str, protocol: int) -> None:
    bomb, target = Bomb(tmp_path / "ran", call), tmp_path / "test_batch"
    content = bomb if where == "whole" else {"data": pixels(1, 3072), "labels": [bomb]}
    target.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(LoadError, match=r"nothing in it was run.*it asks for "):
        cifar10("test", folder=tmp_path)
    assert not (tmp_path / "ran").exists()
    if call is not os.system:
        pickle.loads(target.read_bytes())  # the test can fail: an ordinary unpickler does run it
        assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        b"\x80\x02cnumpy\ndtype\n.",
        b"\x80\x02cnumpy\nndarray\n}b.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R}b.",
        pickle.dumps({"data": np.zeros((1, 3072)), "labels": [0]}),
        pickle.dumps({"data": np.array([[None]]), "labels": [0]}),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8)}),
        pickle.dumps({"data": np.zeros((1, 3071), np.uint8), "labels": [0]}),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [300]}),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}),
        pickle.dumps([1, 2]),
    ],
)
def test_a_broken_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(LoadError):
        cifar10("test", folder=tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\x00\x08\x00", b"\x00\x00\x0d\x01", idx(pixels(1, 2, 2))[:-1], gzip.compress(idx(pixels(9)))[:-9]],
    ids=("empty", "no axes", "wrong type", "cut", "cut gzip"),
)
def test_broken_idx_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(1, np.uint8)))
    with pytest.raises(LoadError, match="train-images"):
        mnist(folder=tmp_path)


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

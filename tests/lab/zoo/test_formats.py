"""IDX, npz and CIFAR's binary files: read as they are, and refused where they are broken."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from normgauge.core.errors import LoadError
from normgauge.lab.zoo import cifar10, mnist
from tests.lab.zoo.written import Bomb, idx, pixels, same


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

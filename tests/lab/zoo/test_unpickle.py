"""CIFAR's pickles are read without running anything in them."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from normgauge.core.errors import LoadError
from normgauge.lab.zoo import cifar10
from tests.lab.zoo.written import Bomb, pixels, same


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

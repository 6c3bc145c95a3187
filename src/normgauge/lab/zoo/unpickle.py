"""CIFAR's python batches are pickles; this reads them without running anything they say.

A pickle is a program. Only a few of its possible calls are answered here (an array, its dtype, and bytes spelled as
latin-1 text), and each by a stand-in of ours, so that not even numpy runs on what the file says.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normgauge.core.errors import LoadError


class _Dtype:
    """Stands for ``numpy.dtype``; keeps the type code and nothing else."""

    __slots__ = ("code",)

    def __init__(self, code: str | bytes) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment: only single bytes are read."""


class _Array:
    """Stands for ``numpy.ndarray``; becomes an array of uint8 when its state arrives."""

    __slots__ = ("value",)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, fortran, raw = state
        self.fill(raw, dtype, shape, "F" if fortran else "C")

    def fill(self, raw: bytes | bytearray, dtype: _Dtype, shape: tuple[int, ...], order: str) -> None:
        if dtype.code not in ("u1", "|u1", "uint8") or not isinstance(raw, bytes | bytearray):
            raise pickle.UnpicklingError(f"an array of {dtype.code!r} where bytes (u1) were expected")
        self.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if order == "F" else "C")


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows arrays of bytes and refuses every other name."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        super().__init__(file, encoding="bytes")

        # made for each file, so that a hostile one can spoil nothing that lives longer
        def reconstruct(*_: object) -> _Array:
            return _Array()

        def frombuffer(raw: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
            array = _Array()
            array.fill(raw, dtype, shape, order)
            return array

        def dtype(code: str | bytes, *_: object) -> _Dtype:
            return _Dtype(code)

        def encode(text: str, codec: str | bytes) -> bytes:
            if codec not in ("latin1", b"latin1"):
                raise pickle.UnpicklingError(f"text in the codec {codec!r}")
            return text.encode("latin1")

        self._known: dict[tuple[str, str], Callable[..., Any] | object] = {
            ("numpy.core.multiarray", "_reconstruct"): reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): reconstruct,
            ("numpy.core.numeric", "_frombuffer"): frombuffer,
            ("numpy._core.numeric", "_frombuffer"): frombuffer,
            ("numpy", "ndarray"): object(),
            ("numpy", "dtype"): dtype,
            ("_codecs", "encode"): encode,
        }

    def find_class(self, module: str, name: str) -> Any:
        """Our stand-in for one of the few names that an array needs.

        Raises:
            UnpicklingError: for any other name.
        """
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not part of an array")
        return self._known[module, name]


def read_cifar_pickle(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read one batch of CIFAR-10's python version; nothing in the file is executed.

    Args:
        path: ``data_batch_1`` or the like: a pickled dict with ``data`` (n, 3072) uint8 and ``labels``, a list.

    Returns:
        Images (n, 3, 32, 32) and labels (n,), uint8.

    Raises:
        LoadError: if the file asks for anything but arrays of bytes, or is not such a batch.
    """
    try:
        with path.open("rb") as file:
            batch = _ArrayUnpickler(file).load()
        named = {key.decode("ascii") if isinstance(key, bytes) else key: value for key, value in batch.items()}
        data, labels = named["data"].value, np.array(named["labels"], dtype=np.uint8)
        return data.reshape(len(labels), 3, 32, 32), labels
    except Exception as error:  # a hostile or broken pickle can make the unpickler raise anything
        raise LoadError(
            f"{path} was refused and nothing in it was run: expected a CIFAR-10 python batch (a dict of a uint8 array "
            f"and a list of labels), got {type(error).__name__}: {error}. Get the file anew from "
            "https://www.cs.toronto.edu/~kriz/cifar.html."
        ) from error

"""Readers of the file formats image data sets come in: IDX, CIFAR binary, npz. Arrays of uint8 out."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normgauge.core.errors import LoadError

Bytes = NDArray[np.uint8]


def read_idx(path: Path) -> Bytes:
    """Read an IDX file of unsigned bytes, gzipped or not.

    Args:
        path: the file; gzip is recognized by its first bytes, whatever the name.

    Returns:
        The array.

    Raises:
        LoadError: if the file is not such an IDX file, or is cut short.
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise LoadError(f"{path}: damaged gzip file ({error}); get it anew.") from error
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or raw[3] == 0 or len(raw) < 4 + 4 * raw[3]:
        raise LoadError(f"{path}: not an IDX file of unsigned bytes (it starts with {raw[:4].hex(' ')}).")
    start = 4 + 4 * raw[3]
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise LoadError(f"{path}: expected {math.prod(shape)} bytes for shape {shape}, got {len(raw) - start}.")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def read_cifar_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Read one file of CIFAR-10's binary version: a label byte, then 3,072 bytes RRR GGG BBB, for each image.

    Args:
        path: ``data_batch_1.bin`` or the like.

    Returns:
        Images (n, 3, 32, 32) and labels (n,).

    Raises:
        LoadError: if the size is not that of whole records.
    """
    rows = np.fromfile(path, np.uint8)
    if rows.size == 0 or rows.size % 3073:
        raise LoadError(f"{path}: {rows.size} bytes are not whole records of 3,073; get the file anew.")
    rows = rows.reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def read_npz(path: Path, split: Literal["train", "test"]) -> tuple[Bytes, Bytes]:
    """Read images and labels from an npz file with the arrays x_train, y_train, x_test, y_test.

    Args:
        path: the file; arrays of Python objects in it are refused.
        split: which half to read.

    Returns:
        Images (n, ...) and labels (n,).

    Raises:
        LoadError: if the arrays are not there or are not unsigned bytes.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    except (KeyError, ValueError, OSError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise LoadError(f"{path}: expected an npz file with arrays x_{split} and y_{split}, but {error}.") from error
    if images.dtype != np.uint8 or labels.dtype.kind not in "iu":
        raise LoadError(f"{path}: expected uint8 images and whole labels, got {images.dtype} and {labels.dtype}.")
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < 256:
        raise LoadError(f"{path}: labels must lie in 0 to 255, got {labels.min()} to {labels.max()}.")
    return images, labels.reshape(-1).astype(np.uint8)

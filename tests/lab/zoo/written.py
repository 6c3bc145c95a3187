"""Files in the layouts of the data sets, and what reading them must give."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from normgauge.lab.zoo import Split


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def same(split: Split, images: NDArray[np.uint8], labels: list[int]) -> None:
    assert (split.inputs.dtype, split.labels.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(split.inputs, torch.tensor(images / 255.0, dtype=torch.float32))
    assert split.labels.tolist() == labels


class Bomb:
    """Leaves a file behind when something unpickles it."""

    def __init__(self, path: Path, call: object = os.mkdir) -> None:
        self.path, self.call = path, call

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        code = f"__import__('os').mkdir({str(self.path)!r})"
        return self.call, (code if self.call is eval else str(self.path),)

"""Fingerprints of samples: who has seen what."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class Batched(Protocol):
    """A sample: anything that gives its inputs in batches."""

    def batches(self, size: int) -> Iterator[Tensor]:
        """All inputs in order."""


def marks(points: Tensor) -> Iterator[bytes]:
    """One fingerprint a row: 16 bytes of BLAKE2 over its float32 values; layouts do not matter, −0 is 0."""
    rows = (points.detach().cpu().flatten(1).float() + 0.0).contiguous().numpy()
    for row in rows:
        yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def fingerprints(points: Tensor) -> frozenset[bytes]:
    """The fingerprints of all rows."""
    return frozenset(marks(points))


def fingerprints_of(sample: Batched) -> list[bytes]:
    """The fingerprint of every input of a sample, in order."""
    return [mark for batch in sample.batches(2048) for mark in marks(batch)]

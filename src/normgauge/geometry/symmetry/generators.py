"""Symmetries as things that can be done: families of moves of weights and running statistics.

Most pair families are one idea: an invertible matrix A on the side that makes some channels, A⁻¹ on the side that reads
them. `matrix_family` is that family, for any set of matrices A = exp(X) with X linear in the numbers that choose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

State = Mapping[str, Tensor]
Move = Callable[[State, Tensor], dict[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Generator:
    """A family of moves that leaves the function alone.

    Attributes:
        kind: ``scale``, ``shift`` or ``pair`` (something else moves the other way).
        what: the symmetry in words.
        parameters: the weights it moves.
        count: how many numbers choose a move.
        move: weights and running statistics after the move that ``count`` numbers choose; all zero is no move.
        rows: for a scale of whole rows of weights under a normalizer: how many, and along which dimension.
    """

    kind: str
    what: str
    parameters: tuple[str, ...]
    count: int
    move: Move
    rows: tuple[int, int] | None = None


def tangents(generator: Generator, state: State, step: float = 1e-5) -> dict[str, Tensor]:
    """The directions in which a family moves the weights: (count, entries) for every weight, by central differences."""
    sides: list[list[dict[str, Tensor]]] = []
    for sign in (step, -step):
        unit = sign * torch.eye(generator.count, dtype=torch.float64)
        sides.append([generator.move(state, row) for row in unit])
    return {
        name: torch.stack([(a[name] - b[name]).reshape(-1) / (2 * step) for a, b in zip(*sides, strict=True)])
        for name in generator.parameters
    }


def dimension(generators: Iterable[Generator], state: State, limit: int = 3000) -> int | None:
    """How many independent directions the families have together; None where that is too much to compute."""
    listed = list(generators)
    names = sorted({name for g in listed for name in g.parameters})
    total, entries = sum(g.count for g in listed), sum(state[name].numel() for name in names)
    if total == 0:
        return 0
    if total > limit or total * entries > 5e7:
        return None
    rows = []
    for generator in listed:
        found = tangents(generator, state)
        parts = [found.get(n, torch.zeros(generator.count, state[n].numel(), dtype=torch.float64)) for n in names]
        rows.append(torch.cat(parts, 1))
    matrix = torch.cat(rows)
    matrix = matrix / matrix.norm(dim=1, keepdim=True).clamp_min(1e-300)
    values = torch.linalg.svdvals(matrix)
    return int((values > 1e-7 * values[0]).sum())


def taken_entries(state: State, name: str, places: Tensor) -> Tensor:
    """Entries of a weight, rearranged."""
    return state[name].reshape(-1)[places]


def put_entries(state: State, name: str, places: Tensor, entries: Tensor) -> Tensor:
    """The weight with other entries at some places."""
    flat = state[name].reshape(-1).clone()
    flat[places.reshape(-1)] = entries.reshape(-1)
    return flat.reshape(state[name].shape)


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of a weight in which the last dimension is channels: places (…, channels).

    Attributes:
        inverse: whether the entries take A⁻¹ (or, for keys, A⁻ᵀ) from the right; Aᵀ otherwise.
        gain: a normalizer's gain between the channels and these entries, if there is one.
    """

    name: str
    places: Tensor
    inverse: bool
    gain: str = ""

    def moved(self, state: State, forth: Tensor, back: Tensor) -> Tensor:
        """The weight with its entries multiplied."""
        entries = taken_entries(state, self.name, self.places)
        if not self.gain:
            return put_entries(state, self.name, self.places, entries @ (back if self.inverse else forth))
        gain = state[self.gain].reshape(-1)
        entries = (entries * gain) @ back / gain if self.inverse else (entries / gain) @ forth * gain
        return put_entries(state, self.name, self.places, entries)


@dataclass(frozen=True, slots=True)
class MovedChannels:
    """Channels that take the matrices exp(X), and all that moves with them.

    Attributes:
        count: how many numbers choose X.
        exponent: X for these numbers.
        parts: the entries of weights on both sides.
    """

    count: int
    exponent: Callable[[Tensor], Tensor]
    parts: list[Part]


def matrix_family(what: str, found: list[MovedChannels]) -> Generator:
    """The family of matrices on one side and their inverses on the other."""
    names = tuple(dict.fromkeys(part.name for channels in found for part in channels.parts))
    counts = [channels.count for channels in found]

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        after = dict(state)
        for channels, chosen in zip(found, numbers.split(counts), strict=True):
            matrix = torch.linalg.matrix_exp(channels.exponent(chosen))
            back = torch.linalg.inv(matrix)
            for part in channels.parts:
                after[part.name] = part.moved(after, matrix.T, back)
        return {name: after[name] for name in names}

    return Generator("pair", what, names, sum(counts), move)


def mixed_channels(size: int, parts: list[Part]) -> MovedChannels:
    """Any invertible matrix but its diagonal, which is a rescaling."""
    return MovedChannels(
        size * size - size, partial(_filled, size, *(~torch.eye(size, dtype=torch.bool)).nonzero().T), parts
    )


def turned_channels(size: int, first: Tensor, second: Tensor, parts: list[Part]) -> MovedChannels:
    """Rotations in the planes of channels ``first`` and ``second``."""

    def exponent(numbers: Tensor) -> Tensor:
        half = _filled(size, second, first, numbers)
        return half - half.T

    return MovedChannels(len(first), exponent, parts)


def _filled(size: int, rows: Tensor, columns: Tensor, numbers: Tensor) -> Tensor:
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[rows, columns] = numbers
    return matrix

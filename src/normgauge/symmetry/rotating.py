"""Matrices put between what writes to a stream and what reads from it.

LayerNorm and RMSNorm divide by a length, and lengths do not change under rotations: where only matrices write what is
normalized and only matrices read the result, h → Oh can be put in between. With a gain γ the readers behind the
normalizer turn into W diag(γ) Oᵀ diag(1/γ) and a shift into diag(γ) O diag(1/γ) β; for a normalizer that takes the mean
off, O keeps the vector of ones. What such a normalizer takes off may also be added: h → (I + 1wᵀ)h, undone by the
matrices that read h as it is. A stream without a normalizer takes any invertible matrix; its diagonal is a rescaling.

Holds:  for any ε, since ‖Oh‖ = ‖h‖; checked on the model by `verify`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.streams import Stream, streams

Matrix = Callable[[Tensor], Tensor]


def rotations(graph: Graph, labels: Labels) -> list[Generator]:
    """The families of every stream."""
    families = []
    for stream in streams(graph, labels):
        if not stream.normals and stream.direct and stream.sums:
            families.append(_mixing(stream))
        elif stream.normals and stream.behind and stream.readers:
            families.append(_rotation(stream))
        if stream.normals and stream.direct and all(n.centres for n in stream.normals):
            families.append(_shear(stream))
    return [f for f in families if f.count]


def _rotation(stream: Stream) -> Generator:
    width = stream.width
    basis = complement(width) if any(n.centres for n in stream.normals) else torch.eye(width, dtype=torch.float64)
    size = basis.shape[1]
    upper = torch.triu_indices(size, size, 1)

    def matrix(numbers: Tensor) -> Tensor:
        small = torch.zeros(size, size, dtype=torch.float64)
        small[upper[0], upper[1]] = numbers
        return torch.linalg.matrix_exp(basis @ (small - small.T) @ basis.T)

    return _family(stream, "rotation of what is normalized, undone by what reads it", upper.shape[1], matrix, True)


def _mixing(stream: Stream) -> Generator:
    width = stream.width
    off = ~torch.eye(width, dtype=torch.bool)

    def matrix(numbers: Tensor) -> Tensor:
        log = torch.zeros(width, width, dtype=torch.float64)
        log[off] = numbers
        return torch.linalg.matrix_exp(log)

    return _family(stream, "channels mixed in a stream, undone by what reads it", width * width - width, matrix, False)


def _shear(stream: Stream) -> Generator:
    width = stream.width

    def matrix(numbers: Tensor) -> Tensor:
        return torch.eye(width, dtype=torch.float64) + numbers / width  # every row the same: I + 1wᵀ

    return _family(stream, "mixed into the mean that a normalizer takes off", width, matrix, False)


def _family(stream: Stream, what: str, count: int, matrix: Matrix, turned: bool) -> Generator:
    """h → Ah in the stream; ``turned``: A is a rotation, and what is behind the normalizers follows."""
    width = stream.width
    readers, normals = (stream.readers, stream.normals) if turned else ([], [])
    shifts = [(n.bias.name, n.weight.name if n.weight is not None else "") for n in normals if n.bias is not None]
    names = [*(name for name, _ in (*stream.writers, *stream.direct, *shifts)), *(r.name for r in readers)]

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        forth = matrix(numbers)
        back = torch.linalg.inv(forth).T
        after = dict(state)
        for name, places in stream.writers:
            after[name] = put(after, name, places, taken(after, name, places) @ forth.T)
        for name, places in stream.direct:
            after[name] = put(after, name, places, back @ taken(after, name, places))
        for reader in readers:
            gain = gain_of(state, reader.gain, width)
            entries = forth @ (gain[:, None] * taken(after, reader.name, reader.matrix)) / gain[:, None]
            after[reader.name] = put(after, reader.name, reader.matrix, entries)
        for name, gain_name in shifts:
            gain = gain_of(state, gain_name, width)
            after[name] = (gain * (forth @ (state[name].reshape(-1) / gain))).reshape(state[name].shape)
        return {name: after[name] for name in names}

    return Generator("pair", what, tuple(dict.fromkeys(names)), count, move)


def gain_of(state: State, name: str, width: int) -> Tensor:
    """A normalizer's gain, ones where it has none."""
    return state[name].reshape(-1) if name else torch.ones(width, dtype=torch.float64)


def complement(width: int) -> Tensor:
    """An orthonormal basis of the vectors orthogonal to (1, …, 1), as columns."""
    full = torch.cat([torch.ones(width, 1, dtype=torch.float64), torch.eye(width, dtype=torch.float64)[:, 1:]], 1)
    return torch.linalg.qr(full)[0][:, 1:]

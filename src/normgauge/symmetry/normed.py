"""Weight normalization: w = g v/‖v‖ is moved as a weight, then written back as direction and length."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State

Normed = Mapping[str, tuple[str, str, int]]


def computed(state: State, direction: str, length: str, dim: int) -> Tensor:
    """w = g v/‖v‖."""
    return state[length] * state[direction] / lengths(state[direction], dim)


def lengths(v: Tensor, dim: int) -> Tensor:
    """‖v‖ along all dimensions but ``dim``."""
    return v.square().sum([d for d in range(v.ndim) if d != dim], keepdim=True).sqrt()


def with_normed(generator: Generator, normed: Normed) -> Generator:
    """The same family in terms of v and g, where it moves or reads a computed weight."""
    if not normed:
        return generator

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        whole = {**state, **{name: computed(state, *parts) for name, parts in normed.items()}}
        after = generator.move(whole, numbers)
        for name in [n for n in after if n in normed]:
            after.update(write_back(state, normed[name], after.pop(name)))
        return after

    names = tuple(n for name in generator.parameters for n in (normed[name][:2] if name in normed else (name,)))
    rows = generator.rows if names == generator.parameters else None
    return Generator(generator.kind, generator.what, names, generator.count, move, rows)


def write_back(state: State, parts: tuple[str, str, int], weight: Tensor, unit: bool = False) -> dict[str, Tensor]:
    """Direction and length of a moved weight; the direction keeps its length, or gets ``unit`` length."""
    direction, length, dim = parts
    sign = torch.where(state[length] < 0, -1.0, 1.0)
    size = lengths(weight, dim)
    kept = torch.ones_like(size) if unit else lengths(state[direction], dim)
    return {length: sign * size, direction: sign * weight * kept / size}


def length_scales(normed: Normed, state: State) -> list[Generator]:
    """v → αv with g fixed (THEORY 11.4)."""
    found = []
    for direction, _, dim in normed.values():
        rows = state[direction].shape[dim]

        def move(state: State, numbers: Tensor, name: str = direction, dim: int = dim) -> dict[str, Tensor]:
            shape = [-1 if d == dim else 1 for d in range(state[name].ndim)]
            return {name: state[name] * numbers.exp().reshape(shape)}

        what = "scale of the direction of a weight-normalized row"
        found.append(Generator("scale", what, (direction,), rows, move, rows=(rows, dim)))
    return found

"""Scale-free groups: which parts of which parameters can be scaled together without changing the function."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from normgauge.core.errors import InputError


@dataclass(frozen=True, slots=True)
class ScaleFree:
    """Vectors w_1 … w_rows with f(…, c·w_r, …) = f(…, w_r, …) for every c > 0, each on its own.

    Dimension ``dim`` of every listed parameter is cut into ``rows`` equal chunks; vector r is chunk r of all of them,
    one after the other. BatchNorm: rows = channels; LayerNorm: rows = 1, weight and bias; GroupNorm: rows = groups;
    ConvTranspose: dim = 1. A parameter with one dimension (a bias) is cut along that one.

    Attributes:
        parameters: names as in ``model.named_parameters()``.
        rows: number of vectors.
        dim: the dimension that is cut.
    """

    parameters: tuple[str, ...]
    rows: int
    dim: int = 0

    def __post_init__(self) -> None:
        if not self.parameters or len(set(self.parameters)) < len(self.parameters):
            raise InputError(f"a scale-free group needs names of parameters, each once; got {self.parameters!r}.")
        if self.rows < 1 or self.dim < 0:
            raise InputError(f"a scale-free group needs rows >= 1 and dim >= 0; got rows={self.rows}, dim={self.dim}.")


def vectors(group: ScaleFree, named: Mapping[str, Tensor]) -> Tensor:
    """The vectors of a group, (rows, n); differentiable, a view where one parameter is cut along its first dimension.

    Args:
        group: what is cut.
        named: tensors by the names of the parameters: the parameters, their gradients, a snapshot.

    Returns:
        One vector a row.

    Raises:
        InputError: if a name is not there or a tensor cannot be cut so.
    """
    cut = [_rows_first(group, name, _named(name, named)).flatten(1) for name in group.parameters]
    return cut[0] if len(cut) == 1 else torch.cat(cut, 1)


def spread_vectors(group: ScaleFree, values: Tensor, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The way back: vectors as tensors of the parameters' shapes.

    Args:
        group: what was cut.
        values: one vector a row, as from `vectors`.
        named: tensors with the shapes wanted.

    Returns:
        A tensor for each parameter of the group.

    Raises:
        InputError: if the vectors do not have the size of the group's.
    """
    shapes = {name: _rows_first(group, name, _named(name, named)).shape for name in group.parameters}
    sizes = [shape[1:].numel() for shape in shapes.values()]
    if values.shape != (group.rows, sum(sizes)):
        raise InputError(f"expected vectors of shape {(group.rows, sum(sizes))}; got {tuple(values.shape)}.")
    parts = values.split(sizes, 1)
    return {
        name: part.reshape(shape).flatten(0, 1).movedim(0, _dim(group, named[name]))
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def check_groups(groups: Sequence[ScaleFree], named: Mapping[str, Tensor]) -> None:
    """Refuses groups that do not fit the parameters or share one.

    Args:
        groups: the groups.
        named: the parameters by name.

    Raises:
        InputError: if a name is unknown or in two groups, or a parameter cannot be cut as said.
    """
    seen: set[str] = set()
    for name in chain.from_iterable(group.parameters for group in groups):
        if name in seen:
            raise InputError(f"{name} is in two scale-free groups; a parameter belongs to one. Leave one of them out.")
        seen.add(name)
    for group in groups:
        vectors(group, {name: _named(name, named).detach() for name in group.parameters})


def _named(name: str, named: Mapping[str, Tensor]) -> Tensor:
    if name in named:
        return named[name]
    near = difflib.get_close_matches(name, named, n=3, cutoff=0.4)
    hint = (
        f"; near: {', '.join(near)}" if near else f"; there are {len(named)} names, such as {', '.join([*named][:3])}"
    )
    raise InputError(f"no parameter called {name!r}{hint}.")


def _dim(group: ScaleFree, tensor: Tensor) -> int:
    return 0 if tensor.ndim == 1 else group.dim


def _rows_first(group: ScaleFree, name: str, tensor: Tensor) -> Tensor:
    """The tensor as (rows, chunk, the other dimensions).

    Raises:
        InputError: if it cannot be cut so.
    """
    dim = _dim(group, tensor)
    if dim >= tensor.ndim or tensor.shape[dim] % group.rows:
        raise InputError(
            f"{name} of shape {tuple(tensor.shape)} cannot be cut into {group.rows} equal chunks along dimension {dim}."
        )
    return tensor.movedim(dim, 0).unflatten(0, (group.rows, -1))

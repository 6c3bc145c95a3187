"""Norms of many linear maps at once: maps of one shape turn their vectors together, and vectors stay warm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normgauge.control.gathered_slopes import GatheredWeights
from normgauge.control.plan import MapTerm
from normgauge.instrument.spectral.conv_operator import apply_adjoint, apply_conv

Scales = tuple[Tensor, Tensor]
"""D_out and D_in of each map of a group, (maps, channels)."""

START = 60
"""Turns of the vectors before the first value; then they follow the weights, one turn a call."""

STIR = 1e-12
"""Of the first vectors that every turn adds: a map that was 0 once is found again when it is none."""

STACKED = 2**15
"""Entries up to which weights are stacked on a CPU: for larger ones the copy costs more than the calls it saves."""

SAME = 1e-20
"""Of the largest square: what a channel counts for at least when two maps are balanced, also when switched off."""


class MapGroup:
    """Linear maps of one shape and layout.

    σ = ‖(D_out W D_in)v‖ with v fixed at the vector that power iteration has reached: a value from below, whose
    gradient is that of the norm where v is the top singular vector.

    Attributes:
        terms: the maps.
        spec: of all of them side by side, as one convolution in groups; None for matrices.
    """

    def __init__(self, terms: Sequence[MapTerm]) -> None:
        self.terms = list(terms)
        spec: Any = terms[0].spec
        self.spec = None if spec is None else replace(spec, groups=spec.groups * len(terms))
        self._warm: tuple[Tensor, Tensor] | None = None

    def weights(self) -> GatheredWeights:
        """Return the weights, one on top of the other: (maps, …), in float32 or better."""
        found = [term.weight() for term in self.terms]
        return GatheredWeights([weight if weight.dtype == torch.float64 else weight.float() for weight in found])

    @property
    def centred(self) -> bool:
        """Whether only centring normalizers read these maps."""
        return self.terms[0].centred

    def norms(self, weights: GatheredWeights, turns: int, scales: Scales | None = None) -> Tensor:
        """Return ‖D_out W D_in‖ of each map, after so many turns of the vectors; ``scales`` are (maps, channels)."""
        with torch.no_grad():
            if self._warm is None:
                first = self._start(weights.fixed)
                self._warm = first, _unit(self._apply(weights, first, scales))
                turns = START
            first, u = self._warm
            v = self._turned(weights, u, scales, first)
            for _ in range(turns - 1):
                v = self._turned(weights, _unit(self._apply(weights, v, scales)), scales, first)
        made = self._apply(weights, v, scales)
        sizes = _sizes(made)
        u.copy_(made.detach() / _beside(sizes.detach(), made))  # in place: a captured graph goes on from it
        return sizes

    def _turned(self, weights: GatheredWeights, u: Tensor, scales: Scales | None, first: Tensor) -> Tensor:
        return _unit(self._adjoint(weights.fixed, u, scales).add_(first, alpha=STIR))

    def _start(self, weights: Tensor) -> Tensor:
        """A fixed random vector for each map; the global generator is not asked."""
        draw = torch.Generator().manual_seed(0)
        count = len(self.terms)
        shape: tuple[int, ...] = (weights.shape[2],)
        if self.spec is not None:
            channels, *size = self.spec.input_shape(weights.flatten(0, 1))
            shape = (channels // count, *size)
        return _unit(torch.randn(count, *shape, generator=draw, dtype=torch.float64).to(weights))

    def _apply(self, weights: GatheredWeights, v: Tensor, scales: Scales | None) -> Tensor:
        v = v if scales is None else _along(scales[1], v)
        if self.spec is None:
            out = weights.times(v)
        else:
            made = apply_conv(weights.whole.flatten(0, 1), v.flatten(0, 1)[None], self.spec)
            out = made[0].unflatten(0, (len(self.terms), -1))
        out = out - out.mean(1, keepdim=True) if self.centred else out
        return out if scales is None else _along(scales[0], out)

    def _adjoint(self, weights: Tensor, u: Tensor, scales: Scales | None) -> Tensor:
        u = u if scales is None else _along(scales[0], u)
        u = u - u.mean(1, keepdim=True) if self.centred else u
        if self.spec is None:
            out = (weights.mT @ u[..., None])[..., 0]
        else:
            made = apply_adjoint(weights.flatten(0, 1), u.flatten(0, 1)[None], self.spec)
            out = made[0].unflatten(0, (len(self.terms), -1))
        return out if scales is None else _along(scales[1], out)


def _along(scale: Tensor, values: Tensor) -> Tensor:
    """Channels times their scales, (maps, channels) on (maps, channels, …)."""
    return values * _beside(scale, values)


def _beside(few: Tensor, values: Tensor) -> Tensor:
    """The same with axes of length 1 for what the values have more."""
    return few if few.ndim == values.ndim else few.reshape(*few.shape, *[1] * (values.ndim - few.ndim))


def _sizes(vectors: Tensor) -> Tensor:
    """Their lengths, never 0; adding so little changes no other one."""
    return torch.linalg.vector_norm(vectors.flatten(1), dim=1) + torch.finfo(vectors.dtype).tiny


def _unit(vectors: Tensor) -> Tensor:
    return vectors / _beside(_sizes(vectors), vectors)


def grouped_maps(terms: Sequence[MapTerm]) -> list[MapGroup]:
    """Return the maps in groups of one shape, layout, precision and device."""
    groups: dict[Any, list[MapTerm]] = {}
    for term in terms:
        weight = term.weight()
        alone = id(term) if weight.device.type == "cpu" and weight.numel() > STACKED else 0
        key = (weight.shape, term.spec, term.centred, weight.dtype, weight.device, alone)
        groups.setdefault(key, []).append(term)
    return [MapGroup(members) for members in groups.values()]


def scaled_weights(weights: Tensor, out: Tensor, inner: Tensor, spec: Any, count: int) -> Tensor:
    """Return D_out W D_in for each map: scales are (maps, channels)."""
    groups = 1 if spec is None else spec.groups // count
    if groups > 1:  # a group's columns are its own input channels: (maps, groups, 1, in/groups) beside each row
        first, second = (inner, out) if spec.transposed else (out, inner)
        rows = first.reshape(count, groups, -1, 1) * second.reshape(count, groups, 1, -1)
        factor = rows.flatten(1, 2)
    elif spec is not None and spec.transposed:
        factor = inner[:, :, None] * out[:, None]
    else:
        factor = out[:, :, None] * inner[:, None]
    return weights * factor.reshape(*factor.shape, *[1] * (weights.ndim - 3))


def channel_counts(weights: Tensor, spec: Any, count: int) -> tuple[int, int]:
    """How many channels each map of a group puts out and takes in."""
    groups = 1 if spec is None else spec.groups // count
    first, second = weights.shape[1], weights.shape[2] * groups
    return (second, first) if spec is not None and spec.transposed else (first, second)

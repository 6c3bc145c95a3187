"""Proved enclosure of the operator norm of a convolution layer as it runs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.interval import INF, LogInterval
from normgauge.spectral.circulant import circulant_ends
from normgauge.spectral.conv_operator import (
    ConvSpec,
    apply,
    apply_adjoint,
    check_weight,
)
from normgauge.spectral.dense import dense_norm, scaled, to_double
from normgauge.spectral.enclosure import Enclosure, enclose, shortfall
from normgauge.spectral.power import seeded_start, top_singular

__all__ = ["ConvSpec", "apply", "apply_adjoint", "conv_norm", "top_pair"]

DENSE_LIMIT = 4_000_000
"""Most entries of a matrix built by applying the layer to the identity."""

DENSE_FIRST = 250_000
"""Up to this many entries the dense matrix is the cheapest way, whatever the width."""


def top_pair(
    weight: Tensor, spec: ConvSpec, start: Tensor | None = None, steps: int = 60, tolerance: float = 1e-6
) -> tuple[float, Tensor, Tensor]:
    """The layer's top singular value from below, with its left and right singular vectors.

    Args:
        weight: as torch stores it.
        spec: the rest of the layer.
        start: a right vector (c_in, *input_size) to start from, such as the v of an earlier call.
        steps: most applications of the layer and of its adjoint.
        tolerance: relative residual at which to stop.

    Returns:
        σ, u (c_out, *output_size), v (c_in, *input_size), detached, float64; σ = ⟨u, apply(v)⟩, so the gradient of
        ⟨u, apply(weight, v, spec)⟩ in the weight is that of the norm.
    """
    check_weight(weight, spec)
    kernel = to_double(weight)
    if start is None or not bool(start.any()):
        start = seeded_start(spec.input_shape(kernel), kernel)
    start = to_double(start).to(kernel.device)
    with torch.no_grad():
        return top_singular(
            lambda x: apply(kernel, x[None], spec)[0],
            lambda y: apply_adjoint(kernel, y[None], spec)[0],
            start,
            steps,
            tolerance,
        )


def conv_norm(weight: Tensor, spec: ConvSpec, width: float = 1e-3, dense_limit: int = DENSE_LIMIT) -> Enclosure:
    """Encloses the norm of a convolution layer at its input size.

    Args:
        weight: as torch stores it.
        spec: the rest of the layer.
        width: the log(upper/lower) to reach; the work stops there.
        dense_limit: most entries of a dense matrix to fall back on; 0 forbids it.

    Returns:
        The enclosure, with a reason where ``width`` was not reached. NaN or infinite weights give [0, ∞].
    """
    check_weight(weight, spec)
    kernel = to_double(weight)
    if not bool(torch.isfinite(kernel).all()):
        return Enclosure(LogInterval.nothing_known(), "none", "the weight has NaN or infinite entries")
    if not bool(kernel.any()):
        return Enclosure(LogInterval(-INF, -INF), "zero")
    with torch.no_grad():
        kernel, exponent = scaled(kernel)
        return _scaled_norm(kernel, spec, width, dense_limit, exponent)


def _scaled_norm(kernel: Tensor, spec: ConvSpec, width: float, dense_limit: int, exponent: int) -> Enclosure:
    if _is_pointwise(kernel, spec):
        found = dense_norm(kernel.reshape(spec.groups, -1, kernel.shape[1]))
        return _relabelled(found, "pointwise", exponent, width)
    entries = math.prod(spec.input_shape(kernel)) * math.prod(spec.output_shape(kernel)) // spec.groups
    if entries <= min(dense_limit, DENSE_FIRST):
        return _relabelled(dense_norm(dense_blocks(kernel, spec)), "dense", exponent, width)
    lower, upper, method = circulant_ends(kernel, spec, width)
    log = enclose(lower, upper, exponent)
    if log.width > width and entries <= dense_limit:
        return _relabelled(dense_norm(dense_blocks(kernel, spec)), "dense", exponent, width)
    return Enclosure(log, method, shortfall(log, width, method))


def _relabelled(found: Enclosure, method: str, exponent: int, width: float) -> Enclosure:
    shift = LogInterval.of(2.0**exponent) if abs(exponent) < 1000 else _power_of_two(exponent)
    log = found.log * shift
    return Enclosure(log, method, shortfall(log, width, method))


def _power_of_two(exponent: int) -> LogInterval:
    half = exponent // 2
    return LogInterval.of(2.0**half) * LogInterval.of(2.0 ** (exponent - half))


def _is_pointwise(kernel: Tensor, spec: ConvSpec) -> bool:
    """One tap, no padding: the layer is its matrix at every pixel kept, and the first pixel always is."""
    return max(kernel.shape[2:]) == 1 and not any(map(any, spec.padding))


def dense_blocks(kernel: Tensor, spec: ConvSpec) -> Tensor:
    """The layer's matrix, one block (inputs, outputs) per channel group: (groups, inputs, outputs).

    Every group gets the same unit vector at once; groups do not mix, so each output belongs to its own block.
    """
    channels, *size = spec.input_shape(kernel)
    inputs = channels // spec.groups * math.prod(size)
    unit = torch.eye(inputs, dtype=kernel.dtype, device=kernel.device)
    batch = unit.reshape(inputs, 1, channels // spec.groups, *size)
    batch = batch.expand(-1, spec.groups, *batch.shape[2:]).reshape(inputs, channels, *size)
    return apply(kernel, batch, spec).reshape(inputs, spec.groups, -1).transpose(0, 1)

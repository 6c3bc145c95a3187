"""Proved enclosure of the operator norm of a convolution layer as it runs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.interval import INF, LogInterval
from normgauge.instrument.spectral.circulant import ROUGH, circulant_ends, steepest_groups
from normgauge.instrument.spectral.conv_operator import (
    ConvSpec,
    apply_adjoint,
    apply_conv,
    check_weight,
)
from normgauge.instrument.spectral.dense import dense_norm, scaled_tensor, to_double
from normgauge.instrument.spectral.enclosure import Enclosure, enclose, shortfall

__all__ = ["ConvSpec", "apply_adjoint", "apply_conv", "conv_norm"]

DENSE_LIMIT = 4_000_000
"""Most entries of a matrix built by applying the layer to the identity."""

DENSE_FIRST = 250_000
"""Up to this many entries the dense matrix is the cheapest way, whatever the width."""


def conv_norm(
    weight: Tensor, spec: ConvSpec, width: float = 1e-3, dense_limit: int = DENSE_LIMIT, *, below: bool = True
) -> Enclosure:
    """Encloses the norm of a convolution layer at its input size.

    Args:
        weight: as torch stores it.
        spec: the rest of the layer.
        width: the log(upper/lower) to reach; the work stops there.
        dense_limit: most entries of a dense matrix to fall back on; 0 forbids it.
        below: False asks for the upper end alone, which is cheaper for a large layer.

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
        kernel, exponent = scaled_tensor(kernel)
        return _scaled_norm(kernel, spec, width, dense_limit, exponent, below)


def _scaled_norm(
    kernel: Tensor, spec: ConvSpec, width: float, dense_limit: int, exponent: int, below: bool
) -> Enclosure:
    if max(kernel.shape[2:]) == 1 and not any(map(any, spec.padding)):
        # one tap, no padding: the layer is its matrix at every pixel kept, and the first pixel always is
        return _by_matrix(kernel.reshape(spec.groups, -1, kernel.shape[1]), "pointwise", exponent, width)
    entries = math.prod(spec.input_shape(kernel)) * math.prod(spec.output_shape(kernel)) // spec.groups
    if entries <= min(dense_limit, DENSE_FIRST):
        return _by_matrix(dense_blocks(kernel, spec), "dense", exponent, width)
    if spec.groups > 1 and (below or width < ROUGH):
        kernel, spec = steepest_groups(kernel, spec)
    lower, upper, method = circulant_ends(kernel, spec, width, below=below)
    log = enclose(lower, upper, exponent)
    if log.width > width and entries <= dense_limit and (below or lower > 0.0):
        return _by_matrix(dense_blocks(kernel, spec), "dense", exponent, width)
    return Enclosure(log, method, shortfall(log, width, method))


def _by_matrix(matrix: Tensor, method: str, exponent: int, width: float) -> Enclosure:
    log = dense_norm(matrix, exponent=exponent).log
    return Enclosure(log, method, shortfall(log, width, method))


def dense_blocks(kernel: Tensor, spec: ConvSpec) -> Tensor:
    """The layer's matrix, one block (inputs, outputs) per channel group: (groups, inputs, outputs).

    Every group gets the same unit vector at once; groups do not mix, so each output belongs to its own block.
    """
    channels, *size = spec.input_shape(kernel)
    inputs = channels // spec.groups * math.prod(size)
    unit = torch.eye(inputs, dtype=kernel.dtype, device=kernel.device)
    batch = unit.reshape(inputs, 1, channels // spec.groups, *size)
    batch = batch.expand(-1, spec.groups, *batch.shape[2:]).reshape(inputs, channels, *size)
    return apply_conv(kernel, batch, spec).reshape(inputs, spec.groups, -1).transpose(0, 1)

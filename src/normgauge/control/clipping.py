"""How a layer is made smaller: its scale, or its largest singular values alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.control.channel_scales import LiveNormalizer
from normgauge.control.plan import MapTerm
from normgauge.control.warm_norms import MapGroup, scaled_weights

LARGEST_SVD = 1024
"""Shorter side of a matrix up to which all singular values are clipped at once; beyond, the largest, one by one."""

ROUNDS = 3


def scale_map(term: MapTerm, factor: float) -> None:
    """Multiply what a layer puts out: the gains and shifts of the normalizer behind it, or its own weight and bias."""
    if term.behind is not None and term.behind.gamma is not None:
        scale_norm(term.behind, factor)
        return
    bias = term.weight.bias
    for tensor in (term.weight(), *(() if bias is None else (bias,))):
        tensor.mul_(factor)


def scale_norm(norm: LiveNormalizer, factor: float) -> None:
    """Multiply the gains and shifts of a normalizer."""
    for name in ("weight", "bias"):
        tensor = getattr(norm.module, name, None)
        if isinstance(tensor, Tensor):
            tensor.mul_(factor)


def clip_map(term: MapTerm, scales: tuple[Tensor, Tensor], level: float) -> None:
    """Bring the singular values of D_out W D_in that exceed a level down to it, and leave the others.

    A convolution, and a large matrix, follows the gradient of its norm a few times: for a matrix that is its top
    singular value alone.
    """
    if not term.weight.free:
        scale_map(term, 0.5)
        return
    weight = term.weight()
    safe = tuple(side.clamp_min(float(torch.finfo(weight.dtype).tiny)) for side in scales)
    ones = scaled_weights(
        torch.ones_like(weight, dtype=torch.float64)[None], safe[0][None], safe[1][None], term.spec, 1
    )
    whole = weight.double() * ones[0]
    whole = (
        _clipped(whole, level)
        if term.spec is None and min(whole.shape) <= LARGEST_SVD
        else _followed(term, whole, level)
    )
    weight.copy_(whole / ones[0])


def _clipped(matrix: Tensor, level: float) -> Tensor:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return (left * values.clamp_max(level)) @ right


def _followed(term: MapTerm, whole: Tensor, level: float) -> Tensor:
    group = MapGroup([term])
    for _ in range(ROUNDS):
        with torch.enable_grad():
            leaf = whole.detach().requires_grad_()
            size = group.norms(leaf[None], 20).sum()
            (way,) = torch.autograd.grad(size, leaf)
        over = float(size.detach()) - level
        if over <= 0 or not math.isfinite(over):
            break
        whole = whole - way * (over / way.square().sum())
    return whole

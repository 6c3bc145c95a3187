"""How a layer is made smaller: its scale, or its largest singular values alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.control.channel_scales import LiveNormalizer
from normgauge.control.folded_norms import FoldedNorms
from normgauge.control.gathered_slopes import GatheredWeights
from normgauge.control.plan import MapTerm
from normgauge.control.warm_norms import MapGroup
from normgauge.core.rounding import TINY

LARGEST_SVD = (512, 64)
"""Shorter side of a matrix up to which all singular values are clipped at once, without and with a GPU, which takes
long for them; beyond, the largest, one by one."""

ROUNDS, TURNS = 3, 3
"""How many of the largest, and turns of the vectors for each; they stay warm from call to call."""


def scale_map(term: MapTerm, factor: float) -> None:
    """Multiply what a layer puts out: the gains and shifts of the normalizer behind it, or its own weight and bias."""
    if term.scaling is not None:
        scale_norm(term.scaling, factor)
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


def clip_maps(norms: FoldedNorms, levels: dict[int, float]) -> None:
    """Bring the singular values of D_out W D_in that exceed a map's level down to it, and leave the others.

    A convolution, and a large matrix, follows the gradient of its norm a few times instead; for a matrix that clips
    its top singular value. Maps without a level, and weights that are computed from others, stay.

    Args:
        norms: the maps as they are now.
        levels: by the id of a map's term.
    """
    moved: set[object] = set()
    for group in norms.groups:
        if not any(id(term) in levels for term in group.terms):
            continue
        whole, factors = norms.whole(group)
        level = torch.tensor([levels.get(id(term), math.inf) for term in group.terms], dtype=torch.float64)
        small = group.spec is None and min(whole.shape[1:]) <= LARGEST_SVD[whole.device.type == "cuda"]
        done = (_clipped if small else _followed)(group, whole, level.to(whole.device))
        back = (done - whole) / factors.clamp_min(float(torch.finfo(torch.float32).tiny))
        for term, change in zip(group.terms, back, strict=True):
            if id(term) in levels and term.weight.free and term.weight.key not in moved:
                moved.add(term.weight.key)  # a weight that is used twice is clipped once
                term.weight().add_(change)


def _clipped(group: MapGroup, whole: Tensor, level: Tensor) -> Tensor:
    left, values, right = torch.linalg.svd(whole, full_matrices=False)
    return (left * values.minimum(level[:, None])[:, None]) @ right


def _followed(group: MapGroup, whole: Tensor, level: Tensor) -> Tensor:
    for _ in range(ROUNDS):
        with torch.enable_grad():
            leaf = whole.detach().requires_grad_()
            sizes = group.norms(GatheredWeights(leaf.unbind()), TURNS)
            (way,) = torch.autograd.grad(sizes.sum(), leaf)
        over = (sizes.detach() - level).clamp_min(0.0) / way.flatten(1).square().sum(1).clamp_min(TINY)
        whole = whole - way * over.reshape(-1, *[1] * (way.ndim - 1))
    return whole

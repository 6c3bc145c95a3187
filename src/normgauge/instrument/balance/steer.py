"""Top singular values of weighted linear maps, quick and unproved: what the descent on the weights steers by.

float32 has digits enough for that; what is found is proved in float64 afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, TINY_SINGLE
from normgauge.instrument.rules.flow import Kernel, Matrix
from normgauge.instrument.spectral.conv_operator import apply_adjoint, apply_conv
from normgauge.instrument.trace.lent import Lent

BLOCK = 6  # singular vectors followed for each linear map
POWER = 40.0  # how sharply the largest of them is preferred
FIRST_ROUNDS = 10  # power iterations for vectors that are new
DEAR, FEW = 2e7, 2  # multiplications of one product from which fewer vectors are followed, and how many
WIDE, PIXELS = 1e6, 10  # multiplications from which a convolution is followed on fewer pixels, outputs an axis then


class SteeringPair(NamedTuple):
    """log of a top singular value, and the mass of its vectors on each channel of the output and of the input."""

    log_sigma: float
    left: Tensor
    right: Tensor


class SteeringPairs:
    """A linear map, applied to a block of vectors that is kept between calls.

    Near the minimum several singular values are equal, so the masses are averaged over the block with weights σ_i^p:
    the gradient of a Schatten norm restricted to the block.
    """

    def __init__(self, form: Matrix | Kernel) -> None:
        self.form = form
        self.block: Tensor | None = None
        self.single: tuple[Tensor, float] | None = None

    def _cast(self, make: Callable[[], Tensor]) -> tuple[Tensor, float]:
        """The weight in float32 and the log of what divides it; kept, unless it is lent: that would be a copy of it."""
        if self.single is not None:
            return self.single
        weight = make()
        size = max(float(torch.linalg.vector_norm(weight.detach(), math.inf)), TINY)
        whole = weight.detach().float() if TINY_SINGLE < size < 1 / TINY_SINGLE else weight.detach() / size
        single = whole.div(size if whole.dtype == torch.float32 else 1.0).float(), math.log(size)
        if not isinstance(self.form.weight, Lent):
            self.single = single
        return single

    def top(self, make: Callable[[], Tensor], log_out: Tensor, log_in: Tensor) -> SteeringPair:
        """The top pair of D_out W D_in⁻¹; ``make`` gives W, the same in every call."""
        single, log_size = self._cast(make)
        form = self.form
        if isinstance(form, Kernel):
            small = is_pointwise(single, form)
            single, form = (single.flatten(1), Matrix(single)) if small else (single, on_fewer_pixels(form, single))
        shape = (single.shape[1],) if isinstance(form, Matrix) else form.spec.input_shape(single)
        after, before = (
            (log - log.max()).exp().float().to(single.device).reshape(-1, *([1] * (len(shape) - 1)))
            for log in (log_out, -log_in)
        )
        block, rounds = self.block, 1
        if block is None:
            places = math.prod(form.spec.output_size(single)) if isinstance(form, Kernel) else 1
            width = min(BLOCK if single.numel() * places < DEAR else FEW, math.prod(shape))
            start = torch.randn(width, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
            block = start.to(single.device)
            rounds = FIRST_ROUNDS
        for _ in range(rounds):
            basis = torch.linalg.qr(block.flatten(1).T)[0]
            image = after * _forward(single, before * basis.T.reshape(-1, *shape), form)
            block = before * _backward(single, after * image, form)
        self.block = block
        squares, turn = torch.linalg.eigh((image.flatten(1) @ image.flatten(1).T).cpu())  # tiny: no work for a device
        share = singular_shares(squares.clamp_min(0).sqrt()).to(image.device)
        turn = turn.to(image.device)
        masses = [
            (turn.T @ rows.flatten(1)).reshape(len(rows), channels, -1).square().sum(2)
            for rows, channels in ((image, image.shape[1]), (basis.T, shape[0]))
        ]
        left, right = (share @ (m / m.sum(1, keepdim=True).clamp_min(TINY_SINGLE)) for m in masses)
        log_sigma = math.log(max(float(squares[-1]), TINY)) / 2 + log_size + float(log_out.max() - log_in.min())
        return SteeringPair(log_sigma, left.double().cpu(), right.double().cpu())


def on_fewer_pixels(form: Kernel, weight: Tensor) -> Kernel:
    """The same convolution with `PIXELS` outputs an axis, where it has more and a product takes long.

    Its norm is a little smaller, its top vectors lie on the same channels, and they are found in fewer rounds.
    """
    spec = form.spec
    outputs = spec.output_size(weight)
    if spec.transposed or weight.numel() * math.prod(outputs) < WIDE or max(outputs) <= PIXELS:
        return form
    size = tuple(
        max(1, n - (m - PIXELS) * s) if m > PIXELS else n
        for n, m, s in zip(spec.input_size, outputs, spec.stride, strict=True)
    )
    return replace(form, spec=replace(spec, input_size=size))


def is_pointwise(weight: Tensor, form: Kernel) -> bool:
    """Whether a convolution is one matrix, the same at every pixel it keeps."""
    spec = form.spec
    return max(weight.shape[2:]) == spec.groups == 1 and not spec.transposed and not any(map(any, spec.padding))


def _forward(weight: Tensor, rows: Tensor, form: Matrix | Kernel) -> Tensor:
    return rows @ weight.T if isinstance(form, Matrix) else apply_conv(weight, rows, form.spec)


def _backward(weight: Tensor, rows: Tensor, form: Matrix | Kernel) -> Tensor:
    return rows @ weight if isinstance(form, Matrix) else apply_adjoint(weight, rows, form.spec)


def sided(form: Matrix | Kernel, log_out: Tensor, log_in: Tensor) -> tuple[Tensor, Tensor]:
    """log of what D_out W D_in⁻¹ multiplies W by along its first axis and along its second, (groups, n) each."""
    groups, transposed = (form.spec.groups, form.spec.transposed) if isinstance(form, Kernel) else (1, False)
    first, second = (-log_in, log_out) if transposed else (log_out, -log_in)
    return first.reshape(groups, -1), second.reshape(groups, -1)


def singular_shares(sizes: Tensor) -> Tensor:
    """How much each singular value counts along the last axis: σ^p, together 1."""
    share = (sizes / sizes.amax(-1, keepdim=True).clamp_min(TINY_SINGLE)).pow(POWER)
    return share / share.sum(-1, keepdim=True).clamp_min(TINY_SINGLE)

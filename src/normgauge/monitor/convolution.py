"""The same enclosure for a convolution: the operator as it runs, at the size of input it was seen with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.monitor.enclosure import Raw, alike, distance, first_direction, proved_norm, root_of_squares, working
from normgauge.rules.conv import padding_pairs
from normgauge.spectral.conv import ConvSpec, apply, apply_adjoint, conv_norm
from normgauge.spectral.conv_operator import padding_constant

WARM_UP = 3
"""Power iterations before the first reading."""

WIDTH = 0.02
"""log(upper/lower) a full refresh asks for."""


class TrackedConv:
    """The norm of one convolution while its kernel changes.

    ‖conv(K)‖ ≤ ‖conv(K_ref)‖ + √taps·p ‖K − K_ref‖_F, since a convolution is a sum of one shifted matrix a tap, and its
    padding has norm p (1 for zeros); from below by power iteration on one input, in float64 (a fast algorithm in
    float32 has no provable rounding).
    """

    def __init__(self, weight: Tensor, spec: ConvSpec) -> None:
        self.spec = spec
        self.spread = math.sqrt(math.prod(weight.shape[2:])) * padding_constant(spec)
        self.reference = weight.detach().clone()
        self.proved: Tensor | float = math.inf
        self.lost = True  # the reference says no more than the Frobenius norm does: its distance is not asked for
        self._shape = spec.input_shape(weight)
        taps = math.prod(weight.shape[2:])
        self.terms = max(weight.shape[:2]) * taps + math.prod(self._shape) + math.prod(spec.output_shape(weight))
        self.restart()

    def fits(self, weight: Tensor, size: tuple[int, ...] | None) -> bool:
        """Whether this is the kernel being followed, at this size of input."""
        return alike(self.reference, weight) and size in (None, self.spec.input_size)

    def restart(self) -> None:
        """Begin with new directions, after the old ones died or overflowed."""
        start = first_direction(self._shape, self.reference)
        self.right = torch.stack((start, start))  # plain and folded direction
        self._cold = True

    def read(self, weight: Tensor, scale: Tensor | None, turns: int = 1) -> Raw:
        """Numbers of one reading, still on the device; ``scale`` is |γ|/σ of each channel, or of all."""
        kernel, plain = weight.double(), weight.to(working(weight))  # in half precision a norm would be rounded down
        found = self._turn(kernel, scale)
        for _ in range(WARM_UP if self._cold else min(turns, 2) - 1):
            found = self._turn(kernel, scale)
        self._cold = False
        return {
            "proved": self.proved,
            "drift": math.inf if self.lost else distance(plain, self.reference.to(plain.dtype)),
            "frobenius": root_of_squares(plain),
            "found": found[0],
            "folded": found[1],
        }

    def _turn(self, kernel: Tensor, scale: Tensor | None) -> Tensor:
        """‖conv v‖ for each direction, and one power iteration of both."""
        image = apply(kernel, self.right, self.spec)
        if scale is not None:
            image[1] *= _per_channel(scale, image)
        found = torch.linalg.vector_norm(image.flatten(1), dim=1)
        if scale is not None:
            image[1] *= _per_channel(scale, image)
        back = apply_adjoint(kernel, image, self.spec)
        self.right = F.normalize(back.flatten(1), dim=1).view_as(back)
        return found

    def refresh(self, weight: Tensor) -> None:
        """Prove the operator norm of the kernel as it is now; seconds for a large layer."""
        self.reference.copy_(weight)
        self.lost = False
        self.proved = math.exp(conv_norm(weight.detach().cpu(), self.spec, WIDTH).log.hi) * (1 + 1e-9)

    def refresh_cheaply(self, weight: Tensor) -> None:
        """√taps·‖kernel as a matrix (out, in·taps)‖: at most √taps too large, and nothing waits for a device.

        Σ_t K_t x_t = [K_1 … K_T] (x_1, …, x_T) at every place, and every pixel is seen by at most T places.
        """
        matrix = weight.detach().flatten(1).double()
        upper, _ = proved_norm(matrix, first_direction((matrix.shape[1],), matrix))
        self.reference.copy_(weight)
        self.lost = False
        self.proved = upper * self.spread


def spec_of(module: Any, input_size: Sequence[int]) -> ConvSpec:
    """The layer as it runs."""
    transposed = isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d)
    return ConvSpec(
        input_size=tuple(input_size),
        stride=tuple(module.stride),
        padding=padding_pairs(module.padding, module.weight, tuple(module.dilation)),
        dilation=tuple(module.dilation),
        groups=module.groups,
        transposed=transposed,
        output_padding=tuple(module.output_padding) if transposed else (),
        padding_mode=module.padding_mode,
    )


def is_pointwise(module: Any) -> bool:
    """One tap, one group, no padding: the operator's norm is that of the matrix."""
    taps = math.prod(module.kernel_size)
    padded = isinstance(module.padding, str) or any(module.padding)
    return taps == 1 and module.groups == 1 and (not padded or module.padding in ("same", "valid"))


def _per_channel(scale: Tensor, image: Tensor) -> Tensor:
    shape = (-1, *[1] * (image.ndim - 2)) if scale.ndim else ()
    return scale.to(image.dtype).reshape(shape)

"""One affine map of a chain as a matrix: its norms, with the bias as one more input that is always 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.instrument.spectral.conv import ConvSpec, apply_conv, conv_norm
from normgauge.instrument.spectral.dense import dense_norm

UP = 1e-12  # relative room for sums in float64


@dataclass(frozen=True, slots=True)
class Link:
    """Upper bounds of the norms of one matrix.

    Attributes:
        name: the layer.
        log_spectral: ln of the largest singular value.
        log_frobenius: ln of the Frobenius norm.
        log_rows: ln of the sum of the ℓ2 norms of the rows: the (2,1) norm of the transpose.
        log_row: ln of the largest ℓ2 norm of a row.
        inputs: columns of the matrix; a constant input counts.
        outputs: rows; a constant output counts.
        units: signs that fix what the layer does to a sample: one an output, and one a pair that a max pool compares.
        weights: numbers that can be chosen, each shared one once, biases included.
    """

    name: str
    log_spectral: float
    log_frobenius: float
    log_rows: float
    log_row: float
    inputs: int
    outputs: int
    units: int
    weights: int


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """x ↦ Ax + b on one sample, A dense, a convolution at its true size, or one factor a channel.

    Attributes:
        name: the layer.
        weight: (outputs, inputs); a kernel where ``spec`` is given; a vector of factors where it is 1-d.
        bias: one number a unit or channel; None for a map without bias.
        spec: layout of a convolution.
        shape: of one sample that comes in.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    spec: ConvSpec | None
    shape: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """What the map gives for a batch."""
        if self.spec is not None:
            out = apply_conv(self.weight, x, self.spec)
        elif self.weight.ndim == 1:
            out = x * self._spread(self.weight, x.ndim)
        else:
            return F.linear(x, self.weight, self.bias)
        return out if self.bias is None else out + self._spread(self.bias, x.ndim)

    @staticmethod
    def _spread(channels: Tensor, ndim: int) -> Tensor:
        return channels.reshape(1, -1, *[1] * (ndim - 2))

    def folded(self, scale: Tensor, shift: Tensor) -> Affine:
        """This map followed by y ↦ scale·y + shift, channel by channel."""
        weight = self.weight * scale.reshape(-1, *[1] * (self.weight.ndim - 1))
        bias = shift if self.bias is None else self.bias * scale + shift
        return Affine(self.name, weight, bias, self.spec, self.shape)

    def row_squares(self) -> Tensor:
        """‖row‖² of the matrix for each output of a sample, flattened; exact."""
        if self.spec is not None:  # an output sums the kernel's squares over the pixels that are not padding
            return apply_conv(
                self.weight.square(), torch.ones(1, *self.shape, dtype=self.weight.dtype), self.spec
            ).flatten()
        if self.weight.ndim == 1:
            return self._per_output(self.weight.square())
        return self.weight.square().sum(1)

    def _per_output(self, channels: Tensor) -> Tensor:
        """A number a channel, once for each of its outputs."""
        if self.spec is not None:
            places = math.prod(self.spec.output_size(self.weight))
        else:
            places = math.prod(self.shape[1:]) if self.weight.ndim == 1 else 1
        return channels.repeat_interleave(places)

    def log_spectral(self) -> float:
        """Ln of a proved upper bound of the norm of A."""
        if self.spec is not None:
            return conv_norm(self.weight, self.spec).log.hi
        if self.weight.ndim == 1:
            return _log(float(self.weight.abs().max()))
        return dense_norm(self.weight).log.hi

    def link(self, *, constant: bool, last: bool, window: int = 1) -> Link:
        """The norms of [[A b], [0 1]] if the chain carries a constant, of [A b] at its end, of A without a constant.

        Args:
            constant: whether inputs carry one more coordinate that is always 1.
            last: whether it is the end of the chain.
            window: outputs a max pool compares at a time: windows of q have q(q−1)/2 pairs, (q−1)/2 an output.

        Returns:
            The norms.
        """
        rows = self.row_squares()
        squares = torch.zeros_like(rows)
        if self.bias is not None:
            squares = self._per_output(self.bias.square())
        norms = (rows + squares).sqrt()
        extra = 1.0 if constant and not last else 0.0
        return Link(
            self.name,
            self._log_whole(float(squares.sum().sqrt()), constant=constant, last=last),
            _log(math.sqrt(float(norms.square().sum()) + extra)),
            _log(float(norms.sum()) + extra),
            _log(max(float(norms.max()), extra)),
            math.prod(self.shape) + constant,
            len(rows) + int(extra),
            -(-len(rows) * (window + 1) // 2),
            self.weight.numel() + (0 if self.bias is None else self.bias.numel()),
        )

    def _log_whole(self, shift: float, *, constant: bool, last: bool) -> float:
        """The norm of the matrix with its bias: exact where dense, else that of [[‖A‖, ‖b‖], [0, 1]]."""
        if not constant:
            return self.log_spectral()
        if self.spec is None and self.weight.ndim == 2:
            bias = torch.zeros(len(self.weight), dtype=self.weight.dtype) if self.bias is None else self.bias
            whole = torch.cat([self.weight, bias[:, None]], 1)
            if not last:
                unit = torch.zeros(1, whole.shape[1], dtype=whole.dtype)
                unit[0, -1] = 1.0
                whole = torch.cat([whole, unit])
            return dense_norm(whole).log.hi
        log = self.log_spectral()
        if log > 300:
            return log + shift + 1.0
        corner = [[math.exp(log), shift], [0.0, 0.0 if last else 1.0]]
        return dense_norm(torch.tensor(corner, dtype=torch.float64)).log.hi


def _log(value: float) -> float:
    return math.log(value) + UP if value > 0 else -math.inf

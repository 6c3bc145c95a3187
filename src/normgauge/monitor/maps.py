"""The linear maps of layers that are measured together: matrices of one shape, or one convolution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.instrument.rules.conv import padding_pairs
from normgauge.instrument.spectral.conv_operator import ConvSpec, apply_adjoint, apply_conv, padding_constant

SMALL_SIDE = 128  # matrices with no side longer than this are measured together, whatever their shapes

STACKED = SMALL_SIDE**2  # entries of a matrix up to which a CPU multiplies copies of all at once rather than one by one

SCALES = (1e-12, 1e12)  # norms whose squares are far from where float32 ends

CHUNK = 2**18  # most numbers added up in float32 before the sum goes on in float64

FAST_DOUBLES = ((7, 0), (8, 0), (9, 0), (10, 0))  # CUDA devices made for computing: V100, A100, H100, B200

MOST_COPIED = 2**24  # entries of matrices copied to float64 at a time on the way to their Gram matrices

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Maps(ABC):
    """Several linear maps of one shape, in one precision.

    Attributes:
        count: how many maps.
        inputs, outputs: numbers that go into each, and come out.
        terms: at least those of each sum in a product; a number for each map where their shapes differ.
        spread: ‖map‖ ≤ spread·‖weight‖_F.
        dtype: of the products.
        unit: its unit roundoff.
        device: where they are taken.
        inside: (count, 1, inputs): 0 where a map has fewer inputs; None where all have as many.
    """

    count: int
    inputs: int
    outputs: int
    terms: int | Tensor
    spread: float
    dtype: torch.dtype
    unit: float
    device: torch.device
    inside: Tensor | None = None

    @abstractmethod
    def forward(self, given: Tensor) -> Tensor:
        """Images of the rows of each map's (rows, inputs): (count, rows, outputs)."""

    @abstractmethod
    def adjoint(self, given: Tensor) -> Tensor:
        """Images of the rows of each map's (rows, outputs) under the transposed map: (count, rows, inputs)."""

    def turned(self, space: Tensor, folded: Tensor, fold: Any, *, moves: bool) -> Tensor | None:
        """Turn directions as `warm.turn` does, where these maps have a shorter way; what a turn shows, one row each."""
        return None

    @abstractmethod
    def sizes(self) -> Tensor:
        """Frobenius norm of each weight, in float64."""

    def normal(self, given: Tensor) -> Tensor:
        """Images of rows under AAᵀ or AᵀA, whichever is the smaller."""
        return self.forward(self.adjoint(given)) if self.outputs < self.inputs else self.adjoint(self.forward(given))

    @property
    def underflow(self) -> float | Tensor:
        """What is lost of a product where numbers are too small."""
        return (self.terms + 16) * torch.finfo(self.dtype).tiny

    def product_error(self, sizes: Tensor) -> Tensor:
        """Bound of ‖fl(Ax) − Ax‖/‖x‖ and of the same for Aᵀ, from the Frobenius norms of the weights.

        |fl(Ax) − Ax| ≤ γ |A||x| entrywise and ‖|A|‖ ≤ spread·‖weight‖_F, with γ = terms·unit to first order,
        in any order of sums; the rest is room for higher orders and for vectors that are not quite of unit length.

        Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., (3.5).
        """
        return 1.1 * (self.terms + 16) * self.unit * self.spread * sizes


class MatrixMaps(Maps):
    """Matrices; on a device, and small ones on a CPU, one product of all of them at a time.

    Those of several shapes are filled up with zeros, which changes no norm; where they are multiplied one by one, their
    images are.
    """

    def __init__(self, weights: Sequence[Tensor], dtype: torch.dtype) -> None:
        self._weights = [weight if weight.ndim == 2 else weight.flatten(1) for weight in weights]
        self._alike, self.outputs, self.inputs, terms, inside = _filled_up(tuple([w.shape for w in self._weights]))
        self.count, self.spread, self.dtype, self.terms = len(weights), 1.0, dtype, max(self.outputs, self.inputs)
        self.unit, self.device, self._squares = torch.finfo(dtype).eps / 2, weights[0].device, list[Tensor]()
        if not self._alike and self._all is None:
            self.terms, self.inside = terms, inside.to(dtype)

    @cached_property
    def _all(self) -> Tensor | None:
        together = self.device.type != "cpu" or self.outputs * self.inputs <= STACKED
        return _stacked(self._weights, self.dtype, (self.outputs, self.inputs)) if together else None

    @cached_property
    def _each(self) -> list[Tensor]:
        return [weight.to(self.dtype) for weight in self._weights]

    @cached_property
    def _gram(self) -> Tensor | None:
        return gram_matrices(self._weights) if multiplies_doubles(self.device) else None

    def normal(self, given: Tensor) -> Tensor:
        """Images under AAᵀ or AᵀA, whichever is the smaller.

        From the Gram matrix itself where it costs little more to make than one product of a few rows. It is off by
        2(terms + 8)·unit·‖A‖_F² at most and a product with it by 1.1(terms + 16)·unit·‖A‖_F², together no more than
        three products with A.
        """
        return super().normal(given) if self._gram is None else given @ self._gram

    def forward(self, given: Tensor) -> Tensor:
        """Rows times the transposed matrix."""
        if self._all is not None:
            return given @ self._all.mT
        if self.dtype == torch.float64 and self._alike:  # where this way round is the faster one
            return torch.stack([(w @ rows.T).T for w, rows in zip(self._each, given, strict=True)])
        return self._one_by_one(given, (w.T for w in (self._each if self._squares else self._added_up())), self.outputs)

    def _added_up(self) -> Iterator[Tensor]:
        """Each matrix after its sum of squares: that reads memory as fast as it goes; a product then finds it near."""
        for w in self._each:
            self._squares.append(sum_of_squares(w))
            yield w

    def sizes(self) -> Tensor:
        """Frobenius norm of each matrix, in float64."""
        return sizes_of(torch.stack(self._squares), self._weights) if self._squares else frobenius_norms(self._weights)

    def adjoint(self, given: Tensor) -> Tensor:
        """Rows times the matrix."""
        return self._one_by_one(given, self._each, self.inputs) if self._all is None else given @ self._all

    def _one_by_one(self, given: Tensor, matrices: Iterable[Tensor], longest: int) -> Tensor:
        """The rows of each map times its matrix; 0 behind the end of shorter ones."""
        if self._alike:
            return torch.stack([rows @ matrix for matrix, rows in zip(matrices, given, strict=True)])
        made = given.new_zeros(self.count, given.shape[1], longest)
        for matrix, rows, out in zip(matrices, given, made, strict=True):
            torch.mm(rows[:, : matrix.shape[0]], matrix, out=out[:, : matrix.shape[1]])
        return made


class ConvMaps(Maps):
    """One convolution at the size of its input, in float64: a fast algorithm in float32 has no provable rounding."""

    def __init__(self, weight: Tensor, spec: ConvSpec) -> None:
        self._weight, self._kernel, self._spec, self.device = weight, weight.double(), spec, weight.device
        self._shapes = spec.input_shape(weight), spec.output_shape(weight)
        self.count, (self.inputs, self.outputs) = 1, map(math.prod, self._shapes)
        taps, padding = math.prod(weight.shape[2:]), padding_constant(spec)
        self.terms = max(weight.shape[:2]) * taps + math.ceil(padding**2)
        self.spread, self.dtype = math.sqrt(taps) * padding, torch.float64
        self.unit = torch.finfo(self.dtype).eps / 2

    def forward(self, given: Tensor) -> Tensor:
        """The convolution of each row as an image."""
        images = given.reshape(-1, *self._shapes[0])
        return apply_conv(self._kernel, images, self._spec).reshape(1, -1, self.outputs)

    def adjoint(self, given: Tensor) -> Tensor:
        """The transposed convolution of each row as an image."""
        images = given.reshape(-1, *self._shapes[1])
        return apply_adjoint(self._kernel, images, self._spec).reshape(1, -1, self.inputs)

    def sizes(self) -> Tensor:
        """Frobenius norm of the kernel."""
        return frobenius_norms([self._weight])


def gram_matrices(weights: Sequence[Tensor]) -> Tensor:
    """AAᵀ or AᵀA of each matrix, whichever is the smaller, in float64: (matrices, order, order).

    Where matrices differ in a side, zeros fill it up.
    """
    shapes = [weight.flatten(1).shape for weight in weights]
    rows, columns = (max(shape[side] for shape in shapes) for side in (0, 1))
    together, order = max(1, MOST_COPIED // (rows * columns)), min(rows, columns)
    made = torch.empty((len(weights), order, order), dtype=torch.float64, device=weights[0].device)
    for first in range(0, len(weights), together):
        copies = _stacked(weights[first : first + together], torch.float64, (rows, columns))
        pair = (copies, copies.mT) if rows < columns else (copies.mT, copies)
        torch.bmm(*pair, out=made[first : first + together])
    return made


def multiplies_doubles(device: torch.device) -> bool:
    """Whether a device multiplies matrices in float64 about as fast as in float32."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in FAST_DOUBLES


def frobenius_norms(weights: Sequence[Tensor]) -> Tensor:
    """Frobenius norm of each weight in float64; long sums of float32 in pieces, so that their rounding stays small."""
    if weights[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(list(weights), 2, torch.float64))
    return sizes_of(torch.stack([sum_of_squares(weight) for weight in weights]), weights)


def sizes_of(squares: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Frobenius norms on a CPU from sums of squares; those whose squares float32 cannot hold are taken in float64."""
    sizes = squares.double().sqrt()
    odd = ~((sizes > SCALES[0]) & (sizes < SCALES[1]))
    for row in odd.nonzero().flatten().tolist() if bool(odd.any()) else ():
        sizes[row] = torch.linalg.vector_norm(weights[row].double())
    return sizes


def sum_of_squares(tensor: Tensor) -> Tensor:
    """A dot product takes half the time of torch's norm."""
    plain = (tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()).reshape(-1)
    if plain.numel() <= CHUNK:
        return torch.dot(plain, plain)
    return torch.stack([torch.dot(piece, piece) for piece in plain.split(CHUNK)]).double().sum()


def working(tensor: Tensor) -> torch.dtype:
    """The precision of the cheap products: float32 on a CPU that keeps to it, float64 elsewhere (no TF32, no bf16)."""
    exact = tensor.device.type == "cpu" and tensor.dtype != torch.float64 and _keeps_float32()
    return torch.float32 if exact else torch.float64


def _keeps_float32() -> bool:
    """Whether a CPU multiplies float32 as such: settings may let it take bfloat16 instead."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch says so where its newer settings differ by backend
        return False


def spec_of(module: Any, input_size: Sequence[int]) -> ConvSpec:
    """The convolution of a module as it runs on inputs of this size."""
    transposed = isinstance(module, TRANSPOSED)
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
    """Whether a convolution has one tap, one group and no padding: its norm is then that of its matrix."""
    taps = math.prod(module.kernel_size)
    padded = isinstance(module.padding, str) or any(module.padding)
    return taps == 1 and module.groups == 1 and (not padded or module.padding in ("same", "valid"))


@lru_cache(maxsize=64)
def _filled_up(shapes: tuple[tuple[int, int], ...]) -> tuple[bool, int, int, Tensor, Tensor]:
    """Whether matrices have one shape, their longest sides, the longer side of each and which inputs each has."""
    outputs, inputs = (max(shape[side] for shape in shapes) for side in (0, 1))
    widths = torch.tensor([shape[1] for shape in shapes])
    inside = (torch.arange(inputs) < widths[:, None])[:, None]
    return len(set(shapes)) == 1, outputs, inputs, torch.tensor([max(shape) for shape in shapes]), inside


def _stacked(weights: Sequence[Tensor], dtype: torch.dtype, size: tuple[int, int]) -> Tensor:
    """Copies of all matrices in one tensor, by one kernel; zeros where one is smaller than ``size``."""
    flat = [weight.flatten(1) for weight in weights]
    same = all(w.shape == size for w in flat)
    made = (flat[0].new_empty if same else flat[0].new_zeros)((len(flat), *size), dtype=dtype)
    parts = made.unbind() if same else [part[: w.shape[0], : w.shape[1]] for part, w in zip(made, flat, strict=True)]
    for turned in (False, True):  # one kernel takes those that lie in memory alike
        chosen = [place for place, w in enumerate(flat) if w.is_contiguous() is not turned]
        if chosen:
            torch._foreach_copy_([parts[place] for place in chosen], [flat[place] for place in chosen])
    return made

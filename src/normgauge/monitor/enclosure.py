"""A proved enclosure of a layer's norm that is cheap to keep: exact at a reference, wider by the drift since.

A convolution is taken as the operator that runs, at the size of input it was seen with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.rounding import UNIT, house_down, house_up
from normgauge.instrument.rules.conv import padding_pairs
from normgauge.instrument.spectral.conv import ConvSpec, apply_adjoint, apply_conv, conv_norm
from normgauge.instrument.spectral.conv_operator import padding_constant
from normgauge.instrument.spectral.dense import gram, proved_below
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.sheet import Column, Row

ROOMS = (0.004, 0.015, 0.04, 0.09, 0.3)  # how far above the value found the proof is tried, in turn

ITERATIONS = 24  # power iterations on the Gram matrix at a refresh: it is there, so they cost little

WIDTH = 0.02  # log(upper/lower) that a full proof of a convolution's norm asks for

CHUNK = 2**18  # most numbers added up in working precision before the sum goes on in float64

# Relative width above which an enclosure wants a new proof: a little under five per cent, for what rounding adds
TARGET = 0.049

CHEAP = 256  # order up to which a proof is taken at once when everything is asked for; larger ones keep to the budget

DEARER = 20  # what the operator norm of a convolution costs in cheap bounds, about; used until one was timed

Raw = Mapping[Column, "Tensor | float"]


def working(tensor: Tensor) -> torch.dtype:
    """The precision of the cheap steps: float64 on an accelerator (no TF32), float32 or better on a CPU."""
    return torch.float64 if tensor.device.type == "cuda" or tensor.dtype == torch.float64 else torch.float32


class Tracked:
    """The norm of one matrix while it changes.

    ‖W‖ ≤ ‖W_ref‖ + ‖W − W_ref‖_F, with ‖W_ref‖ from a Cholesky proof on its Gram matrix, and ‖W‖ ≥ ‖Wv‖ for a unit v
    that power iterations at readings keep near the top singular direction. A second direction follows the matrix
    folded with its normalizer, diag(s) W: estimated, from below.

    Holds:  at every reading, for the weights of that reading; ``ends`` adds the rounding of every step outward.

    Attributes:
        warm_up: how often the directions turn before the first reading.
        most_turns: how often at one reading.
        spread: ‖map‖ ≤ spread·‖weight‖_F.
        terms: at least those of each sum in Wv, in ‖Wv‖ and in ‖v‖.
        unit: unit roundoff of the cheap steps.
        unit_of_product: the same for Wv.
        reference: the weight whose norm was proved.
        proved: that norm from above.
        lost: the reference says no more than the Frobenius norm does: its distance is not asked for.
        width: of the last enclosure, relative.
        cost: seconds the next proof will take, as far as is known.
    """

    warm_up, most_turns = 8, 1000

    def __init__(self, weight: Tensor) -> None:
        self.reference = weight.detach().clone()
        self.proved: Tensor | float = math.inf
        self.lost = self._cold = True
        self.width, self.cost = math.inf, 0.0
        self.spread, self.terms = 1.0, weight.shape[0] + weight[0].numel()
        self.unit = self.unit_of_product = torch.finfo(working(weight)).eps / 2
        self.restart()

    def read(self, weight: Tensor, scale: Tensor | None, turns: int = 1) -> Raw:
        """Numbers of one reading, still on the device; ``scale`` is |γ|/σ of each row or channel, or of all."""
        plain = weight.to(working(weight))  # in half precision a norm would be rounded down
        found, folded = self._turned(plain, scale, 1 + self.warm_up if self._cold else min(turns, self.most_turns))
        self._cold = False
        return {
            "proved": self.proved,
            "drift": math.inf if self.lost else frobenius_distance(plain, self.reference),
            "frobenius": root_of_squares(plain),
            "found": found,
            "folded": folded,
        }

    @property
    def is_cheap(self) -> bool:
        """Whether a proof takes hardly any time: a small matrix on a CPU."""
        return min(self.reference.flatten(1).shape) <= CHEAP and self.reference.device.type == "cpu"

    def refresh(self, weight: Tensor) -> float:
        """Prove the norm of the weight as it is now, and take it as the reference.

        Returns:
            The seconds it took.
        """
        began = time.perf_counter()
        proved, dearer = self._prove(weight.detach())
        self.reference.copy_(weight)
        self.proved, self.lost, self.width = proved, False, 0.0
        seconds = time.perf_counter() - began
        self.cost = dearer * seconds
        return seconds

    def ends(self, raw: Row) -> tuple[float, float]:
        """The enclosure that follows from the numbers of a reading, once they have been fetched."""
        if not 0.0 < raw["found"] < math.inf:
            self.restart()
        lower, upper = self._rounded(raw)
        self.width = upper / lower - 1 if lower else math.inf
        self.lost = self.lost or raw["proved"] + self.spread * raw["drift"] > self.spread * raw["frobenius"]
        return lower, upper

    def _rounded(self, raw: Row) -> tuple[float, float]:
        """Lower and upper end of the norm, rounding included.

        A sum of n terms in precision u is off by at most n·u of the sum of their sizes, in any order; so a Euclidean
        norm by n·u/2, and a product Wv by terms·u·‖W‖_F. What underflows is smaller than √entries·2⁻⁶³.

        Returns:
            The ends; 0 and infinity where a number is not finite.
        """
        entries = self.reference.numel()
        sums = 1 + (min(entries, CHUNK) + 64) * self.unit
        floor = math.sqrt(entries) * 2.0**-63
        whole = (raw["frobenius"] * sums + floor) * self.spread
        upper = house_up(min(raw["proved"] + (raw["drift"] * sums + floor) * self.spread, whole))
        off = self.unit_of_product
        lower = (raw["found"] - (self.terms + 8) * off * whole) / (1 + (2 * self.terms + 64) * off)
        if math.isnan(upper) or math.isinf(raw["frobenius"]) or math.isnan(raw["found"]):
            return 0.0, math.inf
        return max(0.0, house_down(lower)), upper

    def fits(self, weight: Tensor, size: tuple[int, ...] | None) -> bool:
        """Whether this is the weight being followed, at this size of input."""
        old = self.reference
        return (old.device, old.dtype, old.shape) == (weight.device, weight.dtype, weight.shape)

    def restart(self) -> None:
        """Begin with new directions, after the old ones died (W was 0) or overflowed."""
        start = first_direction((self.reference[0].numel(),), self.reference)
        self.right = self.folded = start.to(working(self.reference))  # of the matrix, and of it with its normalizer
        self._cold = True

    def _prove(self, weight: Tensor) -> tuple[Tensor | float, float]:
        """An upper bound of the norm, and how many times as long the next proof will take."""
        proved, right = proved_norm(weight.flatten(1).double(), self.right.double())
        self.right = right.to(self.right.dtype)
        return proved, 1.0

    def _turned(self, weight: Tensor, scale: Tensor | None, turns: int) -> tuple[Tensor, Tensor]:
        """‖Wv‖ for the plain and the folded direction, after ``turns`` power iterations."""
        matrix = weight.flatten(1)
        for _ in range(turns):
            image = torch.mv(matrix, self.right)
            found = gain = torch.linalg.vector_norm(image)
            self.right = F.normalize(torch.mv(matrix.T, image), dim=0)
            if scale is not None:
                image = torch.mv(matrix, self.folded) * scale
                gain = torch.linalg.vector_norm(image)
                self.folded = F.normalize(torch.mv(matrix.T, image * scale), dim=0)
        return found, gain


class TrackedConv(Tracked):
    """The norm of one convolution while its kernel changes.

    ‖conv(K)‖ ≤ ‖conv(K_ref)‖ + √taps·p ‖K − K_ref‖_F, since a convolution is a sum of one shifted matrix a tap, and its
    padding has norm p (1 for zeros); from below by power iteration on one input, in float64 (a fast algorithm in
    float32 has no provable rounding).
    """

    warm_up, most_turns, is_cheap = 3, 2, False

    def __init__(self, weight: Tensor, spec: ConvSpec) -> None:
        self.spec = spec
        self._shape = spec.input_shape(weight)
        super().__init__(weight)
        taps = math.prod(weight.shape[2:])
        self.spread = math.sqrt(taps) * padding_constant(spec)
        self.terms = max(weight.shape[:2]) * taps + math.prod(self._shape) + math.prod(spec.output_shape(weight))
        self.unit_of_product = UNIT

    def fits(self, weight: Tensor, size: tuple[int, ...] | None) -> bool:
        """Whether this is the kernel being followed, at this size of input."""
        return super().fits(weight, size) and size in (None, self.spec.input_size)

    def restart(self) -> None:
        """Begin with new directions, after the old ones died or overflowed."""
        start = first_direction(self._shape, self.reference)
        self.right = torch.stack((start, start))  # plain and folded direction
        self._cold = True

    def _prove(self, weight: Tensor) -> tuple[Tensor | float, float]:
        """First √taps·‖kernel as a matrix (out, in·taps)‖; then, on a CPU, the operator norm itself.

        The first is at most √taps too large, and nothing waits for a device: Σ_t K_t x_t = [K_1 … K_T] (x_1, …, x_T) at
        every place, and every pixel is seen by at most T places. The second takes seconds for a large layer.
        """
        on_host = weight.device.type == "cpu"
        if on_host and self.cost:
            return house_up(math.exp(conv_norm(weight, self.spec, WIDTH).log.hi)), 1.0
        matrix = weight.flatten(1).double()
        upper, _ = proved_norm(matrix, first_direction((matrix.shape[1],), matrix))
        return upper * self.spread, DEARER if on_host else 1.0

    def _turned(self, weight: Tensor, scale: Tensor | None, turns: int) -> tuple[Tensor, Tensor]:
        """‖conv v‖ for the plain and the folded direction, after ``turns`` power iterations."""
        kernel = weight.double()
        for _ in range(turns):
            image = apply_conv(kernel, self.right, self.spec)
            if scale is not None:
                image[1] *= _per_channel(scale, image)
            found = torch.linalg.vector_norm(image.flatten(1), dim=1)
            if scale is not None:
                image[1] *= _per_channel(scale, image)
            back = apply_adjoint(kernel, image, self.spec)
            self.right = F.normalize(back.flatten(1), dim=1).view_as(back)
        return found[0], found[1]


class Enclosures(dict[int, Tracked]):
    """The enclosures of a model's matrices and convolutions between readings, by row."""

    def follow(self, row: int, layer: WatchedLayer, weight: Tensor, size: tuple[int, ...] | None) -> None:
        """Follow a layer, if it can be: a convolution once the size of its input is known.

        A weight of another device, type or shape, or a convolution on a larger input, is followed anew.
        """
        if row in self and self[row].fits(weight, size):
            return
        if layer.role == "matrix" or (layer.role == "conv" and is_pointwise(layer.module)):
            self[row] = Tracked(weight)
        elif layer.role == "conv" and size is not None:
            self[row] = TrackedConv(weight, spec_of(layer.module, size))

    def wanting(self) -> list[int]:
        """Rows whose enclosure is wider than the target, widest first."""
        wide = [(-tracked.width, row) for row, tracked in self.items() if tracked.width > TARGET]
        return [row for _, row in sorted(wide)]


def first_direction(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A unit vector in float64 that looks random, made where it is used: copying one to a device would wait."""
    count = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64, device=like.device)
    return F.normalize(torch.cos(count * count * 1.6180339887), dim=0).reshape(shape)


def proved_norm(matrix: Tensor, right: Tensor) -> tuple[Tensor | float, Tensor]:
    """An upper bound of ‖matrix‖ that Cholesky proves, and a direction near its top; no wait on an accelerator.

    The bound is a number on a CPU and stays a tensor elsewhere: there all rooms are tried, and nothing is decided on
    the host.
    """
    product, error = gram(matrix)
    wide = matrix.shape[0] < matrix.shape[1]  # then the product is over the rows
    vector = matrix @ right if wide else right
    fallback = house_up(torch.linalg.vector_norm(matrix))
    prove = _on_host if matrix.device.type == "cpu" else _on_device
    upper, vector = prove(product, error, vector, fallback)
    direction = matrix.T @ vector if wide else vector
    length = torch.linalg.vector_norm(direction)
    return upper, torch.where(length > 0, direction / length, right)


def _on_host(product: Tensor, error: Tensor, vector: Tensor, fallback: Tensor) -> tuple[float, Tensor]:
    """Try the rooms one after another, with an ever better direction, until one is proved."""
    for room in ROOMS:
        vector, top = _iterated(product, vector)
        level = float(top) * (1 + room)
        if math.isfinite(level) and bool(proved_below(product, level)):
            return house_up(math.sqrt(level + float(error))), vector
    return float(fallback), vector


def _on_device(product: Tensor, error: Tensor, vector: Tensor, fallback: Tensor) -> tuple[Tensor, Tensor]:
    """Try all rooms and take the smallest that is proved; the host waits for nothing."""
    vector, _ = _iterated(product, vector)
    vector, top = _iterated(product, vector)
    upper = fallback
    for room in reversed(ROOMS):
        level = top * (1 + room)
        upper = torch.where(proved_below(product, level), house_up(torch.sqrt(level + error)), upper)
    return upper, vector


def _iterated(product: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Some power iterations on a Gram matrix: the direction, and the eigenvalue it shows."""
    for _ in range(ITERATIONS):
        vector = F.normalize(product @ vector, dim=0, eps=torch.finfo(torch.float64).tiny)
    return vector, torch.linalg.vector_norm(product @ vector)


def frobenius_distance(left: Tensor, right: Tensor) -> Tensor:
    """‖left − right‖_F; long sums in pieces."""
    if left.device.type != "cpu":
        return root_of_squares(left.to(working(left)) - right)
    return torch.dist(left, right) if left.numel() <= CHUNK else root_of_squares(left - right)


def root_of_squares(tensor: Tensor) -> Tensor:
    """Euclidean norm in the working precision; long sums in pieces on a CPU, so that their rounding stays small."""
    if tensor.device.type != "cpu":
        return torch.linalg.vector_norm(tensor, dtype=working(tensor))
    if tensor.numel() <= CHUNK:
        return torch.linalg.vector_norm(tensor)
    pieces = [torch.linalg.vector_norm(piece) for piece in tensor.reshape(-1).split(CHUNK)]
    return torch.linalg.vector_norm(torch.stack(pieces).double())


def spec_of(module: Any, input_size: Sequence[int]) -> ConvSpec:
    """The convolution of a module as it runs on inputs of this size."""
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
    """Whether a convolution has one tap, one group and no padding: its norm is then that of its matrix."""
    taps = math.prod(module.kernel_size)
    padded = isinstance(module.padding, str) or any(module.padding)
    return taps == 1 and module.groups == 1 and (not padded or module.padding in ("same", "valid"))


def _per_channel(scale: Tensor, image: Tensor) -> Tensor:
    shape = (-1, *[1] * (image.ndim - 2)) if scale.ndim else ()
    return scale.to(image.dtype).reshape(shape)

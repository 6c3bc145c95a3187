"""A proved enclosure of a weight's norm that is cheap to keep: exact at a reference, wider by the drift since."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.monitor.sheet import Column, Row
from normgauge.spectral.dense import below, gram

ROOMS = (0.004, 0.015, 0.04, 0.09, 0.3)
"""How far above the value found the proof is tried, in turn."""

ITERATIONS = 24
"""Power iterations on the Gram matrix at a refresh: it is there, so they cost little."""

WARM_UP = 8
"""How often the directions turn before the first reading."""

CHUNK = 2**18
"""Most numbers added up in working precision before the sum goes on in float64."""

Raw = Mapping[Column, "Tensor | float"]


def working(tensor: Tensor) -> torch.dtype:
    """The precision of the cheap steps: float64 on an accelerator (no TF32), float32 or better on a CPU."""
    return torch.float64 if tensor.device.type == "cuda" or tensor.dtype == torch.float64 else torch.float32


def unit_of(dtype: torch.dtype) -> float:
    """Unit roundoff."""
    return torch.finfo(dtype).eps / 2


class Tracked:
    """The norm of one matrix while it changes.

    ‖W‖ ≤ ‖W_ref‖ + ‖W − W_ref‖_F, with ‖W_ref‖ from a Cholesky proof on its Gram matrix, and ‖W‖ ≥ ‖Wv‖ for a unit v
    that power iterations at readings keep near the top singular direction. A second direction follows the matrix
    folded with its normalizer, diag(s) W: estimated, from below.

    Holds:  at every reading, for the weights of that reading; ``ends`` adds the rounding of every step outward.
    """

    spread = 1.0
    """‖map‖ ≤ spread·‖weight‖_F."""

    def __init__(self, weight: Tensor) -> None:
        matrix = weight.detach().flatten(1)
        self.reference = matrix.clone()
        self.proved: Tensor | float = math.inf  # ‖reference‖ from above
        self.lost = True  # the reference says no more than the Frobenius norm does: its distance is not asked for
        self._cold = True
        self.right = self.folded = matrix  # unit directions, of the matrix and of it with its normalizer
        self.restart()

    def read(self, weight: Tensor, scale: Tensor | None, turns: int = 1) -> Raw:
        """Numbers of one reading, still on the device; ``scale`` is |γ|/σ of each row, or of all."""
        matrix = weight.flatten(1).to(working(weight))
        found, gain = self._turn(matrix, scale)
        for _ in range(WARM_UP if self._cold else turns - 1):
            found, gain = self._turn(matrix, scale)
        self._cold = False
        return {
            "proved": self.proved,
            "drift": math.inf if self.lost else distance(matrix, self.reference),
            "frobenius": root_of_squares(matrix),
            "found": found,
            "folded": gain,
        }

    def refresh(self, weight: Tensor) -> None:
        """Prove the norm of the weight as it is now, and take it as the reference."""
        self.reference.copy_(weight.flatten(1))
        self.lost = False
        self.proved, right = proved_norm(weight.flatten(1).double(), self.right.double())
        self.right = right.to(self.right.dtype)

    def _turn(self, matrix: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
        """‖Wv‖ for each direction, and one power iteration of both."""
        image = torch.mv(matrix, self.right)
        found = gain = torch.linalg.vector_norm(image)
        self.right = F.normalize(torch.mv(matrix.T, image), dim=0)
        if scale is not None:
            image = torch.mv(matrix, self.folded) * scale
            gain = torch.linalg.vector_norm(image)
            self.folded = F.normalize(torch.mv(matrix.T, image * scale), dim=0)
        return found, gain

    def fits(self, weight: Tensor, size: tuple[int, ...] | None) -> bool:
        """Whether this is the weight being followed."""
        del size
        return alike(self.reference, weight)

    def restart(self) -> None:
        """Begin with new directions, after the old ones died (W was 0) or overflowed."""
        start = first_direction((self.reference.shape[1],), self.reference)
        self.right = self.folded = start.to(working(self.reference))
        self._cold = True


def alike(left: Tensor, right: Tensor) -> bool:
    """Same device, type and number of entries."""
    return (left.device, left.dtype, left.numel()) == (right.device, right.dtype, right.numel())


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
    fallback = torch.linalg.vector_norm(matrix) * (1 + 1e-9)
    prove = _on_host if matrix.device.type == "cpu" else _on_device
    upper, vector = prove(product, error, vector, fallback)
    direction = matrix.T @ vector if wide else vector
    length = torch.linalg.vector_norm(direction)
    return upper, torch.where(length > 0, direction / length, right)


def _on_host(product: Tensor, error: Tensor, vector: Tensor, fallback: Tensor) -> tuple[float, Tensor]:
    """Room after room, each with a better direction, until one is proved."""
    for room in ROOMS:
        vector, top = _iterated(product, vector)
        level = float(top) * (1 + room)
        if math.isfinite(level) and bool(below(product, level)):
            return math.sqrt(level + float(error)) * (1 + 1e-9), vector
    return float(fallback), vector


def _on_device(product: Tensor, error: Tensor, vector: Tensor, fallback: Tensor) -> tuple[Tensor, Tensor]:
    """All rooms, the smallest that is proved; the host learns nothing."""
    vector, _ = _iterated(product, vector)
    vector, top = _iterated(product, vector)
    upper = fallback
    for room in reversed(ROOMS):
        level = top * (1 + room)
        upper = torch.where(below(product, level), torch.sqrt(level + error) * (1 + 1e-9), upper)
    return upper, vector


def _iterated(product: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Some power iterations on a Gram matrix: the direction, and the eigenvalue it shows."""
    for _ in range(ITERATIONS):
        vector = F.normalize(product @ vector, dim=0, eps=torch.finfo(torch.float64).tiny)
    return vector, torch.linalg.vector_norm(product @ vector)


def distance(left: Tensor, right: Tensor) -> Tensor:
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


def ends(
    raw: Row,
    terms: int,
    entries: int,
    unit: float,
    spread: float = 1.0,
    unit_of_product: float | None = None,
) -> tuple[float, float]:
    """Lower and upper end of the norm from the numbers of a reading, rounding included.

    A sum of n terms in precision u is off by at most n·u of the sum of their sizes, in any order; so a Euclidean norm
    by n·u/2, and a product Wv by terms·u·‖W‖_F. What underflows is smaller than √entries·2⁻⁶³.

    Args:
        raw: proved, drift, frobenius, found.
        terms: at least those of each sum in Wv, in ‖Wv‖ and in ‖v‖.
        entries: of the weight.
        unit: unit roundoff of the working precision.
        spread: ‖map‖ ≤ spread·‖weight‖_F; 1 for a matrix, √taps for a convolution.
        unit_of_product: of the precision of Wv, where that is another.

    Returns:
        The ends; 0 and infinity where a number is not finite.
    """
    product = unit if unit_of_product is None else unit_of_product
    sums = 1 + (min(entries, CHUNK) + 64) * unit
    floor = math.sqrt(entries) * 2.0**-63
    whole = (raw["frobenius"] * sums + floor) * spread
    upper = min(raw["proved"] + (raw["drift"] * sums + floor) * spread, whole) * (1 + 1e-9)
    lower = (raw["found"] - (terms + 8) * product * whole) / (1 + (2 * terms + 64) * product)
    if math.isnan(upper) or math.isinf(raw["frobenius"]) or math.isnan(raw["found"]):
        return 0.0, math.inf
    return max(0.0, lower * (1 - 1e-9)), upper

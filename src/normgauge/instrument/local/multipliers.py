"""The bound over uncertain slopes: any positive multipliers prove one, good ones prove a tight one.

With e the direction of the input, v = V (e, w) what enters the uncertain units and w = Δ v what their slopes add to the
middle, |Δ| ≤ h, the output moves by Z (e, w). For multipliers Λ > 0, one a unit (one for all entries of a block), and

    M = diag(I, Λ) − Vᵀ diag(h²Λ) V ≻ 0:      ‖Z (e, w)‖² ≤ λ_max(Z M⁻¹ Zᵀ)·‖e‖²,

since wᵀΛw ≤ vᵀ diag(h²Λ) v. With B = diag(h√Λ) V D^(−½) and D = diag(I, Λ) this is M ≻ 0 ⇔ I − BBᵀ ≻ 0 and

    Z M⁻¹ Zᵀ = Z D⁻¹ Zᵀ + Y (I − BBᵀ)⁻¹ Yᵀ,   Y = Z D^(−½) Bᵀ.

Rounding. Rows of V and Z are known up to matrices of norm τ. Σ h²Λ (v + δ)² ≤ (1 + s) Σ h²Λ v² + (1 + 1/s) ω ‖(e, w)‖²
with ω = Σ max(h²Λ) τ² over the layers, so D loses (1 + 1/s) ω and B gains √(1 + s); the rows of Z gain τ/√λ_min(M). The
Cholesky factor L of (1 − δ)I − BBᵀ has LLᵀ ≼ I − BBᵀ where δ covers the rounding of both.

Source: S-procedure, as in Fazlyab et al. 2019; Higham, Accuracy and Stability of Numerical Algorithms, Theorem 10.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, dot_error, eigenvalue_error, house_up

NOTICEABLE = 1e4  # a row is treated as at least this many times as long as its error
QUICKLY = 64  # directions looked at together
LARGEST_SLIP = 1e-2  # a proof whose own rounding is larger says nothing


@dataclass(slots=True)
class Units:
    """The uncertain units met so far.

    Attributes:
        rows: V, (rows, directions): what enters each, in the input's directions, then in those of earlier units.
        half: h of each row.
        group: which multiplier each row has.
        columns: which multiplier each direction behind the input's has.
        layer: which layer each row belongs to.
        errors: τ of each layer.
        gram: V Vᵀ over the input's directions, whose weights are all the same.
    """

    rows: Tensor
    half: Tensor
    group: Tensor
    columns: Tensor
    layer: Tensor
    errors: list[float]
    gram: Tensor

    @classmethod
    def none(cls, inputs: int) -> Units:
        """No units yet, and ``inputs`` directions."""
        empty, whole = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
        nothing = torch.zeros(0, 0, dtype=torch.float64)
        return cls(torch.zeros(0, inputs, dtype=torch.float64), empty, whole, whole, whole, [], nothing)

    @property
    def groups(self) -> int:
        """How many multipliers there are."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def inputs(self) -> int:
        """Directions of the input."""
        return self.rows.shape[1] - len(self.columns)

    def extended(self, rows: Tensor, half: Tensor, group: Tensor, columns: Tensor, error: float) -> Units:
        """With further units: their rows, and groups for rows and directions, counted from 0."""
        first, old = self.groups, self.rows.shape[1]
        wide = torch.zeros(len(self.rows) + len(rows), old + len(columns), dtype=torch.float64)
        wide[: len(self.rows), :old] = self.rows
        wide[len(self.rows) :, : rows.shape[1]] = rows
        gram = torch.zeros(len(wide), len(wide), dtype=torch.float64)
        gram[: len(self.rows), : len(self.rows)] = self.gram
        fresh = wide[len(self.rows) :, : self.inputs] @ wide[:, : self.inputs].T
        gram[len(self.rows) :], gram[:, len(self.rows) :] = fresh, fresh.T
        return Units(
            wide,
            torch.cat([self.half, half]),
            torch.cat([self.group, group + first]),
            torch.cat([self.columns, columns + first]),
            torch.cat([self.layer, torch.full((len(rows),), len(self.errors))]),
            [*self.errors, error],
            gram,
        )


@dataclass(frozen=True, slots=True)
class Factor:
    """Multipliers that are proved to be feasible, ready to bound rows.

    Attributes:
        scale: D^(−½), (directions,).
        reduced: B, (rows, directions).
        cholesky: L.
        worst: ‖L⁻¹‖, from above.
        least: λ_min(M), from below.
        groups: how many multipliers there are.
    """

    scale: Tensor
    reduced: Tensor
    cholesky: Tensor
    worst: float
    least: float
    groups: int

    def images(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Z D^(−½), L⁻¹Yᵀ and the lengths of the former's rows."""
        scaled = rows * self.scale[: rows.shape[1]]
        image = self.reduced[:, : rows.shape[1]] @ scaled.T
        solved = torch.linalg.solve_triangular(self.cholesky, image, upper=False) if len(image) else image
        return scaled, solved, torch.linalg.vector_norm(scaled, dim=1)

    def products(self, rows: Tensor) -> Tensor:
        """Z M⁻¹ Zᵀ as it is computed."""
        scaled, solved, _ = self.images(rows)
        return scaled @ scaled.T + solved.T @ solved

    def slip(self, directions: int) -> float:
        """What rounding adds to a length, as a part of that of a row of Z D^(−½)."""
        if not len(self.reduced):
            return 0.0
        size = float(torch.linalg.vector_norm(self.reduced))
        order = len(self.reduced)
        backward = self.worst * dot_error(order) * math.sqrt(order)  # of the triangular solve, ‖L‖_F ≤ √n
        return self.worst * size * (dot_error(directions) + backward)

    def quick_bounds(self, rows: Tensor, error: float) -> Tensor:
        """The same as `row_bounds`, from the rows' lengths alone: M ≽ λ_min(I − BᵀB) D."""
        weight, lengths = self.scale[: rows.shape[1]].square(), torch.zeros(len(rows), dtype=torch.float64)
        for part, own in zip(rows.split(QUICKLY, dim=1), weight.split(QUICKLY), strict=True):
            lengths += part.square() @ own
        lengths = lengths.sqrt()
        steep = max(self.worst, 1.0)
        return house_up(house_up(lengths * (1 + dot_error(rows.shape[1]))) * steep + error / math.sqrt(self.least))

    def row_bounds(self, rows: Tensor, error: float) -> Tensor:
        """An upper bound of each row's own length √(z M⁻¹ zᵀ); ``error`` is τ of these rows."""
        _, solved, lengths = self.images(rows)
        whole = torch.hypot(lengths, torch.linalg.vector_norm(solved, dim=0))
        return house_up(whole + self.slip(rows.shape[1]) * lengths) + house_up(error / math.sqrt(self.least))

    def norm_bound(self, rows: Tensor, error: float) -> float:
        """An upper bound of √λ_max(Z M⁻¹ Zᵀ)."""
        scaled, solved, lengths = self.images(rows)
        product = scaled @ scaled.T + solved.T @ solved
        size = float(torch.linalg.vector_norm(lengths)), float(torch.linalg.vector_norm(solved))
        spread = dot_error(rows.shape[1]) * size[0] ** 2 + dot_error(len(solved)) * size[1] ** 2
        top = max(float(torch.linalg.eigvalsh(product)[-1]), 0.0)
        level = math.sqrt(top + eigenvalue_error(len(product)) * top + 2 * spread)
        return house_up(level + self.slip(rows.shape[1]) * size[0] + error / math.sqrt(self.least))


def factored(units: Units, logs: Tensor) -> Factor | None:
    """The multipliers exp(logs), one a group, if Cholesky proves them feasible; else None."""
    multipliers = logs.exp()
    inputs = units.inputs
    if not len(units.rows):
        return Factor(torch.ones(inputs, dtype=torch.float64), units.rows, torch.zeros(0, 0).double(), 0.0, 1.0, 0)
    if not bool((multipliers.isfinite() & (multipliers > 0)).all()):
        return None
    diagonal = torch.cat([torch.ones(inputs, dtype=torch.float64), multipliers[units.columns]])
    weight = units.half.square() * multipliers[units.group]
    largest = torch.zeros(len(units.errors), dtype=torch.float64).scatter_reduce(0, units.layer, weight, "amax")
    blurred = float((largest * torch.tensor(units.errors, dtype=torch.float64).square()).sum())
    share = math.sqrt(blurred / float(diagonal.min())) if blurred else 0.0
    if not share < LARGEST_SLIP:
        return None
    diagonal = diagonal - house_up(blurred + (blurred / share if share else 0.0))
    scale = diagonal.rsqrt()
    reduced = (weight * (1 + share)).sqrt()[:, None] * units.rows * scale
    order, directions = reduced.shape
    later, heavy = reduced[:, inputs:], (weight * (1 + share)).sqrt() * scale[0]
    product = heavy[:, None] * units.gram * heavy + later @ later.T
    error = dot_error(directions + 8) * float(reduced.square().sum()) + 8 * (order + 8) * UNIT * order
    shifted = -product
    shifted.diagonal().add_(1 - house_up(error))
    cholesky, info = torch.linalg.cholesky_ex(shifted)
    if int(info) or not bool(cholesky.isfinite().all()):
        return None
    inverse = torch.linalg.solve_triangular(cholesky, torch.eye(order, dtype=torch.float64), upper=False)
    sides = [float(inverse.abs().sum(axis).max()) for axis in (0, 1)]
    worst = 2 * min(math.sqrt(sides[0] * sides[1]), float(torch.linalg.vector_norm(inverse)))  # twice: its own rounding
    if worst * dot_error(order) * order > LARGEST_SLIP:
        return None
    return Factor(scale, reduced, cholesky, worst, float(diagonal.min()) / worst**2, len(logs))


def restrained(units: Units, logs: Tensor) -> Tensor:
    """The same, lowered where rows are hardly longer than their errors: h²Λτ² stays small against the least Λ.

    Multipliers of rows that are about zero may grow without use, and what rounding costs grows with them.
    """
    if not len(units.rows):
        return logs
    errors = torch.tensor(units.errors, dtype=torch.float64)[units.layer]
    least = min(0.0, float(logs.min()))
    allowed = 2 * math.log(LARGEST_SLIP / 4) + least - math.log(len(units.errors))
    rooms = allowed - 2 * (units.half * errors).clamp_min(torch.finfo(torch.float64).tiny).log()
    return torch.minimum(logs, torch.full_like(logs, math.inf).scatter_reduce(0, units.group, rooms, "amin"))


def first_multipliers(factor: Factor, rows: Tensor, half: Tensor, group: Tensor, error: float) -> Tensor:
    """Logs of feasible multipliers for further rows, given those of earlier ones: twice a scaled diagonal.

    New multipliers keep M ≻ 0 where h²Λ_i (V M⁻¹ Vᵀ) ≺ I; with the diagonal of T = V M⁻¹ Vᵀ as scale that is a number.
    Rows that are hardly longer than their ``error`` τ count as longer, so that h²Λτ² stays small.
    """
    floor = max((NOTICEABLE * error) ** 2, torch.finfo(torch.float64).tiny)
    _, solved, _ = factor.images(rows)
    scaled = rows * factor.scale[: rows.shape[1]]
    count = int(group.max()) + 1
    if len(group) == count:  # one row each
        product = scaled @ scaled.T + solved.T @ solved
        own = product.diagonal().clamp_min(floor)
        shape = product * own.rsqrt()[:, None] * own.rsqrt()
        crowd = float(torch.linalg.eigvalsh(shape)[-1])
        return -(half * own * torch.maximum(half * 2 * crowd, torch.ones_like(half))).log()
    product = scaled @ scaled.T + solved.T @ solved
    own = torch.zeros(count, dtype=torch.float64).index_add(0, group, product.diagonal())
    half = torch.zeros(count, dtype=torch.float64).scatter_reduce(0, group, half, "amax")
    own = own.clamp_min(floor)
    return -(half * own * torch.maximum(half * 2 * count, torch.ones_like(half))).log()

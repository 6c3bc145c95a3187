"""How much a small error made at one step can grow until another: what rounding does to values and tangents.

An error made at step j reaches value k through the linear maps between them, A_{k←j}. Its norm is at most the product
(sum over branches) of the steps' gains, which is useless behind many layers; so it is measured too. For cotangents u
drawn uniformly from the sphere of the n entries of value k one backward pass gives A_{k←j}ᵀu for all j at once, and

    ‖A_{k←j}‖ ≤ max_i ‖A_{k←j}ᵀ u_i‖ / c    but with probability (c √(2(n − 1)/π))^s for s of them,

for |u·z| ≥ c with z the top left singular vector. The passes round as well: step l adds f_l, ‖f_l‖ ≤ slip_l ‖g_l‖, to
the cotangents of what it reads, and so Σ_l ‖A_{in(l)←j}‖ ‖f_l‖ to what arrives at j, all of which is known by then.

Source: distribution of one coordinate of a uniform unit vector, as in Kuczyński & Woźniakowski 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from normgauge.core.rounding import house_up
from normgauge.instrument.local.pieces import NotCarried, Piece

Pick = Callable[[Sequence[Tensor]], Tensor]

PROBES, MANY_PROBES = 8, 12  # backwards, where each costs as much as a row; and beside thousands of tangents
CHANCE = 1e-12  # of one pair of steps being measured wrongly
FAINTEST = 1e-100  # a cotangent's largest entry, if it is not 0
SMALL = 1e-9  # of a value's size: errors below need not be known better


def absolute_norm(matrix: Tensor) -> float:
    """‖|A|‖ of a matrix from above: √(‖A‖₁‖A‖_∞)."""
    sizes = matrix.abs()
    return house_up(math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max()))) if matrix.numel() else 0.0


class Amplifier:
    """Errors of values and tangents, from the network's input on.

    ``reach[v]`` is a row with one entry a place where errors are made, the input, then each step: how much an error
    made there can have grown at value v, from above.
    """

    def __init__(self, source: Tensor, index: int, steps: int, seed: int, probes: int = PROBES) -> None:
        self.reach = {index: torch.zeros(steps + 1, dtype=torch.float64)}
        self.reach[index][0] = 1.0
        self.input = index
        self.pieces: list[Piece] = []
        self.blur = torch.zeros(steps + 1, dtype=torch.float64)
        self.tilt = torch.zeros(steps + 1, dtype=torch.float64)
        self.chances = 0
        self.generator = torch.Generator().manual_seed(seed)
        with torch.enable_grad():
            start = torch.zeros(probes, *source.shape, dtype=torch.float64, requires_grad=True)
        self.dummies = {index: start}

    def add(self, piece: Piece, tangents: float) -> None:
        """Follow a step; ``tangents`` is a bound of the norm of all tangents that it is given, 0 where none are."""
        self.pieces.append(piece)
        place, out = len(self.pieces), piece.output
        row = sum((gain * self.reach[v] for gain, v in zip(piece.gains, piece.inputs, strict=True)), torch.zeros(1))
        self.reach[out] = house_up(row)
        self.reach[out][place] = 1.0
        known = tangents + sum(self.tangent_error(v) for v in piece.inputs) if tangents else 0.0
        self.blur[place], self.tilt[place] = piece.blur, piece.slip * known + piece.faint
        with torch.enable_grad():
            self.dummies[out] = piece.push([self.dummies[v] for v in piece.inputs])

    def value_error(self, value: int) -> float:
        """How far a computed value is from the exact one."""
        return house_up(float(self.reach[value] @ self.blur))

    def tangent_error(self, value: int) -> float:
        """The norm of the error of all its tangents."""
        return house_up(float(self.reach[value] @ self.tilt))

    def sharpen(self, value: int, size: float) -> None:
        """Measure the reach at a value where the products say more than `SMALL` of ``size``, its typical entry."""
        if max(self.value_error(value), self.tangent_error(value)) <= SMALL * max(size, SMALL):
            return
        dummy = self.dummies[value]
        if value == self.input or not dummy.requires_grad:
            return
        shots = torch.randn(dummy.shape, generator=self.generator, dtype=torch.float64)
        shots /= torch.linalg.vector_norm(shots.reshape(len(shots), -1), dim=1).reshape(-1, *[1] * (dummy.ndim - 1))
        lengths = self.pulled(value, shots).amax(0)
        slips = (
            torch.tensor([0.0, *(p.slip for p in self.pieces)], dtype=torch.float64) * lengths[: len(self.pieces) + 1]
        )
        further = sum(
            (slips[k] * self.reach[v] for k, p in enumerate(self.pieces, 1) if slips[k] > 0 for v in p.inputs),
            torch.zeros_like(lengths),
        )
        entries = dummy[0].numel()
        if entries < 3:
            return
        part = CHANCE ** (1 / len(dummy)) / math.sqrt(2 * (entries - 1) / math.pi)
        self.chances += int((lengths > 0).sum())
        measured = house_up((lengths + further) / part)
        self.reach[value] = torch.minimum(self.reach[value], measured)

    def pulled(self, value: int, cotangents: Tensor) -> Tensor:
        """‖A_{value←j}ᵀu‖ for each cotangent u, one a dummy, and each place j: (cotangents, places)."""
        found = torch.zeros(len(cotangents), len(self.blur), dtype=torch.float64)
        places = [self.input, *(p.output for p in self.pieces)]
        grads = self.gradients(value, cotangents, [self.dummies[v] for v in places])
        for place, grad in enumerate(grads):
            if grad is not None:
                found[:, place] = torch.linalg.vector_norm(grad.reshape(len(grad), -1), dim=1)
        return found

    def gradients(self, value: int, cotangents: Tensor, of: list[Tensor]) -> tuple[Tensor | None, ...]:
        """Cotangents at other values."""
        with torch.enable_grad():
            height = (self.dummies[value] * cotangents).sum()
        return torch.autograd.grad(height, of, retain_graph=True, allow_unused=True)

    def rows(
        self, values: Sequence[int], pick: Pick, entered: list[tuple[int, Tensor]], slip: float = 0.0
    ) -> tuple[Tensor, float]:
        """Rows of the Jacobian of what ``pick`` makes of values, backwards, and the norm of their error.

        Args:
            values: their indices.
            pick: a linear map from their tangents (count, *shape) to (rows, count).
            entered: where open units enter: a value, and the places (units, *shape) in it.
            slip: what rounding adds in ``pick``, as a part of the tangents' norm.

        Returns:
            (rows, directions): those of the input, then one for each open unit.

        Raises:
            NotCarried: where cotangents are so small, but not 0, that their errors are lost.
        """
        with torch.enable_grad():
            picked = pick([self.dummies[value] for value in values])
        places = [self.input, *(p.output for p in self.pieces)]
        nodes = [self.dummies[v] for v in places]
        found, errors, wide = [], [], self._entrances(entered)
        for few in torch.arange(len(picked)).split(picked.shape[1]):
            with torch.enable_grad():
                height = picked[few, torch.arange(len(few))].sum()
            grads = torch.autograd.grad(height, nodes, retain_graph=True, allow_unused=True)
            flat = {v: g[: len(few)].reshape(len(few), -1) for v, g in zip(places, grads, strict=True) if g is not None}
            if any(0 < float(g.abs().max()) < FAINTEST for g in flat.values() if g.numel()):
                raise NotCarried("cotangents so small that their squares are lost")
            parts = [flat.get(self.input, self.dummies[self.input].new_zeros(len(few), nodes[0][0].numel()))]
            for out, columns in entered:
                seen = flat.get(out)
                flat_columns = columns.reshape(len(columns), -1).T
                parts.append(torch.zeros(len(few), len(columns)).double() if seen is None else seen @ flat_columns)
            found.append(torch.cat([part.detach() for part in parts], dim=1))
            picking = slip * sum(float(self.reach[value] @ wide) for value in values)
            errors += [picking + lost for lost in self._slipped(flat, len(few), wide)]
        return torch.cat(found), house_up(math.hypot(*errors))

    def _entrances(self, entered: list[tuple[int, Tensor]]) -> Tensor:
        """By place, the norm of what enters there: a row has the input's directions and those of all open units."""
        wide = torch.zeros_like(self.blur)
        wide[0] = 1.0
        places = {piece.output: place for place, piece in enumerate(self.pieces, 1)}
        for out, columns in entered:
            wide[places[out]] = absolute_norm(columns.reshape(len(columns), -1))
        return wide

    def _slipped(self, cotangents: dict[int, Tensor], count: int, wide: Tensor) -> list[float]:
        """For each of a few cotangents the length of the error in its row: what slipped, times how far it reaches."""
        total = torch.zeros(count, dtype=torch.float64)
        for piece in self.pieces:
            grad = cotangents.get(piece.output)
            if grad is not None:
                onward = sum(float(self.reach[v] @ wide) for v in piece.inputs)
                total += (piece.slip * onward + piece.faint) * torch.linalg.vector_norm(grad.detach(), dim=1)
        return [float(t) for t in total]

    @property
    def failure_probability(self) -> float:
        """Of all that was measured."""
        return house_up(self.chances * CHANCE)

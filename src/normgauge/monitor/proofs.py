"""Norms proved from above on the slow clock: what is computed on the device, and what follows from it on the host.

Random-start Lanczos (`instrument.spectral.random_start`) for all maps of one shape at once; the few numbers a proof
needs are fetched like any other, and the ends follow when they have come. Orders up to `DENSE` are proved by their
eigenvalues, and on a CPU those up to `FACTORED` by a factorization at a level above the end that is known from below: a
third of the time of Lanczos there, and without a chance.

The chance of a wrong end is `CHANCE` for a whole run: steps are counted in slots of `SLOT`, a layer is proved by chance
at most once in each, and slot s may spend CHANCE/(s(s + 1)), shared by all layers. So the sum stays below CHANCE,
however long a run is, and a run that goes on later needs no memory of what was spent.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, dot_error, eigenvalue_error, house_down, house_up
from normgauge.instrument.spectral.dense import runs_to_its_end
from normgauge.instrument.spectral.random_start import KrylovFacts, ends_from, krylov_facts, steps_for
from normgauge.monitor.grams import SINGLE_UNIT, gram
from normgauge.monitor.maps import SCALES, ConvMaps, Maps

CHANCE = 1e-6  # that any upper end of a run is too small, at most
SLOT = 25  # steps

STARTS = 8  # with eight, products with a few rows at a time are cheapest in all

DENSE = 128  # order up to which all eigenvalues are taken: small matrices need as many steps as they have rows

WIDTH, WIDTH_CONV = 0.0475, 0.09  # of log(upper/lower): fewer than 5 and 10 per cent

FACTORED, SINGLE = 1024, 640  # orders up to which a CPU proves a level by a factorization, and does so in float32


@dataclass(frozen=True, slots=True)
class Begun:
    """A proof for some layers whose numbers are on their way.

    Attributes:
        rows: the layers.
        step: whose weights it is about.
        chance: that it is wrong for one given layer.
        error: of one product over the Frobenius norm of the weight.
        facts: what Lanczos found, or
        products: the Gram matrices, or
        proved: the ends of each norm, where a factorization proved them.
        sums: terms of each sum in a Gram matrix.
        spread: ‖map‖ ≤ spread·‖weight‖_F.
    """

    rows: tuple[int, ...]
    step: int
    chance: float
    error: float
    facts: KrylovFacts | None
    products: Tensor | None
    sums: int
    spread: float
    proved: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def tensors(self) -> list[Tensor]:
        """The numbers to be fetched."""
        if self.facts is None:
            return [] if self.products is None else [self.products]
        return [self.facts.ritz, self.facts.skew, self.facts.longest, self.facts.residual]

    def fetched(self, tensors: Sequence[Tensor]) -> Begun:
        """The same with its numbers in main memory."""
        if self.facts is None:
            return replace(self, products=tensors[0]) if tensors else self
        ritz, skew, longest, residual = tensors
        return replace(self, facts=replace(self.facts, ritz=ritz, skew=skew, longest=longest, residual=residual))

    def ends(self, sizes: Sequence[float]) -> dict[int, tuple[float, float]]:
        """Lower and upper end of the norm of each layer, from the Frobenius norms of their weights, from above.

        A proof that came out as no number gives [0, ∞].
        """
        if self.proved is not None:
            return dict(zip(self.rows, zip(*self.proved, strict=True), strict=True))
        whole = torch.tensor(sizes, dtype=torch.float64) * self.spread
        if self.facts is not None:
            error = 3 * self.error * whole * whole  # of A and then of Aᵀ, on a vector that A stretched
            found = ends_from(self.facts, self.chance, error)
            lower, upper = found.lower, found.upper
        else:
            lower, upper = self._dense_ends(whole)
        pairs = zip(lower.sqrt().tolist(), upper.sqrt().tolist(), strict=True)
        good = [(house_down(lo), house_up(hi)) if 0 <= lo <= hi < math.inf else (0.0, math.inf) for lo, hi in pairs]
        return dict(zip(self.rows, good, strict=True))

    def _dense_ends(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        """All eigenvalues of the Gram matrices, each end moved by their rounding, that of the product and of its map.

        Returns:
            Both ends of ‖map‖²; nan where an entry is.
        """
        assert self.products is not None  # a proof has either
        finite = torch.isfinite(self.products).flatten(1).all(1)
        top = torch.linalg.eigvalsh(torch.where(finite[:, None, None], self.products, 0.0))[:, -1].clamp_min(0.0)
        off = (dot_error(self.sums) + 3 * self.error) * whole * whole + eigenvalue_error(len(self.products[0])) * top
        lower, upper = (top - off).clamp_min(0.0), top + off
        return torch.where(finite, lower, math.nan), torch.where(finite, upper, math.nan)


def chance_at(step: int, layers: int) -> float:
    """The chance that the proof of one of so many layers may spend at this step."""
    slot = step // SLOT + 1
    return CHANCE / (slot * (slot + 1) * layers)


def begin_proof(maps: Maps, rows: Sequence[int], step: int, chance: float, seed: int) -> Begun:
    """Compute on the device what the proof of some maps needs.

    Args:
        maps: in float64.
        rows: their layers.
        step: of the weights.
        chance: for each of them; none is spent on small orders.
        seed: of the random starts, another for each proof.
    """
    forward = maps.adjoint if maps.outputs < maps.inputs else maps.forward
    size, sums = sorted((maps.inputs, maps.outputs))
    error = 1.1 * (float(maps.terms) + 16) * maps.unit
    if size <= DENSE:
        unit = torch.eye(size, dtype=torch.float64, device=maps.device)
        columns = forward(unit.expand(maps.count, size, size))
        return Begun(tuple(rows), step, 0.0, error, None, columns @ columns.mT, sums, maps.spread)
    generator = torch.Generator(maps.device).manual_seed(seed)
    start = torch.randn(
        (maps.count, STARTS, size), generator=generator, dtype=torch.float64, device=maps.device
    )  # drawn after the weights were fixed
    width = WIDTH_CONV if isinstance(maps, ConvMaps) else WIDTH
    steps = steps_for(size, chance, width, STARTS) - 1  # both ends are of one Ritz value: it need not have converged
    facts = krylov_facts(maps.normal, start, steps)
    return Begun(tuple(rows), step, chance, error, facts, None, sums, maps.spread)


def factored_proof(weights: Sequence[Tensor], lowers: Sequence[float], rows: Sequence[int], step: int) -> Begun | None:
    """Prove the norms of matrices on a CPU from a little above what is known from below; None where one is not proved.

    Args:
        weights: of one shape.
        lowers: proved ends of their norms from below; of the upper ends they are no part but where to look for them.
        rows: their layers.
        step: of the weights.
    """
    uppers = [_proved_upper(w.flatten(1), lower) for w, lower in zip(weights, lowers, strict=True)]
    if math.inf in uppers:
        return None
    return Begun(tuple(rows), step, 0.0, 0.0, None, None, 0, 1.0, (tuple(lowers), tuple(uppers)))


def _proved_upper(matrix: Tensor, lower: float) -> float:
    """A number that ‖A‖ does not exceed, about (1 + width)·lower; ∞ if that is not proved.

    With G the computed product and B = βI − G as computed, a Cholesky factorization of B that runs to its end proves
    B ≽ −c·tr(B) with c = γ_{n+1}/(1 − γ_{n+1}) in the unit it ran in. So λ(G) ≤ β + c·tr(B) + what the diagonal was
    rounded by; twice that c is taken, and `grams` tells what ‖A‖ is at most for it. β is chosen so that all of it
    comes to the end wanted.

    Source: Rump, Verification of positive definiteness, BIT 46 (2006), Theorem 2.3.
    """
    if not SCALES[0] < lower < SCALES[1]:
        return math.inf
    made = gram(matrix if len(matrix) <= matrix.shape[1] else matrix.T.contiguous(), lower)
    if made is None:
        return math.inf
    order, wanted = len(made.product), math.exp(WIDTH) * lower - made.apart
    unit = SINGLE_UNIT if order <= SINGLE else UNIT
    room = 2 * (order + 4) * unit
    level = (max(0.0, wanted) ** 2 - made.lost + room * made.trace) / (1 + room * order + 8 * SINGLE_UNIT)
    if not level > lower**2:
        return math.inf
    shifted = made.product.neg_() if order <= SINGLE else made.product.double().neg_()
    shifted.diagonal().add_(level)
    left = float(shifted.diagonal().double().sum())
    if not runs_to_its_end(shifted):
        return math.inf
    proved = level * (1 + 8 * SINGLE_UNIT) + room * max(0.0, left)
    return house_up(math.sqrt(proved + made.lost) + made.apart)


def seed_of(*parts: object) -> int:
    """A seed that follows from what is told, and from nothing else."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=7).digest())

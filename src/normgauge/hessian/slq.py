"""The spectral density by stochastic Lanczos quadrature that keeps its basis orthogonal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from normgauge.core.curvature import Density
from normgauge.hessian.lanczos import Krylov, Ritz, gaussian, orthogonal
from normgauge.hessian.operator import Operator

PROBES = 6
STEPS = 40
RATIO = 1.5  # an outlier stands at least so far above the next eigenvalue, as a ratio
LEAST = 0.05  # and is at least this share of the largest: the gap above the null space is none
SETTLED = 1e-2  # relative residual of a value that counts


@dataclass(frozen=True, slots=True)
class Deflated:
    """A symmetric map without some directions: P H P."""

    inner: Operator
    vectors: Tensor

    @property
    def size(self) -> int:
        """Rows."""
        return self.inner.size

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors."""
        return self.inner.dtype

    @property
    def device(self) -> torch.device:
        """Of the vectors."""
        return self.inner.device

    def hvp(self, vector: Tensor) -> Tensor:
        """The matrix times a vector."""
        return self.outside(self.inner.hvp(self.outside(vector)))

    def outside(self, vector: Tensor) -> Tensor:
        """The part of a vector in none of the directions."""
        return orthogonal(self.vectors, vector)[1]


def spectral_density(
    operator: Operator,
    known: Ritz | None = None,
    *,
    probes: int = PROBES,
    steps: int = STEPS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Density:
    """How the eigenvalues are distributed.

    For a random unit vector v, (1/n) Σ f(λ_i) = E[vᵀf(H)v] ≈ Σ_j τ_j² f(θ_j) with Ritz values θ and the first entries τ
    of their coordinates: a Gauss quadrature, exact for polynomials of degree 2·steps − 1. Known eigenvalues are taken
    out first and come back with their exact weight 1/n. The basis is reorthogonalized, so there are no ghosts: a
    second copy of an outlier that plain Lanczos makes out of rounding.

    Source: Golub & Meurant 2009; Ghorbani, Krishnan & Xiao 2019 for networks.

    Args:
        operator: a symmetric map.
        known: eigenpairs found before.
        probes: random vectors.
        steps: products a probe.
        seed: of the probes.
        progress: called with the fraction done.

    Returns:
        The nodes and weights of the quadrature, and the outliers counted.
    """
    spikes = [] if known is None else [float(v) for v in known.values]
    inner: Operator = operator if known is None else Deflated(operator, known.vectors)
    generator = torch.Generator().manual_seed(seed)
    nodes: list[tuple[float, ...]] = []
    weights: list[tuple[float, ...]] = []
    ladders: list[list[tuple[float, bool]]] = []
    room = operator.size - len(spikes)
    for i in range(probes):
        start = gaussian(operator, generator)
        start = inner.outside(start) if isinstance(inner, Deflated) else start
        values, shares, settled = _probe(inner, start, generator, min(steps, room))
        nodes.append(tuple(values.tolist()))
        weights.append(tuple((shares * (room / operator.size) / probes).tolist()))
        ladders.append(list(zip(values.tolist(), settled.tolist(), strict=True)))
        if progress is not None:
            progress((i + 1) / probes)
    count, gap = outliers(spikes, ladders)
    return Density(
        size=operator.size,
        nodes=tuple(v for probe in nodes for v in probe),
        weights=tuple(w for probe in weights for w in probe),
        spikes=tuple(spikes),
        probes=probes,
        steps=min(steps, room),
        products=probes * min(steps, room),
        outliers=count,
        gap=gap,
    )


def exact_density(values: Sequence[float]) -> Density:
    """The same from all eigenvalues, in descending order: nothing is estimated."""
    count, gap = outliers(list(values), [])
    size = len(values)
    return Density(size, (), (), tuple(values), probes=0, steps=0, products=size, outliers=count, gap=gap)


def _probe(inner: Operator, start: Tensor, generator: torch.Generator, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    krylov = Krylov(inner, start, generator, steps)
    for _ in range(steps):
        krylov.grow()
        if krylov.beta == 0.0:  # all that this vector reaches is known
            break
    values, residuals, rotations = krylov.spectrum()
    return values, rotations[0] ** 2, residuals <= SETTLED * values.abs()


def outliers(spikes: list[float], ladders: list[list[tuple[float, bool]]]) -> tuple[int, float]:
    """How many eigenvalues stand above the largest gap, as a ratio, and that ratio.

    The i-th largest value is the largest that any probe has in that place: Ritz values approach from below. The ladder
    ends with the first that is not settled, the edge of the bulk. Gaps below 5 % of the largest eigenvalue do not
    count, and without one of 1.5 there are no outliers.
    """
    ladder = sorted(spikes, reverse=True)
    for place in range(min((len(probe) for probe in ladders), default=0)):
        value, settled = max(probe[place] for probe in ladders)
        ladder.append(value)
        if not settled:
            break
    ladder = sorted((v for v in ladder if v > 0), reverse=True)
    ratios = [a / b for a, b in pairwise(ladder) if a >= LEAST * ladder[0]]
    best = max(range(len(ratios)), key=ratios.__getitem__, default=None)
    if best is None or ratios[best] < RATIO:
        return 0, max(ratios, default=1.0)
    return best + 1, ratios[best]

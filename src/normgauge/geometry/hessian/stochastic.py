"""What random vectors tell of a Hessian: its trace and its layers', with standard errors, and its spectral density.

The density is by stochastic Lanczos quadrature that keeps its basis orthogonal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from normgauge.core.curvature import Density, TraceEstimate
from normgauge.core.errors import InputError
from normgauge.geometry.hessian.lanczos import LanczosBasis, Ritz, gaussian, orthogonal
from normgauge.geometry.hessian.operator import Mapped, Operator

SAMPLES = 16
PROBES = 6
STEPS = 40
RATIO = 1.5  # an outlier stands at least so far above the next eigenvalue, as a ratio
LEAST = 0.05  # and is at least this share of the largest: the gap above the null space does not count
SETTLED = 1e-2  # relative residual of a value that counts


def estimate_trace(
    operator: Operator,
    samples: int = SAMPLES,
    *,
    krylov: LanczosBasis | None = None,
    parts: Mapping[str, slice | Tensor] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> tuple[TraceEstimate, dict[str, TraceEstimate]]:
    """The trace by random signs, what a Krylov basis already knows taken out first.

    tr H = tr T + E[zᵀRz],  R = H − V T Vᵀ,  z of random signs; restricted to a part P, tr(PH) = tr(PVTVᵀ) + E[zᵀPRz].
    The large eigenvalues lie in V and no longer contribute to the variance 2(‖R‖_F² − Σ R_ii²): the idea of Hutch++
    with a subspace that is already paid for.

    Holds:  in expectation for any V; the standard error is that of the samples.
    Source: Hutchinson 1989; Meyer, Musco, Musco & Woodruff, Hutch++, 2021.

    Args:
        operator: a symmetric map.
        samples: random vectors, one product each; at least 2.
        krylov: a basis grown before, such as that of the top eigenvalues.
        parts: slices (or index tensors) of the flat vector whose blocks are wanted too.
        seed: of the signs.
        progress: called with the fraction done.

    Returns:
        The trace, and that of each part's block.

    Raises:
        InputError: for fewer than two samples.
    """
    if samples < 2:
        raise InputError(f"trace: expected at least 2 samples for a standard error, got {samples}")
    parts = parts or {}
    nothing = torch.zeros(0, operator.size, dtype=operator.dtype, device=operator.device)
    basis, small = (nothing, nothing[:, :0]) if krylov is None else krylov.known()
    exact = ((small @ basis) * basis).sum(0)  # the diagonal of V T Vᵀ
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[float]] = {name: [] for name in ("", *parts)}
    for i in range(samples):
        z = (torch.randint(0, 2, (operator.size,), generator=generator) * 2 - 1).to(operator.device, operator.dtype)
        left = z * (operator.hvp(z) - (small @ (basis @ z)) @ basis)
        found[""].append(_sum(left))
        for name, where in parts.items():
            found[name].append(_sum(left[where]))
        if progress is not None:
            progress((i + 1) / samples)
    whole = _estimate(found[""], _sum(exact))
    return whole, {name: _estimate(found[name], _sum(exact[where])) for name, where in parts.items()}


def _sum(values: Tensor) -> float:
    return float(values.sum(dtype=torch.float64 if values.device.type != "mps" else None))


def _estimate(values: list[float], exact: float) -> TraceEstimate:
    mean, error = mean_of(values)
    return TraceEstimate(exact + mean, error, len(values))


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean of some draws and its standard error; 0 for a single one."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
    return mean, math.sqrt(variance / len(values))


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
    spikes = [] if known is None else known.values.tolist()
    inner = operator if known is None else _deflated(operator, known.vectors)
    generator = torch.Generator().manual_seed(seed)
    nodes: list[float] = []
    weights: list[float] = []
    ladders: list[list[tuple[float, bool]]] = []
    room = operator.size - len(spikes)
    for i in range(probes):
        start = gaussian(operator, generator)
        start = start if known is None else orthogonal(known.vectors, start)[1]
        values, shares, settled = _probe(inner, start, generator, min(steps, room))
        nodes += values.tolist()
        weights += (shares * (room / operator.size) / probes).tolist()
        ladders.append(list(zip(values.tolist(), settled.tolist(), strict=True)))
        if progress is not None:
            progress((i + 1) / probes)
    count, gap = outliers(spikes, ladders)
    return Density(
        size=operator.size,
        nodes=tuple(nodes),
        weights=tuple(weights),
        spikes=tuple(spikes),
        probes=probes,
        steps=min(steps, room),
        products=probes * min(steps, room),
        outliers=count,
        gap=gap,
    )


def _deflated(inner: Operator, vectors: Tensor) -> Mapped:
    """A symmetric map without some directions: P H P."""

    def hvp(vector: Tensor) -> Tensor:
        return orthogonal(vectors, inner.hvp(orthogonal(vectors, vector)[1]))[1]

    return Mapped(inner.size, inner.dtype, inner.device, hvp)


def exact_density(values: Sequence[float]) -> Density:
    """The density from all eigenvalues, in descending order, without any estimate."""
    count, gap = outliers(list(values), [])
    size = len(values)
    return Density(size, (), (), tuple(values), probes=0, steps=0, products=size, outliers=count, gap=gap)


def _probe(inner: Operator, start: Tensor, generator: torch.Generator, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    krylov = LanczosBasis(inner, start, generator, steps)
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

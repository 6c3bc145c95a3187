"""The trace of a Hessian and of its layers' blocks, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.errors import InputError
from normgauge.hessian.lanczos import Krylov
from normgauge.hessian.operator import Operator

SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over random vectors and its standard error."""

    value: float
    standard_error: float


def estimate_trace(
    operator: Operator,
    samples: int = SAMPLES,
    *,
    krylov: Krylov | None = None,
    parts: Mapping[str, slice | Tensor] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> tuple[Estimate, dict[str, Estimate]]:
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
    known, exact = _known(operator, krylov)
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[float]] = {name: [] for name in ("", *parts)}
    for i in range(samples):
        z = signs(operator, generator)
        left = z * (operator.hvp(z) - _apply(known, krylov, z))
        found[""].append(_sum(left))
        for name, where in parts.items():
            found[name].append(_sum(left[where]))
        if progress is not None:
            progress((i + 1) / samples)
    whole = _estimate(found[""], _sum(exact))
    return whole, {name: _estimate(found[name], _sum(exact[where])) for name, where in parts.items()}


def signs(operator: Operator, generator: torch.Generator) -> Tensor:
    """A vector of random signs."""
    return (torch.randint(0, 2, (operator.size,), generator=generator) * 2 - 1).to(operator.device, operator.dtype)


def _known(operator: Operator, krylov: Krylov | None) -> tuple[Tensor | None, Tensor]:
    """The basis, and the diagonal of V T Vᵀ."""
    if krylov is None or krylov.steps == 0:
        return None, torch.zeros(operator.size, dtype=operator.dtype, device=operator.device)
    basis = krylov.vectors[: krylov.steps]
    small = krylov.projected[: krylov.steps, : krylov.steps].to(basis)
    return basis, ((small @ basis) * basis).sum(0)


def _apply(basis: Tensor | None, krylov: Krylov | None, z: Tensor) -> Tensor:
    if basis is None or krylov is None:
        return torch.zeros_like(z)
    return (krylov.projected[: krylov.steps, : krylov.steps].to(basis) @ (basis @ z)) @ basis


def _sum(values: Tensor) -> float:
    return float(values.sum(dtype=torch.float64 if values.device.type != "mps" else None))


def _estimate(values: list[float], exact: float) -> Estimate:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return Estimate(exact + mean, math.sqrt(variance / len(values)))

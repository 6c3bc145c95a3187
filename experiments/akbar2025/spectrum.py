"""Hessians of all networks of a stack at once, and what is read off their eigenvalues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025.nets import Stack

CUTS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)


def hessians(stack: Stack, losses: Callable[[Stack], Tensor]) -> Tensor:
    """Dense Hessians (networks, n, n) by double backward, one product a column for all networks together.

    Args:
        stack: the networks; parameters in the order of ``parameters()``.
        losses: one number a network.

    Returns:
        Symmetric up to rounding; symmetrized.
    """
    params = list(stack.parameters())
    grads = torch.autograd.grad(losses(stack).sum(), params, create_graph=True)
    flat = torch.cat([g.flatten(1) for g in grads], dim=1)
    columns = []
    for k in range(flat.shape[1]):
        column = torch.autograd.grad(flat[:, k].sum(), params, retain_graph=True)
        columns.append(torch.cat([c.flatten(1) for c in column], dim=1))
    made = torch.stack(columns, dim=2)
    return (made + made.mT) / 2


def diagonal(stack: Stack, values: Sequence[Tensor] | None = None) -> Tensor:
    """A diagonal (networks, n) in the order of the Hessian: ‖w_l‖ of each parameter tensor, or values given."""
    params = list(stack.parameters())
    if values is None:
        values = [p.detach().flatten(1).norm(dim=1).reshape(-1, 1, 1).expand_as(p) for p in params]
    return torch.cat([v.detach().flatten(1) for v in values], dim=1)


def top(hessian: Tensor, scale: Tensor | None = None) -> list[float]:
    """λ_max(D H D) of each network; nan where the Hessian has no finite entries."""
    scaled = hessian if scale is None else scale[:, :, None] * hessian * scale[:, None, :]
    return [float(torch.linalg.eigvalsh(h)[-1]) if torch.isfinite(h).all() else float("nan") for h in scaled]


def described(eigenvalues: Tensor) -> dict[str, Any]:
    """Ends, condition numbers and counts at several cut-offs, of one ascending spectrum.

    κ(c) = λ_max / min{λ > c λ_max};  zero at c: |λ| ≤ c λ_max;  negative at c: λ < −c λ_max
    """
    high = float(eigenvalues[-1])
    kept = {c: eigenvalues[eigenvalues > c * high] for c in CUTS}
    return {
        "top": high,
        "bottom": float(eigenvalues[0]),
        "size": len(eigenvalues),
        "kappa": [high / float(kept[c][0]) for c in CUTS],
        "zero": [int((eigenvalues.abs() <= c * high).sum()) for c in CUTS],
        "negative": [int((eigenvalues < -c * high).sum()) for c in CUTS],
    }

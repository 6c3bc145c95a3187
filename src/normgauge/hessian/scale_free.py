"""Sharpness that a rescaling of the weights cannot change."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.errors import InputError
from normgauge.hessian.operator import Mapped, scaled
from normgauge.hessian.product import Product

UNITS = ("tensor", "channel")


def scale_free(product: Product, units: str = "tensor") -> Mapped:
    """D H D with D the norm of the unit that a weight belongs to: the Hessian by relative changes of the weights.

    D = diag(‖w_l‖) on the entries of w_l.  If L(cw_l) = L(w_l) then H_ll → H_ll/c², ‖w_l‖ → c‖w_l‖ and DHD stays, so
    λ_max(DHD) is a property of the network and λ_max(H) is not.

    Holds:  for ``tensor``, under scaling whole tensors that the loss does not see; for ``channel``, under scaling
            single rows of weight matrices and filters too, which BatchNorm hides. A tensor that is zero has no scale
            and drops out.
    Source: spherical sharpness ‖w‖²λ_max of one block, Lyu, Li & Arora 2022; blockwise here.
    Claim:  A.P4.1

    Args:
        product: the Hessian.
        units: ``tensor`` (default): one norm a parameter tensor; ``channel``: one a row of it.

    Returns:
        The scaled map; its largest eigenvalue is the scale-free sharpness.

    Raises:
        InputError: for other units.
    """
    return scaled(product, diagonal(product, units))


def diagonal(product: Product, units: str = "tensor") -> Tensor:
    """D as a flat vector.

    Raises:
        InputError: for units that are none.
    """
    if units not in UNITS:
        raise InputError(f"units: expected tensor or channel, got {units!r}")
    parts = product.split(product.weights())
    return torch.cat([_norms(value, units).reshape(-1) for value in parts.values()])


def _norms(value: Tensor, units: str) -> Tensor:
    if units == "channel" and value.ndim >= 2:
        return value.flatten(1).norm(dim=1, keepdim=True).expand(-1, value[0].numel())
    return value.norm().expand(value.numel())


def zero_tensors(product: Product) -> list[str]:
    """Names of the parameters that are zero altogether."""
    return [name for name, value in product.split(product.weights()).items() if not bool(value.any())]

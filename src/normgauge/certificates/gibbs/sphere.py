"""Spherical sharpness: the curvature of the loss along directions of scale-free weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.facts.sample import DataSample, device_of
from normgauge.certificates.scores.norms import multiplications
from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, eigenvalues
from normgauge.geometry.hessian.operator import scaled_operator
from normgauge.geometry.symmetry import scale_free
from normgauge.geometry.symmetry.groups import ScaleFree, spread_vectors, vectors

BATCH, SAMPLES = 256, (32, 1024)  # samples a batch, and fewest and most in all
WORK = 1e9  # multiplications of a forward pass over all of them, about
FEW = 4  # samples that show which weights have no scale
TOLERANCE, PRODUCTS = 1e-2, (20, 60)  # most products where the network is dear to run, and elsewhere


def sharpness(model: nn.Module, sample: DataSample, seed: int = 0) -> float:
    """τ = λ_max(D H D) over the weights whose scale a normalizer takes off, D the norm of the vector an entry is in.

    For one scale-free vector it is ‖w‖²λ_max. Batch normalizers use their batch, since the weights have no scale only
    then; at most 1,024 samples are looked at, and fewer where the network is dear to run.

    Raises:
        InputError: for a network without such weights, or without second derivatives.
    """
    allowed = WORK / max(1.0, multiplications(model, sample.take([0]).to(device_of(model))))
    count = min(SAMPLES[1], max(SAMPLES[0], int(allowed)))
    order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(seed))[:count]
    products = PRODUCTS[allowed >= SAMPLES[1]]
    batches = [(sample.take(chosen), sample.truth[chosen]) for chosen in order.split(BATCH) if len(chosen) > 1]
    groups = scale_free(model, batches[0][0][:FEW])
    if not groups:
        raise InputError("no weights of this network are scale-free: no normalizer takes the scale of any layer off")
    product = Product(model, F.cross_entropy, batches, mode="train", seed=seed)
    names = tuple(name for name in product.names if any(name in group.parameters for group in groups))
    norms = _norms(groups, product.split(product.weights()))
    flat = torch.cat([norms[name].reshape(-1) for name in names])
    found, _ = eigenvalues(
        scaled_operator(product.block(names), flat), 1, tolerance=TOLERANCE, products=products, seed=seed
    )
    return float(found.values[0])


def _norms(groups: list[ScaleFree], named: dict[str, Tensor]) -> dict[str, Tensor]:
    """The norm of the vector each entry belongs to, in the shapes of the parameters."""
    found: dict[str, Tensor] = {}
    for group in groups:
        rows = vectors(group, named)
        found |= spread_vectors(group, rows.norm(dim=1, keepdim=True).expand_as(rows), named)
    return found

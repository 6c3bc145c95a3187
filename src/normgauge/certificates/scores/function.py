"""Scores of what the network computes: margins, slopes, and how its answers change between nearby points."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.facts.cells import Partition, assign_all
from normgauge.certificates.facts.sample import DataSample, device_of
from normgauge.certificates.scores.norms import multiplications
from normgauge.core.errors import InputError
from normgauge.geometry.hessian.lanczos import eigenvalues
from normgauge.geometry.hessian.margins import margin
from normgauge.geometry.hessian.operator import scaled_operator
from normgauge.geometry.hessian.product import Product, scale_free
from normgauge.geometry.symmetry import scale_free as scale_free_weights
from normgauge.geometry.symmetry.groups import ScaleFree, spread_vectors, vectors

QUANTILE = 0.1
NOISE = 0.1  # of the spread of the inputs
SLICE = 100
BATCH, SAMPLES = 256, (32, 1024)  # samples a batch, and fewest and most in all
WORK = 1e9  # multiplications of a forward pass over all of them, about
FEW = 4  # samples that show which weights have no scale
TOLERANCE, PRODUCTS = 1e-2, (20, 60)  # most products where the network is dear to run, and elsewhere


def score_margin(logits: Tensor, labels: Tensor) -> float:
    """γ, the 10th percentile of the margins of D.

    Raises:
        InputError: when it is not positive.
    """
    values, _ = margin(logits, labels)
    found = float(values.double().sort().values[max(0, math.ceil(QUANTILE * len(values)) - 1)])
    if found <= 0:
        raise InputError(
            "a tenth of the training samples or more are not classified rightly: the margin is not positive"
        )
    return found


def score_input_gradient(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Mean ‖∂(margin)/∂x‖₂ over these samples.

    Raises:
        InputError: for inputs that are whole numbers.
    """
    _check_floats(inputs)
    place = device_of(model)
    slopes = []
    for x, y in zip(inputs.split(SLICE), labels.split(SLICE), strict=True):
        leaf = x.detach().to(place).clone().requires_grad_(True)
        values, _ = margin(model(leaf), y.to(place))
        (slope,) = torch.autograd.grad(values.sum(), leaf)
        slopes.append(slope.flatten(1).double().norm(dim=1))
    return float(torch.cat(slopes).mean())


@torch.no_grad()
def score_noise_sensitivity(model: nn.Module, inputs: Tensor, *, draws: int = 5, seed: int = 0) -> float:
    """Mean ½|p(x + η) − p(x)|₁ with η normal noise of a tenth of the inputs' spread around their mean.

    Raises:
        InputError: for inputs that are whole numbers.
    """
    _check_floats(inputs)
    place = device_of(model)
    generator = torch.Generator().manual_seed(seed)
    size = NOISE * float((inputs - inputs.mean(0)).double().square().mean().sqrt())
    total = 0.0
    for x in inputs.split(SLICE):
        clean = model(x.to(place)).softmax(1)
        for _ in range(draws):
            noise = torch.randn(x.shape, generator=generator, dtype=x.dtype) * size
            total += float((model((x + noise).to(place)).softmax(1) - clean).abs().sum()) / 2
    return total / (draws * len(inputs))


def score_cell_sensitivity(
    train: tuple[DataSample, Tensor], fresh: tuple[DataSample, Tensor], partition: Partition
) -> tuple[float, float]:
    """Σ_cells (m_i/m) mean ½|p(x) − p(s)|₁ over fresh x and training s of one cell.

    The label-free twin of (66): what the answers differ by between training samples and unseen points nearby.

    Args:
        train: D and its logits.
        fresh: unlabeled points and their logits.
        partition: made without D.

    Returns:
        The mean over cells that hold both, and the share of D that lies in them.

    Raises:
        InputError: when no cell holds both.
    """
    here, there = assign_all(partition, train[0]), assign_all(partition, fresh[0])
    p, q = train[1].double().softmax(1), fresh[1].double().softmax(1)
    total, mass = 0.0, 0
    for cell in sorted(set(here.tolist()) & set(there.tolist())):
        mine, others = p[here == cell], q[there == cell]
        total += len(mine) * float(torch.cdist(mine, others, p=1).mean()) / 2
        mass += len(mine)
    if not mass:
        raise InputError("no cell holds training samples and unlabeled ones; give more unlabeled data")
    return total / mass, mass / len(here)


def score_spherical_sharpness(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, products: int = 60, seed: int = 0
) -> float:
    """λ_max of DHD, D the norm of the tensor a weight belongs to: sharpness by relative changes.

    Source: ‖w‖²λ_max, Lyu, Li & Arora 2022, for scale-free weights; here for every tensor.
    """
    product = Product(model, F.cross_entropy, [(inputs, labels)], seed=seed)
    found, _ = eigenvalues(scale_free(product), 1, tolerance=1e-2, products=products, seed=seed)
    return float(found.values[0])


def scale_free_sharpness(model: nn.Module, sample: DataSample, seed: int = 0) -> float:
    """τ = λ_max(D H D) over the scale-free weights, D the norm of the vector an entry belongs to.

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
    groups = scale_free_weights(model, batches[0][0][:FEW])
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


def _check_floats(inputs: Tensor) -> None:
    if not inputs.is_floating_point():
        raise InputError(f"the inputs are {inputs.dtype}: whole numbers have no slopes and bear no noise")

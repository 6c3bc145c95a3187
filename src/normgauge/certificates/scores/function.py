"""Scores of what the network computes: margins, slopes, and how its answers change between nearby points."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.facts.cells import Partition, assign_all
from normgauge.certificates.facts.sample import DataSample, device_of
from normgauge.core.errors import InputError
from normgauge.geometry.hessian.lanczos import eigenvalues
from normgauge.geometry.hessian.margins import margin
from normgauge.geometry.hessian.product import Product, scale_free

QUANTILE = 0.1
NOISE = 0.1  # of the spread of the inputs
SLICE = 100


def score_margin(logits: Tensor, labels: Tensor) -> float:
    """γ, which a tenth of the margins of D lie below.

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


def _check_floats(inputs: Tensor) -> None:
    if not inputs.is_floating_point():
        raise InputError(f"the inputs are {inputs.dtype}: whole numbers have no slopes and bear no noise")

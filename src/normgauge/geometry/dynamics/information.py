"""The Fisher metric along chosen directions: zero along an exact symmetry, since the predictions do not move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics.sphere import inner, tangent, unit_weights
from normgauge.geometry.symmetry.groups import ScaleFree, spread_vectors, vectors
from normgauge.instrument.trace.inputs import make_call
from normgauge.instrument.trace.untouched import cast_tree, iterates, untouched

Direction = Mapping[str, Tensor]
"""A direction in the space of weights: tensors by parameter name, zero for those not named."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Squared lengths of two directions at each scale-free vector, in both metrics; one number a row.

    Attributes:
        group: which vectors.
        cho_lee_radial: of w itself: 1.
        cho_lee_tangent: of a random tangent as long as w: 1.
        fisher_radial: of w: 0 for an exact symmetry, of order (ε/(σ²+ε))² with ε.
        fisher_tangent: of the same tangent.
    """

    group: ScaleFree
    cho_lee_radial: Tensor
    cho_lee_tangent: Tensor
    fisher_radial: Tensor
    fisher_tangent: Tensor


def scores(model: nn.Module, batch: Any, directions: Sequence[Direction]) -> Tensor:
    """Per-sample gradients of log p(class), projected on the directions: (samples, classes, directions).

    s_nck = d/dt log p(c | x_n; θ + t·d_k) at t = 0

    Holds:  in the mode the model is in. In train mode BatchNorm couples the samples, and p is that of a sample within
            this batch. Computed in float64 by double backward; the model is left as it was.

    Args:
        model: gives logits, classes in the last dimension.
        batch: as for ``gauge``: a tensor, a tuple of arguments or a mapping of keywords.
        directions: at least one.

    Returns:
        The scores.

    Raises:
        InputError: if there is no direction, one does not fit the model, or the output is not logits.
    """
    jacobians, logits = _pushed(model, batch, directions)  # (N, C, K), (N, C)
    return _centred(logits.softmax(-1).unsqueeze(-1), jacobians)


def fisher(model: nn.Module, batch: Any, directions: Sequence[Direction]) -> Tensor:
    """DᵀFD with F = mean over samples of E_{c∼p}[∇log p(c) ∇log p(c)ᵀ], D the directions; (K, K).

    Holds:  labels drawn from the model's own predictions, so F is the metric and not the empirical Fisher of the data.
    Source: S. Amari, "Natural gradient works efficiently in learning" 1998.

    Args:
        model: gives logits, classes in the last dimension.
        batch: as for ``gauge``.
        directions: the columns of D.

    Returns:
        A symmetric positive semidefinite matrix in float64.
    """
    jacobians, logits = _pushed(model, batch, directions)
    p = logits.softmax(-1).unsqueeze(-1)
    weighted = (p.sqrt() * _centred(p, jacobians)).flatten(0, 1)
    return weighted.T @ weighted / len(logits)


def radial_directions(group: ScaleFree, named: Mapping[str, Tensor]) -> list[Direction]:
    """The gauge directions of a group: for each row its vector w, zero elsewhere."""
    return _by_row(group, vectors(group, named).detach(), named)


def tangent_directions(group: ScaleFree, named: Mapping[str, Tensor], seed: int = 0) -> list[Direction]:
    """For each row a random direction orthogonal to its vector and as long."""
    return _by_row(group, _random_tangents(vectors(group, named).detach(), seed), named)


def compare_metrics(model: nn.Module, batch: Any, group: ScaleFree, seed: int = 0) -> Metrics:
    """Both metrics along the gauge and across it, at each vector of a group.

    Both are the same in every gauge, F(cw) = F(w)/c² and 1/‖cw‖² alike. They differ along w: Cho–Lee measures the gauge
    as length 1 a factor e, Fisher does not see it.

    Args:
        model: gives logits; in train mode for BatchNorm.
        batch: as for ``gauge``.
        group: whose vectors.
        seed: of the tangents.

    Returns:
        The squared lengths.
    """
    named = {name: p.detach() for name, p in model.named_parameters()}
    w = vectors(group, named)
    across = _random_tangents(w, seed)
    both = [*_by_row(group, w, named), *_by_row(group, across, named)]
    along, over = fisher(model, batch, both).diagonal().chunk(2)
    return Metrics(group, inner(w, w, w), inner(w, across, across), along, over)


def _centred(p: Tensor, jacobians: Tensor) -> Tensor:
    """d log softmax: the change of a logit less the mean change under p."""
    return jacobians - (p * jacobians).sum(1, keepdim=True)


def _random_tangents(w: Tensor, seed: int) -> Tensor:
    noise = torch.randn(w.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(w)
    return w.norm(dim=1, keepdim=True) * unit_weights(tangent(unit_weights(w), noise))


def _by_row(group: ScaleFree, values: Tensor, named: Mapping[str, Tensor]) -> list[Direction]:
    alone = torch.eye(group.rows).to(values)[:, :, None] * values  # in the r-th table all rows but the r-th are zero
    return [spread_vectors(group, table, named) for table in alone]


def _pushed(model: nn.Module, batch: Any, directions: Sequence[Direction]) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and their derivatives along the directions (N, C, K).

    Raises:
        InputError: if the output is not one tensor of logits.
    """
    call = make_call(model, batch)
    device, modes = call.measured.device, [(module, module.training) for module in model.modules()]
    with untouched(model, torch.float64, device, model.training, call.native), torch.enable_grad():
        for module, training in modes:  # a frozen BatchNorm stays frozen
            module.training = training and not iterates(module)
        named = {name: p.requires_grad_() for name, p in model.named_parameters()}
        used = _checked(directions, named)
        args, kwargs = cast_tree((call.args, call.kwargs), torch.float64, device)
        logits = model(*args, **kwargs)
        if not isinstance(logits, Tensor) or logits.ndim < 2:
            raise InputError(
                "the Fisher metric needs a model that returns logits, (samples, …, classes), as one tensor."
            )
        logits = logits.flatten(0, -2)
        # the pull-back is linear in ``seed``: its derivative there is the push-forward
        seed = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(logits, [named[name] for name in used], seed, create_graph=True, allow_unused=True)
        columns = [_push(pulled, seed, [d.get(name) for name in used]) for d in directions]
        return torch.stack(columns, -1).detach(), logits.detach()


def _push(pulled: Sequence[Tensor | None], seed: Tensor, direction: Sequence[Tensor | None]) -> Tensor:
    pairs = [(p, d.to(p)) for p, d in zip(pulled, direction, strict=True) if d is not None and p is not None]
    if not pairs:
        return torch.zeros_like(seed)
    total = torch.stack([(p * d).sum() for p, d in pairs]).sum()
    return torch.autograd.grad(total, seed, retain_graph=True)[0]


def _checked(directions: Sequence[Direction], named: Mapping[str, Tensor]) -> list[str]:
    used = sorted({name for direction in directions for name in direction})
    unknown = [name for name in used if name not in named]
    if not used or unknown:
        raise InputError(
            f"expected directions by names of parameters; got {unknown or 'none'}, known: {[*named][:5]} …."
        )
    for direction in directions:
        for name, value in direction.items():
            if value.shape != named[name].shape:
                raise InputError(f"a direction has shape {tuple(value.shape)} at {name} of {tuple(named[name].shape)}.")
    return used

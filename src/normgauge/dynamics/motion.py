"""What one step does to a scale-free vector: radial and tangential gradient, effective learning rate, turning, growth.

Tensors are (rows, n), as `normgauge.symmetry.groups.vectors` cuts them; results are (rows,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.dynamics.sphere import angle, tangent, unit
from normgauge.errors import InputError
from normgauge.symmetry.groups import ScaleFree, vectors


@dataclass(frozen=True, slots=True)
class Motion:
    """The gradient at one group of scale-free vectors, one number a row.

    Attributes:
        group: which vectors.
        norm: ‖w‖.
        radial: ŵ·∇L; 0 but for ε (`normgauge.dynamics.identity` predicts it).
        tangential: ‖(I − ŵŵᵀ)∇L‖.
        scale_free: ‖w‖·‖∇L‖, the same in every gauge.
        effective_lr: lr/‖w‖², the rate at which SGD moves ŵ.
    """

    group: ScaleFree
    norm: Tensor
    radial: Tensor
    tangential: Tensor
    scale_free: Tensor
    effective_lr: Tensor


def measure(model: nn.Module, groups: Sequence[ScaleFree], lr: float) -> list[Motion]:
    """The gradient the model holds, split along and across its scale-free vectors.

    Args:
        model: after ``loss.backward()``.
        groups: the scale-free groups.
        lr: the learning rate of SGD.

    Returns:
        One `Motion` a group.
    """
    parameters, slopes = snapshot(model), gradients(model)
    return [_motion(group, vectors(group, parameters), vectors(group, slopes), lr) for group in groups]


def _motion(group: ScaleFree, w: Tensor, g: Tensor, lr: float) -> Motion:
    radial, across = split(w, g)
    return Motion(
        group, w.norm(dim=1), radial, across.norm(dim=1), scale_free_gradient(w, g), effective_lr(w, lr)
    )  # fmt: skip


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters by name, for `angular_update` between two steps."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients by name; zeros for a parameter the loss does not see.

    Args:
        model: after ``loss.backward()``.

    Returns:
        A tensor for each parameter.

    Raises:
        InputError: if no parameter has a gradient.
    """
    named = dict(model.named_parameters())
    if all(p.grad is None for p in named.values()):
        raise InputError("no parameter has a gradient: call loss.backward() first, and measure before zero_grad().")
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.detach() for name, p in named.items()}


def split(w: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Radial part ŵ·g, (rows,), and tangential part (I − ŵŵᵀ)g, (rows, n)."""
    u = unit(w)
    return (u * g).sum(1), tangent(u, g)


def scale_free_gradient(w: Tensor, g: Tensor) -> Tensor:
    """‖w‖·‖g‖.

    Holds:  invariant under w → cw, since ∇L(cw) = ∇L(w)/c; ‖g‖ alone takes any value (THEORY 9).
    Source: M. Cho & J. Lee 2017: the length of the gradient in their metric.
    """
    return w.norm(dim=1) * g.norm(dim=1)


def effective_lr(w: Tensor, lr: float) -> Tensor:
    """η/‖w‖²: the rate with which SGD on w moves ŵ on the unit sphere.

    Holds:  for SGD without momentum, to first order in η; without ε.
    Source: T. van Laarhoven, "L2 regularization versus batch and weight normalization" 2017.
    """
    return lr / w.square().sum(1)


def angular_update(group: ScaleFree, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Tensor:
    """Angles between two snapshots of the same vectors, in radians.

    Args:
        group: which vectors.
        before: tensors by name, as from `snapshot`.
        after: the same, later.

    Returns:
        One angle a row.
    """
    return angle(vectors(group, before).detach(), vectors(group, after).detach())


def norm_growth_residual(before: Tensor, after: Tensor, g: Tensor, lr: float, decay: float = 0.0) -> Tensor:
    """‖w'‖² − (1−ηλ)²‖w‖² − η²‖g‖², zero for a step of SGD on scale-free vectors.

    Holds:  to rounding at ε = 0 and momentum 0: the step is then orthogonal to w and the norm only grows by it. With ε
            it is −2η(1−ηλ)·w·g, which the identity of THEORY 11.2 predicts.
    Source: S. Arora, Z. Li & K. Lyu, "Theoretical analysis of auto rate-tuning by batch normalization" 2019, lemma 2.4.

    Args:
        before: vectors before the step.
        after: vectors after it.
        g: gradients at ``before``.
        lr: learning rate η.
        decay: weight decay λ as ``torch.optim.SGD`` takes it.

    Returns:
        One number a row.
    """
    kept = (1 - lr * decay) ** 2 * before.square().sum(1)
    return after.square().sum(1) - kept - lr**2 * g.square().sum(1)

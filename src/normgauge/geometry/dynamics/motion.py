"""What one step does to a scale-free vector: radial and tangential gradient, effective learning rate, turning, growth.

The radial gradient that ε leaves is predicted from the normalizer alone.
Tensors are (rows, n), as `normgauge.geometry.symmetry.groups.vectors` cuts them; results are (rows,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics.sphere import angle, tangent, unit_weights
from normgauge.geometry.symmetry.groups import ScaleFree, vectors
from normgauge.instrument.rules.tried import of_module


@dataclass(frozen=True, slots=True)
class Motion:
    """The gradient at one group of scale-free vectors, one number a row.

    Attributes:
        group: which vectors.
        norm: ‖w‖.
        radial: ŵ·∇L; 0 but for ε (`RadialIdentity` predicts it).
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
    parameters, slopes, found = snapshot(model), gradients(model), []
    for group in groups:
        w, g = vectors(group, parameters), vectors(group, slopes)
        radial, across = split_gradient(w, g)
        lengths = w.norm(dim=1), radial, across.norm(dim=1)
        found.append(Motion(group, *lengths, scale_free_gradient(w, g), effective_lr(w, lr)))
    return found


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


def split_gradient(w: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Radial part ŵ·g, (rows,), and tangential part (I − ŵŵᵀ)g, (rows, n)."""
    u = unit_weights(w)
    return (u * g).sum(1), tangent(u, g)


def scale_free_gradient(w: Tensor, g: Tensor) -> Tensor:
    """The scale-free size of the gradient, ‖w‖·‖g‖, one number a row.

    Holds:  invariant under w → cw, since ∇L(cw) = ∇L(w)/c; ‖g‖ alone takes any value (THEORY 9).
    Source: M. Cho & J. Lee 2017: the length of the gradient in their metric.
    """
    return w.norm(dim=1) * g.norm(dim=1)


def effective_lr(w: Tensor, lr: float) -> Tensor:
    """The effective learning rate η/‖w‖², at which SGD on w moves ŵ on the unit sphere.

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


class RadialIdentity:
    """Listens to normalizers during one forward and backward pass and predicts w·∇L of what feeds each of them.

    Σ_r over the scale-free vector r:  w·∂L/∂w (+ b·∂L/∂b) = Σ ε/(σ²+ε) · Σ_i γ_i δ_i z_i,  δ = ∂L/∂output

    The outer sum runs over the statistics the vector has a part in: one for a channel of BatchNorm, where it is
    ε/(σ²+ε)·γ ∂L/∂γ; one a sample for LayerNorm, a group of GroupNorm, a channel of InstanceNorm, and RMSNorm (σ² there
    is the mean square). Zero at ε = 0, for every mini-batch.

    Holds:  where a linear map or convolution with weight w and bias b is all that feeds the normalizer, and feeds
            nothing else; statistics of the batch, so BatchNorm in train mode.
    Source: THEORY 11.2 and 11.3; from the backward pass x·∂L/∂x = ε/(σ²+ε)·Σγδz, and x = Wh + b is linear in (W, b).

    Args:
        model: the network.
        names: its normalizers to listen to, as in ``model.named_modules()``.

    Raises:
        InputError: if a name is unknown or no normalizer.
    """

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        modules = dict(model.named_modules())
        known = [name for name, module in modules.items() if (form := of_module(module)) and form.has_spread]
        wrong = [name for name in names if name not in known]
        if wrong:
            raise InputError(f"{', '.join(wrong)}: no normalizer of this model; it has {', '.join(known) or 'none'}.")
        self._modules = {name: modules[name] for name in names}
        self._predicted: dict[str, Tensor] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> RadialIdentity:
        self._handles = [
            module.register_forward_hook(partial(self._heard, name)) for name, module in self._modules.items()
        ]
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()

    @property
    def predicted(self) -> Mapping[str, Tensor]:
        """By normalizer, w·∇L of each vector that feeds it, (rows,)."""
        return self._predicted

    def _heard(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x = inputs[0].detach()
        if output.requires_grad:
            output.register_hook(lambda delta: self._keep(name, radial_part(module, x, delta)))

    def _keep(self, name: str, value: Tensor) -> None:
        # a normalizer and the weight before it used twice: ∂L/∂w is a sum, and so is this
        self._predicted[name] = self._predicted[name] + value if name in self._predicted else value


def radial_part(module: nn.Module, x: Tensor, delta: Tensor) -> Tensor:
    """x·∂L/∂x over each scale-free vector that makes ``x``, from the input and ∂L/∂output alone.

    Args:
        module: a normalizer; BatchNorm in train mode.
        x: its input.
        delta: gradient of the loss at its output.

    Returns:
        (rows,): one a channel for BatchNorm and InstanceNorm, one a group for GroupNorm, one for the others.

    Raises:
        InputError: for one that uses stored statistics: it is an affine map, and nothing is scale-free.
    """
    form = of_module(module, x)
    if form is None or form.stored is not None:
        raise InputError("stored statistics make an affine map, which leaves no weight scale-free; call model.train()")
    scaled = delta if form.gamma is None else delta * form.spread_out(form.gamma.detach().to(delta), x.ndim)
    # what has statistics of its own is dim 0, what the vectors share dim 1, what is averaged dim 2
    y, scaled = form.grouped(x), form.grouped(scaled)
    y = y - y.mean(2, keepdim=True) if form.centred else y
    var = form.variance(x)
    return (form.left(var) * (scaled * y).sum(2) / form.below(var)).sum(0)

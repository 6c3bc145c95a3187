"""The radial gradient that ε leaves: predicted from the normalizer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType

import torch
from torch import Tensor, nn

from normgauge.errors import InputError
from normgauge.rules.tried import of_module


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
        known = [name for name, module in modules.items() if (form := of_module(module)) and form.kind != "response"]
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

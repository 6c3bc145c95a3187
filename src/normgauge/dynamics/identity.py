"""The radial gradient that ε leaves: predicted from the normalizer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from normgauge.errors import InputError


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
        wrong = [name for name in names if not isinstance(modules.get(name), _BatchNorm | _InstanceNorm | _PER_SAMPLE)]
        if wrong:
            known = [n for n, m in modules.items() if isinstance(m, _BatchNorm | _InstanceNorm | _PER_SAMPLE)]
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
        module: BatchNorm (train mode), InstanceNorm, LayerNorm, GroupNorm or RMSNorm.
        x: its input.
        delta: gradient of the loss at its output.

    Returns:
        (rows,): one a channel for BatchNorm and InstanceNorm, one a group for GroupNorm, one for the others.

    Raises:
        InputError: for BatchNorm that uses running statistics: it is an affine map, and nothing is scale-free.
    """
    scaled = _times_gain(module, delta, x.ndim)
    match module:
        case _BatchNorm():
            if not module.training and module.running_var is not None:
                raise InputError(
                    "BatchNorm in eval mode is affine and leaves no weight scale-free; call model.train()."
                )
            x, scaled = (t.transpose(0, 1).reshape(1, t.shape[1], -1) for t in (x, scaled))
        case _InstanceNorm():
            x, scaled = (t.reshape(t.shape[0], t.shape[1], -1) for t in (x, scaled))
        case nn.GroupNorm():
            x, scaled = (t.reshape(t.shape[0], module.num_groups, -1) for t in (x, scaled))
        case nn.LayerNorm() | nn.RMSNorm():
            size = torch.Size(module.normalized_shape).numel()
            x, scaled = (t.reshape(-1, 1, size) for t in (x, scaled))
    y = x if isinstance(module, nn.RMSNorm) else x - x.mean(2, keepdim=True)
    # what the vectors share is dim 1, what has statistics of its own dims 0 and 1, what is averaged dim 2
    eps = torch.finfo(x.dtype).eps if module.eps is None else float(module.eps)  # type: ignore[arg-type]
    var = y.square().mean(2)
    along = (scaled * y).sum(2) / (var + eps).sqrt()
    return (eps / (var + eps) * along).sum(0)


_PER_SAMPLE = nn.LayerNorm | nn.GroupNorm | nn.RMSNorm


def _times_gain(module: nn.Module, delta: Tensor, ndim: int) -> Tensor:
    gain = module.weight
    if not isinstance(gain, Tensor):
        return delta
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return delta * gain.detach()
    return delta * gain.detach().reshape(1, -1, *[1] * (ndim - 2))

"""What sits where in a network: linear maps with the size they see, and the normalizer or activation behind each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

MATRICES = (nn.Linear, nn.Conv2d)
NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# Where there is no normalizer, the variance is taken where one would be.
BARE = (nn.ReLU, nn.Identity)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A linear map as it runs: name, module, shape of one input without the batch."""

    name: str
    module: nn.Linear | nn.Conv2d
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A place where σ is measured: what a normalizer, or an activation without one, receives.

    Attributes:
        name: of the module.
        module: that receives the values.
        source: index of the matrix whose output it is, None where it is another.
    """

    name: str
    module: nn.Module
    source: int | None

    @property
    def normalizes(self) -> bool:
        """Whether a normalizer is there."""
        return isinstance(self.module, NORMS)


def survey(model: nn.Module, inputs: torch.Tensor) -> tuple[list[Matrix], list[Site]]:
    """Run the model once in eval mode and write down its linear maps and its sites, in the order they run."""
    matrices: list[Matrix] = []
    sites: list[Site] = []
    kept: list[torch.Tensor] = []  # keeps every output alive, so that no two share memory
    owner: dict[int, int] = {}
    taken: set[int] = set()
    names = {module: name for name, module in model.named_modules()}

    def after(module: nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        kept.append(out)
        owner[out.untyped_storage().data_ptr()] = len(matrices)
        assert isinstance(module, MATRICES)
        matrices.append(Matrix(names[module], module, tuple(given[0].shape[1:])))

    def before(module: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        source = owner.get(given[0].untyped_storage().data_ptr())
        if isinstance(module, NORMS) or (source is not None and source not in taken):
            taken.update([] if source is None else [source])
            sites.append(Site(names[module], module, source))

    handles = [m.register_forward_hook(after) for m in model.modules() if isinstance(m, MATRICES)]
    handles += [m.register_forward_pre_hook(before) for m in model.modules() if isinstance(m, (*NORMS, *BARE))]
    try:
        with torch.no_grad(), modes(model, normalizers_train=False):
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return matrices, sites


@contextmanager
def modes(model: nn.Module, *, normalizers_train: bool) -> Iterator[None]:
    """Eval mode, with BatchNorm on batch statistics if asked; modes and running statistics are as before at the end."""
    was = [(module, module.training) for module in model.modules()]
    stored = [(buffer, buffer.clone()) for buffer in model.buffers()] if normalizers_train else []
    model.eval()
    for module, _ in was:
        if normalizers_train and isinstance(module, _BatchNorm):
            module.train()
    try:
        yield
    finally:
        for module, mode in was:
            module.training = mode
        with torch.no_grad():
            for buffer, value in stored:
                buffer.copy_(value)


def sigma(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """√(σ² + ε) of what a module receives: one value a channel for BatchNorm, one a group of a sample for the others.

    Where there is no normalizer: one a channel, over batch and pixels, without ε.
    """
    x = x.float()
    if isinstance(module, nn.LayerNorm):
        return (x.flatten(-len(module.normalized_shape)).var(-1, correction=0) + module.eps).sqrt().flatten()
    if isinstance(module, nn.RMSNorm):
        eps = torch.finfo(torch.float32).eps if module.eps is None else module.eps
        return (x.flatten(-len(module.normalized_shape)).square().mean(-1) + eps).sqrt().flatten()
    if isinstance(module, nn.GroupNorm | _InstanceNorm):
        count = module.num_groups if isinstance(module, nn.GroupNorm) else module.num_features
        return (x.reshape(len(x), count, -1).var(-1, correction=0) + module.eps).sqrt().flatten()
    eps = module.eps if isinstance(module, _BatchNorm) else 0.0
    return (x.transpose(0, 1).flatten(1).var(-1, correction=0) + eps).sqrt()


def running_sigma(module: nn.Module) -> torch.Tensor | None:
    """√(running variance + ε) of a BatchNorm; None for anything else."""
    if not isinstance(module, _BatchNorm) or module.running_var is None:
        return None
    return (module.running_var + module.eps).sqrt()


def gain(module: nn.Module) -> torch.Tensor:
    """|γ|, one where there is none."""
    weight = module.weight if isinstance(module, NORMS) else None
    return torch.ones(1) if weight is None else weight.detach().abs()


def observe(model: nn.Module, sites: list[Site], inputs: torch.Tensor, *, train: bool) -> list[torch.Tensor]:
    """σ at every site on a batch: with batch statistics if ``train``, as deployed otherwise."""
    found: list[torch.Tensor | None] = [None] * len(sites)

    def watch(k: int, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def before(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            found[k] = sigma(module, given[0].detach())

        return module.register_forward_pre_hook(before)

    handles = [watch(k, site.module) for k, site in enumerate(sites)]
    try:
        with torch.no_grad(), modes(model, normalizers_train=train):
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [values for values in found if values is not None]

"""The model's own tensors behind the weights of a trace, which holds copies of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.instrument.trace.step import Step


@dataclass(frozen=True, slots=True)
class LiveWeight:
    """A tensor of a module as it is now: all of it, or one of several equal blocks of rows, perhaps transposed.

    Attributes:
        module: whose it is.
        name: of its attribute.
        block: which block of rows, and of how many; (0, 1) for all of it.
        transposed: whether the map multiplies from the other side.
    """

    module: nn.Module
    name: str = "weight"
    block: tuple[int, int] = (0, 1)
    transposed: bool = False

    def __call__(self) -> Tensor:
        """Return the tensor with its gradient."""
        return self._seen(getattr(self.module, self.name))

    def _seen(self, tensor: Tensor) -> Tensor:
        index, count = self.block
        part = tensor if count == 1 else tensor.chunk(count)[index]
        return part.T if self.transposed else part

    @property
    def part(self) -> tuple[object, ...]:
        """Which part of its module it is."""
        return self.name, self.block, self.transposed

    @property
    def bias(self) -> Tensor | None:
        """What the same map adds, by torch's names of it; None where it adds nothing."""
        name = self.name.replace("weight", "bias")
        found = getattr(self.module, name, None) if name != self.name else None
        if not isinstance(found, Tensor):
            return None
        index, count = self.block
        return found if count == 1 else found.chunk(count)[index]

    @property
    def free(self) -> bool:
        """Whether the tensor itself can be written to: it is a parameter, not frozen, and not computed from others."""
        parameter = self.module._parameters.get(self.name)
        return parameter is not None and parameter.requires_grad

    @property
    def frozen(self) -> bool:
        """Whether it is a parameter that asks for no gradient."""
        parameter = self.module._parameters.get(self.name)
        return parameter is not None and not parameter.requires_grad

    @property
    def key(self) -> tuple[int, str, tuple[int, int]]:
        """What two uses of the same tensor share, be it of one module or tied between two."""
        parameter = self.module._parameters.get(self.name)
        return (id(self.module), self.name, self.block) if parameter is None else (id(parameter), "", self.block)


def live_weight(model: nn.Module, step: Step, weight: Tensor) -> LiveWeight | None:
    """Return where a step's weight lives in the model; None where it is no parameter, or only part of one."""
    if step.module is not None:
        live = model.get_submodule(step.path)
        own = getattr(live, "weight", None)
        if isinstance(own, Tensor) and own.shape == weight.shape:
            return LiveWeight(live)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            found = None if parameter is None or parameter.ndim < 2 else _found_in(module, name, parameter, weight)
            if found is not None:
                return found
    return None


def _found_in(module: nn.Module, name: str, parameter: Tensor, weight: Tensor) -> LiveWeight | None:
    """The way in which ``weight`` is made of a parameter, by the numbers it holds."""
    whole = parameter.shape == weight.shape
    if whole and _same(parameter, weight):
        return LiveWeight(module, name)
    if parameter.ndim == 2 and parameter.T.shape == weight.shape and _same(parameter.T, weight):
        return LiveWeight(module, name, transposed=True)
    if whole or parameter.shape[1:] != weight.shape[1:] or parameter.shape[0] % weight.shape[0]:
        return None
    count = parameter.shape[0] // weight.shape[0]
    blocks = (LiveWeight(module, name, (index, count)) for index in range(count))
    return next((block for block in blocks if _same(block(), weight)), None)


def _same(parameter: Tensor, weight: Tensor) -> bool:
    return torch.equal(parameter.detach().double().cpu(), weight.detach().double().cpu())

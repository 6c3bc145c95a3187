"""What the alarms need besides the layers' numbers: the input, its precision, the optimizer, running statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.monitor.hooks import Sleeper
from normgauge.monitor.layers import Layer, by_channel
from normgauge.monitor.sheet import Column, Row, Sheet

BESIDE: tuple[Column, ...] = ("running", "batch")


class Surroundings(Sleeper):
    """Listens at the door of the network and looks at the optimizer; touches no large weight.

    Args:
        model: the network.
        layers: what is watched of it.
        optimizer: where momentum and weight decay are read, or None.
        on_error: told what failed.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[Layer],
        optimizer: torch.optim.Optimizer | None,
        on_error: Callable[[Exception], None],
    ) -> None:
        super().__init__()
        self._optimizer, self._on_error = optimizer, on_error
        self._groups: dict[int, int] = {}  # parameter, by identity, to its group of the optimizer
        self._settings: list[Row] = []
        self._given: Tensor | None = None
        self._half = False
        self._frozen: dict[nn.Module, Tensor] = {}  # mean σ² of the batch, of normalizers that do not use it
        self._door = model.register_forward_pre_hook(self._enter, with_kwargs=True)  # always on: see there
        first = next((layer.module for layer in layers if layer.role in ("matrix", "conv")), None)
        if first is not None:
            self._hooks.add(partial(first.register_forward_hook, self._first_product))
        for module in (layer.module for layer in layers if by_channel(layer.module)):
            self._hooks.add(partial(module.register_forward_pre_hook, self._normalize))

    def close(self) -> None:
        """Take the hooks off."""
        self._hooks.take_off()
        self._door.remove()
        self._given = None

    def read(self, layers: Sequence[Layer], sheet: Sheet) -> None:
        """Write down the size of the input and the running statistics."""
        self.awake = False
        sheet.half = self._half
        if self._given is not None and self._given.numel():
            given = self._given.float() if self._given.dtype != torch.float64 else self._given
            sheet.put(sheet.network, "input", torch.linalg.vector_norm(given) / math.sqrt(given.numel()))
        self._given = None
        for row, layer in enumerate(layers):
            module = layer.module
            variance = getattr(module, "running_var", None)
            if by_channel(module) and isinstance(variance, Tensor):
                sheet.put(sheet.layers[row], "running", variance.mean())
                if module in self._frozen:
                    sheet.put(sheet.layers[row], "batch", self._frozen[module])
        self._frozen.clear()

    def finish(self, layers: Sequence[Layer], rows: Sequence[Row], sheet: Sheet) -> list[Row]:
        """The rows of a line with what is known besides: eps, settings of the optimizer, running statistics."""
        self._look_up_settings()
        return [
            {**row, **self._beside(layer, sheet.layers[index])}
            for index, (layer, row) in enumerate(zip(layers, rows, strict=True))
        ]

    def _beside(self, layer: Layer, raw: Row) -> Row:
        found: Row = {name: raw[name] for name in BESIDE if name in raw}
        if layer.role == "norm":
            eps = getattr(layer.module, "eps", None)
            if isinstance(eps, float):
                found["eps"] = eps
        if layer.attribute is not None:
            parameter = layer.module._parameters.get(layer.attribute)
            group = self._groups.get(id(parameter))
            found |= {} if group is None else self._settings[group]
        return found

    def _look_up_settings(self) -> None:
        """Rate, momentum and weight decay of every group, as the optimizer has them now."""
        groups = [] if self._optimizer is None else self._optimizer.param_groups
        self._settings = [dict(_plain(group)) for group in groups]
        if len(self._groups) != sum(len(group["params"]) for group in groups):
            self._groups = {id(p): number for number, group in enumerate(groups) for p in group["params"]}

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Keep the input, so that a loss that is no number can be traced to it even at a step not meant to be read."""
        del module
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        tensors = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
        given = next(tensors, None)
        self._given = None if given is None else given.detach()

    def _first_product(self, module: nn.Module, args: Any, output: Any) -> None:
        del module, args
        if not torch.compiler.is_compiling() and isinstance(output, Tensor):
            self._half = output.dtype == torch.float16

    def _normalize(self, module: nn.Module, args: Any) -> None:
        """What the batch's own σ² is, where a normalizer uses its running one although the network trains."""
        if torch.compiler.is_compiling() or not self.awake or not torch.is_grad_enabled() or module.training:
            return
        try:
            given = args[0].detach().float()
            axes = (0, *range(2, given.ndim))
            self._frozen[module] = given.var(axes, correction=0).mean()
        except Exception as error:  # a measurement must never break the forward pass
            self._on_error(error)


def _plain(group: Mapping[str, Any]) -> Iterator[tuple[Column, float]]:
    """The settings of a group that are numbers at hand; the first beta of an Adam is its momentum."""
    betas = group.get("betas")
    found: dict[Column, Any] = {
        "rate": group.get("lr"),
        "momentum": group.get("momentum") if betas is None else betas[0],
        "weight_decay": group.get("weight_decay"),
    }
    for name, value in found.items():
        if isinstance(value, int | float):
            yield name, float(value)

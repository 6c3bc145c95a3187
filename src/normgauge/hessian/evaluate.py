"""The loss and its gradient at weights a little away from the model's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.hessian.batches import as_batches
from normgauge.hessian.graph import Setting, build
from normgauge.hessian.product import Loss, weights_of
from normgauge.trace.untouched import unwrap


class Evaluator:
    """The mean loss over some batches as a function of a shift of the parameters; the model is left as it was.

    Attributes:
        names, shapes: the parameters with a gradient.
        notes: what a reader must know.
        count: evaluations made so far.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        batches: Any = (),
        *,
        objective: Callable[[nn.Module, Any], Tensor] | None = None,
        mode: str = "train",
        dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        """Take what `normgauge.hessian.product.Product` takes."""
        self._batches = as_batches(batches)
        self._weights = weights_of(self._batches)
        self._setting = Setting.of(unwrap(model), loss, objective, mode, dtype, seed)
        self.names, self.shapes, self.notes = self._setting.names, self._setting.shapes, self._setting.notes
        self.count = 0

    def at(self, shift: Mapping[str, Tensor] | None = None) -> tuple[float, dict[str, Tensor]]:
        """The loss and its gradient by parameter.

        Args:
            shift: what to add to the parameters; those not named stay.
        """
        setting = self._setting
        zeros = {n: torch.zeros(s, dtype=setting.dtype) for n, s in zip(self.names, self.shapes, strict=True)}
        zeros = {name: value.to(setting.device) for name, value in zeros.items()}
        moved = None if shift is None else list({**zeros, **shift}.values())
        loss, total = 0.0, zeros
        for i, (weight, batch) in enumerate(zip(self._weights, self._batches, strict=True)):
            graph = build(setting, batch, f"batch {i}", moved, keep=False)
            loss += weight * graph.loss
            total = {
                name: value if g is None else value + weight * g
                for (name, value), g in zip(total.items(), graph.gradients, strict=True)
            }
        self.count += 1
        return loss, total


def norm(values: Mapping[str, Tensor]) -> float:
    """The Euclidean norm over all parameters."""
    return float(sum(float(value.double().square().sum()) for value in values.values())) ** 0.5


def minus(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """a − b by parameter."""
    return {name: value - b[name] for name, value in a.items()}


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """The inner product over all parameters."""
    return float(sum(float((value.double() * b[name].double()).sum()) for name, value in a.items()))

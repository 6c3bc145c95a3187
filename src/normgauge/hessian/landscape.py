"""The loss along its own gradient: range of the loss, predictiveness of the gradient, effective smoothness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from normgauge.errors import InputError
from normgauge.hessian.evaluate import Evaluator, minus, norm
from normgauge.hessian.product import Loss

STEPS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)  # learning rates, as in the paper's Figure 4


@dataclass(frozen=True, slots=True)
class Point:
    """The loss after one step η along the gradient.

    Attributes:
        step: η, a learning rate.
        loss: L(w − ηg).
        gradient_change: ‖∇L(w − ηg) − g‖; small where the gradient predicts.
        smoothness: that over the distance η‖g‖.
    """

    step: float
    loss: float
    gradient_change: float
    smoothness: float


@dataclass(frozen=True, slots=True)
class Landscape:
    """The curves and what they come to.

    Attributes:
        loss, gradient_norm: at the weights themselves.
        points: one a step length.
        notes: what a reader must know.
    """

    loss: float
    gradient_norm: float
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    @property
    def loss_range(self) -> tuple[float, float]:
        """The smallest and largest loss met along the steps."""
        return min(p.loss for p in self.points), max(p.loss for p in self.points)

    @property
    def predictiveness(self) -> tuple[float, float]:
        """The smallest and largest change of the gradient."""
        return min(p.gradient_change for p in self.points), max(p.gradient_change for p in self.points)

    @property
    def effective_beta(self) -> float:
        """The largest change of the gradient over distance: a smoothness along this one direction, not of the loss."""
        return max(p.smoothness for p in self.points)

    def to_json(self) -> dict[str, Any]:
        """The curves as strict JSON."""
        return {
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "loss_range": list(self.loss_range),
            "gradient_predictiveness": list(self.predictiveness),
            "effective_beta": self.effective_beta,
            "points": [asdict(point) for point in self.points],
            "notes": list(self.notes),
        }


def landscape(
    model: nn.Module, loss: Loss | None, batches: Any, *, steps: Sequence[float] = STEPS, **options: Any
) -> Landscape:
    """Walk along the gradient and look at loss and gradient.

    Source: Santurkar, Tsipras, Ilyas & Madry 2018, §3.1 and Figure 4.

    Args:
        model: any module.
        loss: ``loss(output, target)``, a scalar.
        batches: as for `normgauge.hessian.product.Product`.
        steps: learning rates η; each is one step w − ηg from the same weights.
        **options: objective, mode (``train`` by default), dtype, seed.

    Returns:
        One point a step length.

    Raises:
        InputError: for steps that are not positive, or a gradient of zero.
    """
    if not steps or any(not step > 0 for step in steps):
        raise InputError(f"steps: expected positive learning rates, got {list(steps)}")
    evaluator = Evaluator(model, loss, batches, **options)
    start, gradient = evaluator.at()
    length = norm(gradient)
    if length == 0.0:
        raise InputError("the gradient is zero: there is no direction to walk along")
    points = []
    for step in steps:
        here, there = evaluator.at({name: -step * value for name, value in gradient.items()})
        change = norm(minus(there, gradient))
        points.append(Point(step, here, change, change / (step * length)))
    return Landscape(start, length, tuple(points), evaluator.notes)

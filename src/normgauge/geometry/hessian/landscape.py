"""Loss and gradient a little away from the weights.

`landscape`: along the gradient, range of the loss, predictiveness of the gradient, effective smoothness.
`covariate_shift`: how earlier layers' updates turn a layer's gradient, as Santurkar and others measure it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.core.fields import Stored, Told
from normgauge.geometry.hessian.graph import Loss, Setting, build_graph
from normgauge.geometry.hessian.product import by_layer

STEPS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)  # learning rates, as in the paper's Figure 4


@dataclass(frozen=True, slots=True)
class LandscapePoint(Stored):
    """The loss after one step η along the gradient."""

    step: Annotated[float, Told("η, a learning rate")]
    loss: Annotated[float, Told("L(w − ηg)")]
    gradient_change: Annotated[float, Told("‖∇L(w − ηg) − g‖; small where the gradient predicts")]
    smoothness: Annotated[float, Told("that over the distance η‖g‖")]


@dataclass(frozen=True, slots=True)
class Landscape(Stored):
    """The curves and what they come to."""

    loss: Annotated[float, Told("at the weights themselves")]
    gradient_norm: Annotated[float, Told("there")]
    points: Annotated[tuple[LandscapePoint, ...], Told("one a step length")]
    notes: Annotated[tuple[str, ...], Told("what a reader must know")] = ()

    @property
    @Told("the smallest and largest loss met along the steps")
    def loss_range(self) -> tuple[float, float]:
        """The smallest and largest loss met along the steps."""
        return min(p.loss for p in self.points), max(p.loss for p in self.points)

    @property
    @Told("the smallest and largest change of the gradient", key="gradient_predictiveness")
    def predictiveness(self) -> tuple[float, float]:
        """The smallest and largest change of the gradient."""
        return min(p.gradient_change for p in self.points), max(p.gradient_change for p in self.points)

    @property
    @Told("the largest change of the gradient over distance")
    def effective_beta(self) -> float:
        """The largest change of the gradient over distance: a smoothness along this one direction, not of the loss."""
        return max(p.smoothness for p in self.points)


def landscape(
    model: nn.Module, loss: Loss | None, batches: Any, *, steps: Sequence[float] = STEPS, **options: Any
) -> Landscape:
    """Walk along the gradient and look at loss and gradient.

    Source: Santurkar, Tsipras, Ilyas & Madry 2018, §3.1 and Figure 4.

    Args:
        model: any module.
        loss: ``loss(output, target)``, a scalar.
        batches: as for `normgauge.geometry.hessian.product.Product`.
        steps: learning rates η; each is one step w − ηg from the same weights.
        **options: objective, mode (``train`` by default), dtype, seed.

    Returns:
        One point a step length.

    Raises:
        InputError: for steps that are not positive, or a gradient of zero.
    """
    if not steps or any(not step > 0 for step in steps):
        raise InputError(f"steps: expected positive learning rates, got {list(steps)}")
    setting = Setting.of(model, loss, batches, **options)
    start, gradient = loss_and_gradient(setting)
    before = joined(gradient, gradient)
    length = float(before.norm())
    if length == 0.0:
        raise InputError("the gradient is zero: there is no direction to walk along")
    points = []
    for step in steps:
        here, there = loss_and_gradient(setting, {name: -step * value for name, value in gradient.items()})
        change = float((joined(there, gradient) - before).norm())
        points.append(LandscapePoint(step, here, change, change / (step * length)))
    return Landscape(start, length, tuple(points), setting.notes)


@dataclass(frozen=True, slots=True)
class Shift(Stored):
    """One layer's gradient before and after the layers in front of it were updated."""

    layer: Annotated[str, Told("its name")]
    change: Annotated[float, Told("‖G − G'‖, the shift as the paper defines it")]
    relative: Annotated[float, Told("that over ‖G‖, which does not depend on the layer's scale")]
    cosine: Annotated[float, Told("of the angle between G and G'; 1 where nothing turned")]


def covariate_shift(
    model: nn.Module,
    loss: Loss | None,
    batches: Any,
    *,
    rate: float | None = None,
    update: Mapping[str, Tensor] | None = None,
    **options: Any,
) -> tuple[Shift, ...]:
    """How far each layer's gradient moves when only the layers before it take their step.

    G_i = ∇_i L(W_1 … W_k),   G'_i = ∇_i L(W_1' … W_{i−1}', W_i … W_k),   W' = W + update

    Layers come in the order in which the model registers them. The first has nothing before it and no row.

    Source: Santurkar, Tsipras, Ilyas & Madry 2018, Definition 2.1.

    Args:
        model: any module.
        loss: ``loss(output, target)``, a scalar.
        batches: as for `normgauge.geometry.hessian.product.Product`.
        rate: the update is −rate·gradient;
        update: or this one, by parameter name.
        **options: objective, mode (``train`` by default), dtype, seed.

    Returns:
        One row a layer from the second on.

    Raises:
        InputError: when neither or both of ``rate`` and ``update`` are given, or the model has no such parameter.
    """
    if (rate is None) == (update is None):
        raise InputError("expected either rate= or update=, and one only")
    setting = Setting.of(model, loss, batches, **options)
    _, before = loss_and_gradient(setting)
    steps = {n: -rate * g for n, g in before.items()} if rate is not None else dict(update or {})
    strange = sorted(set(steps) - set(before))
    if strange:
        raise InputError(f"update: expected names of trained parameters, got {', '.join(strange[:4])}")
    groups = list(by_layer(setting.names).items())
    rows, earlier = [], list(groups[0][1])
    for layer, names in groups[1:]:
        _, after = loss_and_gradient(setting, {name: steps[name] for name in earlier if name in steps})
        rows.append(_row(layer, joined(before, names), joined(after, names)))
        earlier += names
    return tuple(rows)


def _row(layer: str, before: Tensor, after: Tensor) -> Shift:
    change, length, product = (float(n) for n in ((after - before).norm(), before.norm(), before.norm() * after.norm()))
    cosine = min(1.0, max(-1.0, float(before @ after) / product)) if product else 1.0
    return Shift(layer, change, change / length if length else 0.0, cosine)


def loss_and_gradient(setting: Setting, shift: Mapping[str, Tensor] | None = None) -> tuple[float, dict[str, Tensor]]:
    """The mean loss over the batches and its gradient by parameter; the model is left as it was.

    Args:
        setting: the model and what it is measured on.
        shift: what to add to the parameters; those not named stay.
    """
    sizes = zip(setting.names, setting.shapes, strict=True)
    total = {name: torch.zeros(shape, dtype=setting.dtype, device=setting.device) for name, shape in sizes}
    moved = [] if shift is None else list({**total, **shift}.values())
    loss = 0.0
    for i, weight in enumerate(setting.shares()):
        graph = build_graph(setting, i, moved, keep=False)
        loss += weight * graph.loss
        total = {
            name: value if g is None else value + weight * g
            for (name, value), g in zip(total.items(), graph.gradients, strict=True)
        }
    return loss, total


def joined(values: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """Some tensors as one vector in float64."""
    return torch.cat([values[name].double().reshape(-1) for name in names])

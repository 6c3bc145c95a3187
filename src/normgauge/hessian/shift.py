"""Internal covariate shift as Santurkar and others measure it: how earlier layers' updates turn a layer's gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from normgauge.errors import InputError
from normgauge.hessian.evaluate import Evaluator, dot, minus, norm
from normgauge.hessian.product import Loss, by_layer


@dataclass(frozen=True, slots=True)
class Shift:
    """One layer's gradient before and after the layers in front of it were updated.

    Attributes:
        layer: its name.
        change: ‖G − G'‖, the shift as the paper defines it.
        relative: that over ‖G‖, which does not depend on the layer's scale.
        cosine: of the angle between G and G'; 1 where nothing turned.
    """

    layer: str
    change: float
    relative: float
    cosine: float

    def to_json(self) -> dict[str, Any]:
        """This row as strict JSON."""
        return asdict(self)


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
        batches: as for `normgauge.hessian.product.Product`.
        rate: the update is −rate·gradient;
        update: or this one, by parameter name.
        **options: objective, mode (``train`` by default), dtype, seed.

    Returns:
        One row a layer from the second on.

    Raises:
        InputError: when neither or both of ``rate`` and ``update`` are given, or a name is none of the model's.
    """
    if (rate is None) == (update is None):
        raise InputError("expected either rate= or update=, and one only")
    evaluator = Evaluator(model, loss, batches, **options)
    _, before = evaluator.at()
    steps = {n: -rate * g for n, g in before.items()} if rate is not None else dict(update or {})
    strange = sorted(set(steps) - set(before))
    if strange:
        raise InputError(f"update: expected names of trained parameters, got {', '.join(strange[:4])}")
    groups = list(by_layer(evaluator.names).items())
    rows, earlier = [], list(groups[0][1])
    for layer, names in groups[1:]:
        _, after = evaluator.at({name: steps[name] for name in earlier if name in steps})
        rows.append(_row(layer, {n: before[n] for n in names}, {n: after[n] for n in names}))
        earlier += names
    return tuple(rows)


def _row(layer: str, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Shift:
    change, lengths = norm(minus(after, before)), (norm(before), norm(after))
    product = lengths[0] * lengths[1]
    return Shift(
        layer,
        change,
        change / lengths[0] if lengths[0] else 0.0,
        min(1.0, max(-1.0, dot(before, after) / product)) if product else 1.0,
    )

"""Margins that can be compared across networks: divided by how fast they can change with the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.reading import Reading
from normgauge.errors import InputError
from normgauge.hessian.batches import as_batches
from normgauge.hessian.graph import Setting
from normgauge.trace.inputs import describe, make_call
from normgauge.trace.untouched import cast_tree, unwrap

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution over samples."""

    mean: float
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Mean and the quantiles 0, 10, 25, 50, 75, 90, 100 %."""
        tensor = torch.tensor(list(values), dtype=torch.float64)
        found = torch.quantile(tensor, torch.tensor(QUANTILES, dtype=torch.float64))
        return cls(float(tensor.mean()), tuple(found.tolist()))

    def to_json(self) -> dict[str, Any]:
        """This distribution as strict JSON."""
        shown = {f"{100 * q:g}%": v for q, v in zip(QUANTILES, self.quantiles, strict=True)}
        return {"mean": self.mean, "quantiles": shown}


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins of a network on labelled data.

    Attributes:
        accuracy: share of positive margins.
        raw: f_y − max over the others, in units of the output: not comparable across networks.
        by_slope: each over the slope of the margin at that sample: to first order the distance to the boundary;
            samples without any slope are left out, None where all are.
        by_upper: each over a proved bound on the margin's slope: no point closer than this changes the class; None
            without a finite bound.
        values: the raw margins, one a sample; ``slopes`` beside them.
        log10_upper: the bound used, of the margin and not of the network: √2 times larger for two classes and more.
    """

    accuracy: float
    raw: Spread
    by_slope: Spread | None
    by_upper: Spread | None
    values: tuple[float, ...]
    slopes: tuple[float, ...]
    log10_upper: float | None

    def to_json(self) -> dict[str, Any]:
        """The distributions as strict JSON."""
        return {
            "accuracy": self.accuracy,
            "raw": self.raw.to_json(),
            "by_slope": None if self.by_slope is None else self.by_slope.to_json(),
            "by_upper": None if self.by_upper is None else self.by_upper.to_json(),
            "log10_upper": self.log10_upper,
        }


def margins(
    model: nn.Module,
    batches: Any,
    upper: float | Reading | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Margins:
    """Margins in eval mode, raw and divided.

    |m(x) − m(x')| ≤ √2 Lip(f) ‖x − x'‖ for m = f_y − max_{j≠y} f_j, and Lip(f) for the signed output of one unit.

    Args:
        model: gives one number a class, or one number whose sign is the class.
        batches: pairs (input, label); labels are class numbers, or 0/1 or −1/1 for one output.
        upper: a Lipschitz bound of the network over all inputs, or a reading; a reading of scope point bounds the
            slope at the samples only, so the quotient is then no safe radius.
        dtype: precision; the model's own by default.

    Returns:
        The distributions.

    Raises:
        InputError: for outputs or labels of another form, or a bound that is not positive.
    """
    model = unwrap(model)
    setting = Setting.of(model, lambda output, _: output, None, "eval", dtype, 0)
    log_upper = _log_upper(upper)
    found: list[float] = []
    slopes: list[float] = []
    factor = 1.0
    for batch in as_batches(batches):
        values, steep, factor = _one(setting, batch)
        found += values
        slopes += steep
    quotients = [value / slope for value, slope in zip(found, slopes, strict=True) if slope > 0]
    bound = None if log_upper is None or math.isinf(log_upper) else log_upper + math.log(factor)
    return Margins(
        accuracy=sum(value > 0 for value in found) / len(found),
        raw=Spread.of(found),
        by_slope=Spread.of(quotients) if quotients else None,
        by_upper=None if bound is None else Spread.of([v * math.exp(-bound) for v in found]),
        values=tuple(found),
        slopes=tuple(slopes),
        log10_upper=None if bound is None else bound / math.log(10),
    )


def margin(output: Tensor, label: Tensor) -> tuple[Tensor, float]:
    """One margin a sample, and the factor of its Lipschitz constant over that of the output.

    Raises:
        InputError: for outputs or labels of another form.
    """
    if output.ndim > 1 and output.shape[-1] == 1:
        output = output.squeeze(-1)
    if output.ndim == 1 and label.numel() == output.numel():
        sign = torch.where(label.reshape(-1) > 0, 1.0, -1.0).to(output)
        return sign * output, 1.0
    if output.ndim != 2 or label.shape != output.shape[:1] or label.is_floating_point():
        raise InputError(
            f"expected outputs of shape (samples, classes) and one class number each, got outputs "
            f"{tuple(output.shape)} and labels {tuple(label.shape)} of {label.dtype}"
        )
    own = output.gather(1, label[:, None]).squeeze(1)
    others = output.scatter(1, label[:, None], -math.inf).amax(1)
    return own - others, math.sqrt(2)


def labelled(batch: Any) -> tuple[Any, Tensor]:
    """A batch as input and label.

    Raises:
        InputError: for anything else.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not isinstance(batch[1], Tensor):
        raise InputError(f"batches: expected pairs (input, label), got {describe(batch)}")
    return batch[0], batch[1]


def _one(setting: Setting, batch: Any) -> tuple[list[float], list[float], float]:
    with setting.lent():
        inputs, label = cast_tree(labelled(batch), setting.dtype, setting.device)
        call = make_call(setting.model, inputs)
        x = call.measured.requires_grad_(call.measured.is_floating_point())
        output = setting.model(*call.args, **call.kwargs)
        if not isinstance(output, Tensor):
            raise InputError(f"expected a model that returns a tensor, got {describe(output)}")
        values, factor = margin(output, label)
        if not x.requires_grad:
            raise InputError("expected a floating input, got integers: a margin has no slope in them")
        (slope,) = torch.autograd.grad(values.sum(), x)
    return values.tolist(), slope.flatten(1).double().norm(dim=1).tolist(), factor


def _log_upper(upper: float | Reading | None) -> float | None:
    if upper is None:
        return None
    if isinstance(upper, Reading):
        return upper.log_upper
    if not upper > 0:
        raise InputError(f"upper: expected a positive Lipschitz bound or a reading, got {upper}")
    return math.log(upper)

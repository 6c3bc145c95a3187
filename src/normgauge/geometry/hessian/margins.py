"""Margins that can be compared across networks, and accuracy under noise measured by the weights themselves.

A margin is divided by how fast it can change with the input; noise is as large as the tensor it is added to says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.core.fields import FieldForm, Log10, Stored, Told
from normgauge.core.reading import Reading
from normgauge.geometry.hessian.graph import Setting, is_pair
from normgauge.geometry.hessian.stochastic import mean_of
from normgauge.instrument.trace.inputs import describe_output, make_call
from normgauge.instrument.trace.untouched import cast_tree

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
BY_SHARE = FieldForm(
    "{name: number}",
    lambda values: {f"{100 * q:g}%": value for q, value in zip(QUANTILES, values, strict=True)},
    lambda table: tuple(table.values()),
)
SIGMAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
DRAWS = 8


@dataclass(frozen=True, slots=True)
class SampleSpread(Stored):
    """A distribution over samples."""

    mean: Annotated[float, Told("over them")]
    quantiles: Annotated[tuple[float, ...], BY_SHARE, Told("by share, such as `25%`")]

    @classmethod
    def of(cls, values: Sequence[float]) -> SampleSpread:
        """Mean and the quantiles 0, 10, 25, 50, 75, 90, 100 %."""
        tensor = torch.tensor(list(values), dtype=torch.float64)
        found = torch.quantile(tensor, torch.tensor(QUANTILES, dtype=torch.float64))
        return cls(float(tensor.mean()), tuple(found.tolist()))


@dataclass(frozen=True, slots=True)
class Margins(Stored):
    """Margins of a network on labelled data; ``values`` are the raw ones, one a sample, ``slopes`` beside them."""

    accuracy: Annotated[float, Told("share of positive margins")]
    raw: Annotated[
        SampleSpread, Told("f_y − max over the others, in units of the output: not comparable across networks")
    ]
    by_slope: Annotated[
        SampleSpread | None,
        Told(
            "each over the slope of the margin at that sample: to first order the distance to the boundary; samples "
            "without any slope are left out, `null` where all are"
        ),
    ]
    by_upper: Annotated[
        SampleSpread | None,
        Told(
            "each over a proved bound on the margin's slope: no point closer than this changes the class; `null` "
            "without a finite bound"
        ),
    ]
    values: tuple[float, ...]
    slopes: tuple[float, ...]
    log10_upper: Annotated[
        Log10 | None,
        Told("the bound used, of the margin and not of the network: √2 times larger for two classes and more"),
    ]


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
    setting = Setting.of(model, None, batches, objective=_labelled, mode="eval", dtype=dtype)
    log_upper = _log_upper(upper)
    found: list[float] = []
    slopes: list[float] = []
    factor = 1.0
    for batch in setting.batches:
        with setting.lent():
            x, values, factor = setting.call(setting.model, cast_tree(batch, setting.dtype, setting.device))
            if not x.requires_grad:
                raise InputError("expected a floating input, got integers: a margin has no slope in them")
            (slope,) = torch.autograd.grad(values.sum(), x)
        found += values.tolist()
        slopes += slope.flatten(1).double().norm(dim=1).tolist()
    quotients = [value / slope for value, slope in zip(found, slopes, strict=True) if slope > 0]
    bound = None if log_upper is None or math.isinf(log_upper) else log_upper + math.log(factor)
    return Margins(
        accuracy=sum(value > 0 for value in found) / len(found),
        raw=SampleSpread.of(found),
        by_slope=SampleSpread.of(quotients) if quotients else None,
        by_upper=None if bound is None else SampleSpread.of([v * math.exp(-bound) for v in found]),
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


def _labelled(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor, float]:
    """The input of a labelled batch, its margins and their factor, as from `margin`.

    Raises:
        InputError: for a batch that is no pair, or an output that is no tensor.
    """
    if not is_pair(batch):
        raise InputError(f"batches: expected pairs (input, label), got {describe_output(batch)}")
    call = make_call(model, batch[0])
    x = call.measured.requires_grad_(call.measured.is_floating_point())
    output = model(*call.args, **call.kwargs)
    if not isinstance(output, Tensor):
        raise InputError(f"expected a model that returns a tensor, got {describe_output(output)}")
    return x, *margin(output, batch[1])


def _log_upper(upper: float | Reading | None) -> float | None:
    if isinstance(upper, Reading):
        return upper.log_upper
    if upper is not None and not upper > 0:
        raise InputError(f"upper: expected a positive Lipschitz bound or a reading, got {upper}")
    return None if upper is None else math.log(upper)


@dataclass(frozen=True, slots=True)
class Noisy(Stored):
    """Accuracy at one noise level."""

    sigma: Annotated[float, Told("‖noise‖/‖w_l‖ of every parameter tensor, about")]
    accuracy: Annotated[float, Told("mean over draws")]
    standard_error: Annotated[float, Told("of that mean")]
    margin: Annotated[float, Told("mean margin over draws and samples")]
    draws: Annotated[int, Told("how many")]


def noise_accuracy(
    model: nn.Module,
    batches: Any,
    sigmas: Sequence[float] = SIGMAS,
    *,
    draws: int = DRAWS,
    mode: str = "eval",
    dtype: torch.dtype | None = None,
    seed: int = 0,
) -> tuple[Noisy, ...]:
    """How much accuracy is left when every weight is disturbed in proportion to its tensor's norm.

    w_l + σ ‖w_l‖/√n_l · z,  z of n_l independent standard normals: ‖noise‖ ≈ σ‖w_l‖ whatever the scale of w_l.

    Every level uses the same draws of z, so that a curve over σ is smooth. In eval mode BatchNorm keeps the running
    statistics of the undisturbed network; ``train`` takes those of each batch.

    Args:
        model: as for `margins`.
        batches: pairs (input, label).
        sigmas: noise levels.
        draws: disturbed networks a level, at least 2.
        mode: ``eval`` or ``train``.
        dtype: precision; the model's own by default.
        seed: of the noise.

    Returns:
        One row a level.

    Raises:
        InputError: for levels or draws that make no sense.
    """
    if draws < 2 or not sigmas or any(not 0 <= sigma < math.inf for sigma in sigmas):
        raise InputError(f"expected noise levels of 0 and more and 2 draws or more, got {list(sigmas)} and {draws}")
    setting = Setting.of(model, None, batches, objective=_labelled, mode=mode, dtype=dtype, seed=seed)
    rows = []
    for sigma in sigmas:
        found = [_accuracy(setting, sigma, draw) for draw in range(draws if sigma else 1)]
        rates, values = zip(*found, strict=True)
        rows.append(Noisy(sigma, *mean_of(rates), mean_of(values)[0], len(rates)))
    return tuple(rows)


def _accuracy(setting: Setting, sigma: float, draw: int) -> tuple[float, float]:
    """Accuracy and mean margin of one disturbed network."""
    with setting.lent(), torch.no_grad():
        generator = torch.Generator().manual_seed(1000003 * setting.seed + draw)
        for parameter in setting.model.parameters():
            z = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(z * (sigma * parameter.norm() / math.sqrt(parameter.numel())))
        data = [cast_tree(batch, setting.dtype, setting.device) for batch in setting.batches]
        joined = torch.cat([setting.call(setting.model, batch)[1] for batch in data])
    return float((joined > 0).double().mean()), float(joined.double().mean())

"""Accuracy under weight noise that is measured by the weights themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.errors import InputError
from normgauge.hessian.batches import as_batches
from normgauge.hessian.graph import Setting
from normgauge.hessian.margins import labelled, margin
from normgauge.trace.inputs import make_call
from normgauge.trace.untouched import cast_tree, unwrap

SIGMAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
DRAWS = 8


@dataclass(frozen=True, slots=True)
class Noisy:
    """Accuracy at one noise level.

    Attributes:
        sigma: ‖noise‖/‖w_l‖ of every parameter tensor, about.
        accuracy: mean over draws.
        standard_error: of that mean.
        margin: mean margin over draws and samples.
        draws: how many.
    """

    sigma: float
    accuracy: float
    standard_error: float
    margin: float
    draws: int

    def to_json(self) -> dict[str, Any]:
        """This row as strict JSON."""
        return asdict(self)


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
        model: as for `normgauge.hessian.margins.margins`.
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
    setting = Setting.of(unwrap(model), lambda output, _: output, None, mode, dtype, seed)
    data = as_batches(batches)
    rows = []
    for sigma in sigmas:
        found = [_accuracy(setting, data, sigma, draw) for draw in range(draws if sigma else 1)]
        rates, mean = [rate for rate, _ in found], math.fsum(rate for rate, _ in found) / len(found)
        spread = math.fsum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1) if len(rates) > 1 else 0.0
        raw = math.fsum(value for _, value in found) / len(found)
        rows.append(Noisy(sigma, mean, math.sqrt(spread / len(rates)), raw, len(rates)))
    return tuple(rows)


def _accuracy(setting: Setting, data: list[Any], sigma: float, draw: int) -> tuple[float, float]:
    """Accuracy and mean margin of one disturbed network."""
    values: list[Tensor] = []
    with setting.lent(), torch.no_grad():
        _disturb(setting, sigma, draw)
        for batch in data:
            inputs, label = cast_tree(labelled(batch), setting.dtype, setting.device)
            call = make_call(setting.model, inputs)
            values.append(margin(setting.model(*call.args, **call.kwargs), label)[0])
    joined = torch.cat(values)
    return float((joined > 0).double().mean()), float(joined.double().mean())


def _disturb(setting: Setting, sigma: float, draw: int) -> None:
    generator = torch.Generator().manual_seed(1000003 * setting.seed + draw)
    for parameter in setting.model.parameters():
        z = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.add_(z * (sigma * parameter.norm() / math.sqrt(parameter.numel())))

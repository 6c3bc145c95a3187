"""How much weight noise a network bears, and the PAC-Bayes scores made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.certificates.facts.sample import device_of
from normgauge.core.errors import InputError
from normgauge.instrument.trace.copied import copied

DROP = 0.1  # of accuracy
FIRST, RATIO, STEPS = 0.1, 4.0, 12  # noise the search starts at, goes up or down by, and how often at most
MAGNITUDE_EPS = 1e-3
CONSTANT = 10.0  # of the published scores, for the union over σ
BATCH = 1000


@dataclass(frozen=True, slots=True)
class Search:
    """How hard to look: halvings of the logarithmic interval and disturbed networks at each noise."""

    halvings: int = 15
    draws: int = 10


def score_noise(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, aware: bool = False, search: Search | None = None
) -> float:
    """The largest σ with mean accuracy at most 0.1 below that of the undisturbed network.

    w + σz,  or w + σ|w|z entry by entry where ``aware``,  z standard normal

    Every σ meets the same draws of z, so the accuracy is a step function of σ and the halving finds one of its steps.
    With ``aware`` the answer does not change when weights are rescaled across a ReLU: z|w| is rescaled with them.

    Source: Jiang et al. 2020, 0.1 and 15 halvings, there of (0, 2); Dziugaite et al. 2020, 10 draws.

    Args:
        model: with BatchNorm folded; left as it is.
        inputs: of training samples.
        labels: their classes.
        aware: noise in proportion to each weight.
        search: how hard to look.

    Returns:
        σ, from below.

    Raises:
        InputError: when no noise takes 0.1 of the accuracy away.
    """
    how = search or Search()
    twin = copied(model)
    base = [p.detach().clone() for p in twin.parameters()]
    floor = _accuracy(twin, inputs, labels) - DROP

    def bears(sigma: float) -> bool:
        rates = [_disturbed(twin, base, sigma, aware, k, inputs, labels) for k in range(how.draws)]
        return math.fsum(rates) / len(rates) >= floor

    low, high = _bracket(bears)
    for _ in range(how.halvings):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bears(middle) else (low, middle)
    return low


def _bracket(bears: Callable[[float], bool]) -> tuple[float, float]:
    """A noise that is borne and one, four times as large, that is not.

    Raises:
        InputError: when every noise tried is borne, or none is.
    """
    sigma, factor = FIRST, RATIO if bears(FIRST) else 1 / RATIO
    for _ in range(STEPS):
        following = sigma * factor
        if bears(following) is not (factor > 1):
            return min(sigma, following), max(sigma, following)
        sigma = following
    if factor > 1:
        raise InputError(f"noise of {sigma:.3g} takes less than {DROP:g} of the accuracy on the training samples away")
    raise InputError(f"noise of {sigma:.3g} already takes {DROP:g} of the accuracy on the training samples away")


def score_pac_bayes(reference: Mapping[str, Tensor], sigma: float, m: int) -> dict[str, float]:
    """‖w − w₀‖²/(4σ²) + ln(m/σ) + 10, by term; w₀ is the start of the training or the origin."""
    square = math.fsum(float(w.square().sum()) for w in reference.values())
    return {"‖w−w₀‖²/4σ²": square / (4 * sigma**2), "ln(m/σ)": math.log(m / sigma), "constant": CONSTANT}


def score_pac_bayes_aware(
    reference: Mapping[str, Tensor], moved: Mapping[str, Tensor], sigma: float, m: int
) -> dict[str, float]:
    """¼ Σᵢ ln((ε² + (σ²+1) ‖w − w₀‖²/ω)/(ε² + σ²|wᵢ − w₀ᵢ|²)) + ln(m/σ) + 10, by term; ε = 0.001, ω entries.

    Args:
        reference: w − w₀, of the start of the training or of the origin.
        moved: w minus its start.
        sigma: with noise in proportion to the weights.
        m: training samples.
    """
    flat = torch.cat([w.flatten() for w in moved.values()])
    square = math.fsum(float(w.square().sum()) for w in reference.values())
    over = MAGNITUDE_EPS**2 + (sigma**2 + 1) * square / len(flat)
    under = MAGNITUDE_EPS**2 + sigma**2 * flat.square()
    total = float((math.log(over) - under.log()).sum()) / 4
    return {"¼ Σ ln of the ratios": total, "ln(m/σ)": math.log(m / sigma), "constant": CONSTANT}


@torch.no_grad()
def _disturbed(
    twin: nn.Module, base: list[Tensor], sigma: float, aware: bool, seed: int, inputs: Tensor, labels: Tensor
) -> float:
    generator = torch.Generator().manual_seed(seed)
    for parameter, value in zip(twin.parameters(), base, strict=True):
        noise = torch.randn(value.shape, generator=generator).to(value)
        parameter.copy_(value + sigma * noise * (value.abs() if aware else 1.0))
    return _accuracy(twin, inputs, labels)


@torch.no_grad()
def _accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    place = device_of(model)
    right = [
        int((model(x.to(place)).argmax(1).cpu() == y).sum())
        for x, y in zip(inputs.split(BATCH), labels.split(BATCH), strict=True)
    ]
    return sum(right) / len(labels)

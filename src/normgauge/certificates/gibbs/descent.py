"""Mean and noise of a posterior by gradient descent on the bound itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.gibbs.posterior import SMALLEST, Gaussian, entry_divergence
from normgauge.certificates.gibbs.space import WeightSpace

BATCH = 128
FLOOR = math.log(1e-4)  # of the log-probability: one bad draw must not rule a step
Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class DescentPlan:
    """Settings of the descent.

    Attributes:
        epochs: passes over the sample.
        m: samples the bound will be evaluated on.
        extra: ln(2√m/δ) and the like, added to KL.
        rate: step of the means, in units of the noise at the start.
        noise_rate: step of the logarithms of the widths.
        batch: samples of each mini-batch that a step looks at, where all of it is too dear.
        seed: of noise and order.
    """

    epochs: int
    m: int
    extra: float
    rate: float = 0.05
    noise_rate: float = 5e-2
    batch: int = BATCH
    seed: int = 0


def optimize_posterior(
    space: WeightSpace,
    start: Gaussian,
    divergence: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor],
    sample: DataSample,
    plan: DescentPlan,
    *,
    blind: bool = False,
    enough: Callable[[Gaussian, int], bool] | None = None,
    tell: Tell | None = None,
) -> Gaussian:
    """Minimise  ℓ + √((KL + extra)/(2m))  over means and widths, one draw of the noise a step.

    ℓ = mean of −ln p(label)/ln(classes), cut off at p = 10⁻⁴: 1 for a blind guess, and the logistic loss over ln 2 of
    Dziugaite & Roy for two classes. What comes out is a posterior like any other: the bound is evaluated on it
    afterwards and does not trust the descent.

    Args:
        space: the network as a function of its tensors.
        start: where to begin.
        divergence: KL as a differentiable function of means and widths.
        sample: labelled; means and widths may depend on it freely.
        plan: how.
        blind: leave ℓ out, which costs no network: how near the prior these steps can get.
        enough: asked after each pass but the last, with where it stands and the passes left, whether to stop there.
        tell: told the share done.

    Returns:
        The posterior found, detached.
    """
    mean = {n: t.detach().clone().requires_grad_() for n, t in start.mean.items()}
    log_width = {n: start.width[n].log().expand(t.shape).clone().requires_grad_() for n, t in mean.items()}
    rates = [plan.rate * float(start.width[n].mean()) for n in mean] + [plan.noise_rate] * len(mean)
    steps = torch.optim.Adam([{"params": [t], "lr": 0.0} for t in (*mean.values(), *log_width.values())])
    noise = torch.Generator(space.device).manual_seed(plan.seed)
    labels = sample.truth.to(space.device)
    steps_a_pass = math.ceil(len(sample) / BATCH)
    whole = plan.epochs * steps_a_pass
    for i, chosen in enumerate(_shuffled(sample, plan)):
        for group, rate in zip(steps.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - i / whole)
        width = {n: t.exp().clamp(min=SMALLEST) for n, t in log_width.items()}
        loss = 0.0 if blind else _loss(space(Gaussian(mean, width).draw(noise), sample.take(chosen)), labels[chosen])
        cost = ((divergence(mean, width) + plan.extra) / (2 * plan.m)).sqrt()
        steps.zero_grad(set_to_none=True)
        (loss + cost).backward()
        steps.step()
        if tell is not None and i % 20 == 0:
            tell(i / whole)
        passes, rest = divmod(i + 1, steps_a_pass)
        left = plan.epochs - passes
        if enough is not None and not rest and left and enough(_detached(mean, log_width), left):
            break
    return _detached(mean, log_width)


def _detached(mean: Mapping[str, Tensor], log_width: Mapping[str, Tensor]) -> Gaussian:
    width = {n: t.detach().exp().clamp(min=SMALLEST) for n, t in log_width.items()}
    return Gaussian({n: t.detach() for n, t in mean.items()}, width)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    chances = F.log_softmax(logits.float(), 1).gather(1, labels[:, None])
    return -chances.clamp(min=FLOOR).mean() / math.log(max(2, logits.shape[1]))


def _shuffled(sample: DataSample, plan: DescentPlan) -> Iterator[Tensor]:
    order = torch.Generator().manual_seed(plan.seed)
    for _ in range(plan.epochs):
        for chosen in torch.randperm(len(sample), generator=order).split(BATCH):
            yield chosen[: plan.batch]


def to_shared_prior(centre: Mapping[str, Tensor], units: Mapping[str, float]) -> Callable[..., Tensor]:
    """KL to N(w₀, λu²) at the best λ for all tensors: (n/2) ln λ − Σ ln(σ/u), λ = mean of (σ² + (w−w₀)²)/u²."""

    def divergence(mean: Mapping[str, Tensor], width: Mapping[str, Tensor]) -> Tensor:
        count = sum(t.numel() for t in mean.values())
        squares = [(width[n].square() + (t - centre[n]).square()).sum() / units[n] ** 2 for n, t in mean.items()]
        logs = [width[n].log().sum() - t.numel() * math.log(units[n]) for n, t in mean.items()]
        return count / 2 * (torch.stack(squares).sum() / count).log() - torch.stack(logs).sum()

    return divergence


def to_fixed_prior(prior: Gaussian) -> Callable[..., Tensor]:
    """KL to a fixed prior, as a differentiable function of means and widths."""

    def divergence(mean: Mapping[str, Tensor], width: Mapping[str, Tensor]) -> Tensor:
        parts = [entry_divergence(t - prior.mean[n], width[n], prior.width[n]).sum() for n, t in mean.items()]
        return torch.stack(parts).sum()

    return divergence

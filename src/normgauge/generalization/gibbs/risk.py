"""The error of a network with noise on its weights, by draws."""

from __future__ import annotations

from collections.abc import Callable

import torch

from normgauge.errors import InputError
from normgauge.generalization.facts.sample import Sample
from normgauge.generalization.gibbs.posterior import Gaussian
from normgauge.generalization.gibbs.space import Space

BATCH = 64
APART = 10**9  # between seeds that must not meet: of noise, of mini-batches, of what was fitted before
Tell = Callable[[float], None]


def drawn_error(
    space: Space, posterior: Gaussian, sample: Sample, draws: int, *, seed: int = 0, tell: Tell | None = None
) -> float:
    """The mean over draws of the error on a fresh random mini-batch with fresh noise.

    Each draw is one variable in [0, 1] whose mean is the Gibbs error on the sample, and draws are independent: Chernoff
    holds for their mean, whatever the size of the mini-batch.

    Args:
        space: the network as a function of its tensors.
        posterior: what the tensors are drawn from.
        sample: labelled.
        draws: how many, fixed before the first.
        seed: of noise and mini-batches.
        tell: told the share done.

    Returns:
        A number in [0, 1].

    Raises:
        InputError: for a sample without labels.
    """
    if sample.labels is None:
        raise InputError("the Gibbs error needs labels")
    noise = torch.Generator(space.device).manual_seed(seed)
    order = torch.Generator().manual_seed(seed + APART)
    size, total = min(BATCH, len(sample)), 0.0
    with torch.no_grad():
        for i in range(draws):
            chosen = torch.randint(len(sample), (size,), generator=order)
            said = space(posterior.draw(noise), sample.take(chosen)).argmax(1).cpu()
            total += int((said != sample.labels[chosen]).sum()) / size
            if tell is not None and i % 50 == 0:
                tell(i / draws)
    return total / draws

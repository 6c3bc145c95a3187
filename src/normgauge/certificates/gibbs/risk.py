"""The error of a network with noise on its weights, by draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.gibbs.posterior import Gaussian
from normgauge.certificates.gibbs.space import WeightSpace, random_inputs
from normgauge.certificates.scores.norms import multiplications

BATCH = (8, 64)  # fewest and most samples a draw
DRAWS = (250, 4000)  # fewest and most draws
NORMAL = 100  # multiplications one normal number is worth
WORK = 5e10  # multiplications for all draws, about
STEP, STEP_WORK = (8, 128), 4e8  # fewest and most samples a step of a descent, and multiplications of its forward pass
APART = 10**9  # between seeds that must not meet: of noise, of mini-batches, of what was fitted before
Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many draws and samples a network's cost allows; fixed before the first draw.

    Attributes:
        draws: of the weights.
        batch: samples looked at with each draw.
        step: samples a step of a descent looks at.
    """

    draws: int
    batch: int
    step: int

    @classmethod
    def of(cls, space: WeightSpace, like: Tensor) -> Effort:
        """The effort for a network: a draw should not cost much more to use than to make.

        A bound pays for the number of draws and not for samples, so a network that is dear to run sees fewer with each.

        Args:
            space: the network as a function of its tensors.
            like: an input, (1, ...); only its shape and type are used.
        """
        made = NORMAL * space.size
        used = max(space.size, multiplications(partial(space, space.mean), random_inputs(like)))
        batch = min(BATCH[1], max(BATCH[0], int(made / used)))
        step = min(STEP[1], max(STEP[0], int(STEP_WORK / used)))
        return cls(min(DRAWS[1], max(DRAWS[0], int(WORK / (made + batch * used)))), batch, step)


def drawn_error(
    space: WeightSpace,
    posterior: Gaussian,
    sample: DataSample,
    draws: int,
    *,
    batch: int = BATCH[1],
    seed: int = 0,
    tell: Tell | None = None,
) -> float:
    """The mean over draws of the error on a fresh random mini-batch with fresh noise.

    Each draw is one variable in [0, 1] whose mean is the Gibbs error on the sample, and draws are independent: Chernoff
    holds for their mean, whatever the size of the mini-batch.

    Args:
        space: the network as a function of its tensors.
        posterior: what the tensors are drawn from.
        sample: labelled.
        draws: how many, fixed before the first.
        batch: samples in a mini-batch.
        seed: of noise and mini-batches.
        tell: told the share done.

    Returns:
        A number in [0, 1].
    """
    noise = torch.Generator(space.device).manual_seed(seed)
    order = torch.Generator().manual_seed(seed + APART)
    size, total = min(batch, len(sample)), 0.0
    with torch.no_grad():
        for i in range(draws):
            chosen = torch.randint(len(sample), (size,), generator=order)
            said = space(posterior.draw(noise), sample.take(chosen)).argmax(1).cpu()
            total += int((said != sample.truth[chosen]).sum()) / size
            if tell is not None and i % 50 == 0:
                tell(i / draws)
    return total / draws

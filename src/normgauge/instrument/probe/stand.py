"""Places that a climb found, to be looked at again by the network itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normgauge.instrument.probe.chains import Chains
from normgauge.instrument.probe.jacobian import TopPair, pair_from
from normgauge.instrument.probe.linearize import SampleMap


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the chains stood when it was time to see what they had found.

    Attributes:
        points: (samples, inputs).
        pair: singular pair at them.
        origin: the sample each chain began at.
    """

    points: Tensor
    pair: TopPair
    origin: Tensor

    @classmethod
    def of(cls, chains: Chains, samples: int) -> Stand:
        """Where the steepest of the chains k, k + samples, … stands now, for k = 0 … samples − 1."""
        pair, columns = chains.pair, torch.arange(samples, device=chains.points.device)
        rows = pair.sigma.reshape(-1, samples).argmax(0) * samples + columns
        best = TopPair(pair.sigma[rows], pair.left[rows], pair.right[rows])
        return cls(chains.points[rows], best, chains.origin[rows] % samples)

    def again(self, network: SampleMap) -> Stand:
        """The same points and left directions, with the slopes that ``network`` has there."""
        left = self.pair.left
        return replace(self, pair=pair_from(left, network.at(self.points, once=True).pull(left), network.rounding))

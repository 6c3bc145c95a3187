"""Examples in memory: inputs with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Inputs with their labels.

    Attributes:
        inputs: float32 in [0, 1] for images, (n, features) or (n, channels, height, width); int64 for text, (n, T).
        labels: int64, (n,) for images and (n, T) for text.
        classes: what each label stands for.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Split:
        """The first ``count`` examples."""
        return replace(self, inputs=self.inputs[:count], labels=self.labels[:count])

    def shaped(self, *shape: int) -> Split:
        """The same examples with each input in another shape: ``digits().shaped(1, 8, 8)``."""
        return replace(self, inputs=self.inputs.reshape(len(self.inputs), *shape))

    def normalized(self, mean: Sequence[float], std: Sequence[float]) -> Split:
        """The same images with (x - mean) / std, one mean and std a channel."""
        shift, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
        return replace(self, inputs=(self.inputs - shift) / scale)

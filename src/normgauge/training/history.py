"""What a training run leaves behind: one record an epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """Means over one pass through the training data, taken while the weights changed.

    Attributes:
        number: counted from 1.
        loss: mean cross-entropy in nats.
        accuracy: fraction of labels that came first.
    """

    number: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class History:
    """The epochs of a run, those before a resumption included."""

    epochs: tuple[Epoch, ...] = ()

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of each epoch."""
        return tuple(epoch.loss for epoch in self.epochs)

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The training accuracy of each epoch."""
        return tuple(epoch.accuracy for epoch in self.epochs)

    def with_epoch(self, epoch: Epoch) -> History:
        """The history with one more epoch."""
        return History((*self.epochs, epoch))

"""One resumable training loop for the demo, the sweeps and the experiments."""

from __future__ import annotations

from normgauge.training.history import Epoch, History
from normgauge.training.loop import accuracy, train

__all__ = ["Epoch", "History", "accuracy", "train"]

"""One resumable training loop for the demo, the sweeps and the experiments."""

from __future__ import annotations

from normgauge.training.history import Epoch, History
from normgauge.training.loop import Scores, accuracy, evaluate, train

__all__ = ["Epoch", "History", "Scores", "accuracy", "evaluate", "train"]

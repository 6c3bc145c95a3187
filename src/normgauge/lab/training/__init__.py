"""One resumable training loop for the demo, the sweeps and the experiments."""

from __future__ import annotations

from normgauge.lab.training.loop import Scores, evaluate_model, model_accuracy, one_thread, train
from normgauge.lab.training.resume import Epoch, History

__all__ = ["Epoch", "History", "Scores", "evaluate_model", "model_accuracy", "one_thread", "train"]

"""A callback for the Trainer of Hugging Face transformers."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import TrainerCallback

from normgauge.monitor.monitor import Monitor


class MonitorCallback(TrainerCallback):
    """Watches the model that a Trainer trains, and writes one run file.

    Steps are counted as ``state.global_step`` counts them: one for each optimizer step, whatever the accumulation. A
    training that goes on from a checkpoint goes on with the newest run file of the path. Of several processes one
    writes. The loss is the one the model returns, over all micro batches of the step.

    Args:
        path: a folder for the run, or a file name ending in ``.jsonl``.
        budget: share of the training time that measuring may take.
        options: further arguments of ``normgauge.Monitor``.

    Attributes:
        monitor: the monitor, from the start of the training on.
    """

    def __init__(self, path: str | os.PathLike[str], budget: float = 0.03, **options: Any) -> None:
        self.monitor: Monitor | None = None
        self._path, self._budget, self._options = path, budget, options
        self._losses: list[Tensor] = []
        self._parts_of_sum = False
        self._handle: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begin the run; weights and counters of a checkpoint are in place by now."""
        together = args.world_size > 1 and dist.is_available() and dist.is_initialized()
        options = {
            "optimizer": given.get("optimizer"),
            "resume": state.global_step or False,
            "distributed": together or None,
            **self._options,
        }
        self.monitor = Monitor(given["model"], self._path, self._budget, **options)
        self._handle = given["model"].register_forward_hook(self._passed, with_kwargs=True)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The optimizer has stepped; gradients and learning rate are still those of the step."""
        losses, self._losses = self._losses, []
        loss = None
        if losses:
            parts = torch.stack(losses)
            loss = parts.sum() if self._parts_of_sum else parts.mean()
        if self.monitor is not None:
            self.monitor.step(loss=loss)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """End the run."""
        if self._handle is not None:
            self._handle.remove()
        if self.monitor is not None:
            self.monitor.close()

    def _passed(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """Keep the loss of a micro batch; told the items of the whole batch, a model returns parts of a sum."""
        loss = getattr(output, "loss", None)
        if module.training and torch.is_grad_enabled() and isinstance(loss, Tensor):
            self._losses.append(loss.detach().reshape(()))
            self._parts_of_sum = kwargs.get("num_items_in_batch") is not None

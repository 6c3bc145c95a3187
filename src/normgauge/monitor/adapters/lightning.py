"""A callback for Lightning, under both of its names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from normgauge.monitor.monitor import Monitor
from normgauge.monitor.optimizer import first_rate

try:
    from lightning.pytorch import Callback
except ImportError:  # the older name of the same package
    from pytorch_lightning import Callback


class MonitorCallback(Callback):
    """Watches the module that a Trainer fits, and writes one run file.

    Steps are counted as ``trainer.global_step`` counts them: one for each optimizer step, whatever the accumulation. A
    fit that goes on from a checkpoint goes on with the newest run file of the path. Of several processes one writes.

    Args:
        path: a folder for the run, or a file name ending in ``.jsonl``.
        budget: share of the training time that measuring may take.
        log: also log the totals of each line to the Trainer's loggers.
        options: further arguments of ``normgauge.Monitor``.

    Attributes:
        monitor: the monitor, from the start of the training on.
    """

    def __init__(
        self, path: str | os.PathLike[str], budget: float = 0.03, *, log: bool = False, **options: Any
    ) -> None:
        super().__init__()
        self.monitor: Monitor | None = None
        self._path, self._budget, self._log, self._options = path, budget, log, options
        self._before = 0
        self._losses: list[Tensor] = []
        self._rate: float | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the run; weights and counters of a checkpoint are in place by now."""
        self._before = trainer.global_step
        options = dict(self._options)
        if self._log:
            options["sinks"] = [*options.get("sinks", ()), partial(_to_loggers, trainer)]
        together = trainer.world_size > 1 and dist.is_available() and dist.is_initialized()
        options = {
            "optimizer": trainer.optimizers,
            "resume": trainer.global_step or False,
            "distributed": together or None,
            **options,
        }
        self.monitor = Monitor(pl_module, self._path, self._budget, **options)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Keep the learning rate of this step: schedulers have moved on when the batch ends."""
        self._rate = first_rate([optimizer]) if len(optimizer.param_groups) == 1 else None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch is done; its gradients stay until the next one, and the optimizer has stepped or will later."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            self._losses.append(loss.detach())
        if self.monitor is None or trainer.global_step == self._before:
            return
        self._before = trainer.global_step
        losses, self._losses = self._losses, []
        # Lightning hands out each loss divided by the number of batches it accumulates.
        mean = torch.stack(losses).mean() * trainer.accumulate_grad_batches if losses else None
        self.monitor.step(loss=mean, lr=self._rate)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the run."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run too when the training breaks."""
        self._close()

    def _close(self) -> None:
        if self.monitor is not None:
            self.monitor.close()


def _to_loggers(trainer: Any, record: Mapping[str, Any]) -> None:
    """Log totals as ``normgauge/<total>``, at the step they were measured."""
    if record["kind"] == "step":
        totals = {f"normgauge/{name}": value for name, value in record["totals"].items() if value is not None}
        for logger in trainer.loggers:
            logger.log_metrics(totals, step=record["step"])

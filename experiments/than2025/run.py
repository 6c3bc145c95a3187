"""One run: train, measure every epoch, write down, go on where it stopped."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.than2025 import nets, spool, store
from experiments.than2025.data import Data
from experiments.than2025.epoch import Gauge
from experiments.than2025.plan import Spec
from experiments.than2025.steps import Stepper, make_optimizer

Work = Generator[Stepper, None, bool]
IMAGES = 32  # test images of a full reading
REST = 10.0  # seconds between checkpoints, at least


def comparable(spec: Spec) -> Spec:
    """A spec without what may change when a run goes on: how long, what is read, its place in the plan."""
    return replace(spec, epochs=0, readings=(), scopes=(), order=0)


@dataclass(frozen=True, slots=True)
class Parts:
    """The moving parts of a run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    shuffle: torch.Generator
    stepper: Stepper
    gauge: Gauge


@dataclass(slots=True)
class Run:
    """A run in progress.

    Attributes:
        spec: what it is.
        state: folder of checkpoints, results, readings to be taken.
        data: on the device.
        stop: asked after each epoch; True ends the run there, to be continued.
        channels_last: layout of images.
        rest: seconds between checkpoints, at least.
        epochs: the records so far, that of the untrained network first.
        seconds: spent so far, resumptions included.
    """

    spec: Spec
    state: Path
    data: Data
    stop: Callable[[], bool] = lambda: False
    channels_last: bool = False
    rest: float = REST
    epochs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def checkpoint(self) -> Path:
        """Where the run is kept while it is unfinished."""
        return self.state / "checkpoints" / f"{self.spec.slug}.pt"

    def work(self) -> Work:
        """Train to the end, or until told to stop; the steps themselves are left to whoever drives this.

        Yields:
            The stepper, at the beginning of each epoch; to be resumed when its steps are done.

        Returns:
            Whether the run is finished.
        """
        parts = self._prepare()
        saved = time.monotonic()
        if not self.epochs:
            self._note(parts, 0, {})
        for epoch in range(len(self.epochs), self.spec.epochs + 1):
            begun = time.monotonic()
            self._begin(parts)
            yield parts.stepper
            if not self._end(parts, epoch, begun):
                break
            last = epoch == self.spec.epochs
            stopping = not last and self.stop()
            if stopping or (not last and time.monotonic() - saved > self.rest):
                self._save(parts)
                saved = time.monotonic()
            if stopping:
                return False
        self._write(parts, finished=True)
        self.checkpoint.unlink(missing_ok=True)
        return True

    def _prepare(self) -> Parts:
        device = self.data.train.device
        torch.manual_seed(self.spec.seed)
        model = nets.build(self.spec, self.data.shape).to(device)
        if self.channels_last and self.spec.net != "mlp":
            model = model.to(memory_format=torch.channels_last)
        optimizer = make_optimizer(model, self.spec, device)
        shuffle = torch.Generator().manual_seed(self.spec.seed)
        if self.checkpoint.exists():
            self._resume(model, optimizer, shuffle)
        # after a resumption: a graph points at the memory of weights and optimizer as they are now
        stepper = Stepper(model, optimizer, self.data, self.spec.batch)
        if not stepper.capture() and device.type == "cuda":
            store.log(self.state, f"{self.spec.name}: no graph, eager steps: {stepper.why}")
        return Parts(model, optimizer, shuffle, stepper, Gauge(model, self.data))

    def _begin(self, parts: Parts) -> None:
        stepper = parts.stepper
        order = torch.randperm(len(self.data.labels), generator=parts.shuffle)[: stepper.order.numel()]
        parts.model.train()
        stepper.begin(order.to(stepper.device))

    def _end(self, parts: Parts, epoch: int, begun: float) -> bool:
        """Measure what the epoch has made of the network; False where the loss is no longer a number."""
        loss, accuracy = parts.stepper.means()
        trained = time.monotonic() - begun
        if not math.isfinite(loss):
            self.epochs.append({"epoch": epoch, "diverged": True, "running": [loss, accuracy]})
            return False
        self._note(parts, epoch, {"running": [loss, accuracy], "train_seconds": trained})
        self.seconds += time.monotonic() - begun
        return True

    def _note(self, parts: Parts, epoch: int, more: dict[str, Any]) -> None:
        """Measure, and hand a copy to the workers where a full reading is due."""
        begun = time.monotonic()
        record = parts.gauge.record()
        if epoch == 0:
            record["totals"]["gradient"] = None  # what is there is left from the capture
        self.epochs.append({"epoch": epoch, **more, **record, "measure_seconds": time.monotonic() - begun})
        if epoch in self.spec.readings:
            spool.put(self.state / "spool", self.spec, epoch, parts.model, self.data.real(self.data.test[:IMAGES]))

    def _save(self, parts: Parts) -> None:
        """Everything the next epoch depends on, and the results so far."""
        cuda = parts.stepper.device.type == "cuda"
        content = {
            "spec": self.spec.to_json(),
            "model": parts.model.state_dict(),
            "optimizer": parts.optimizer.state_dict(),
            "epochs": self.epochs,
            "seconds": self.seconds,
            "shuffle": parts.shuffle.get_state(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if cuda else None,
        }
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = self.checkpoint.with_suffix(f".part{os.getpid()}")
        torch.save(content, partial)
        partial.replace(self.checkpoint)  # a kill while writing leaves the one before
        self._write(parts, finished=False)

    def _resume(self, model: nn.Module, optimizer: torch.optim.Optimizer, shuffle: torch.Generator) -> None:
        """Put the run back where its checkpoint was written.

        Raises:
            ValueError: if the checkpoint belongs to a run with other settings.
        """
        device = self.data.train.device
        content = torch.load(self.checkpoint, map_location=device, weights_only=True)
        if comparable(Spec.from_json(content["spec"])) != comparable(self.spec):
            raise ValueError(f"{self.checkpoint} belongs to a run with other settings; delete it to start anew.")
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        self.epochs, self.seconds = content["epochs"], content["seconds"]
        shuffle.set_state(content["shuffle"].cpu())
        torch.set_rng_state(content["cpu"].cpu())
        if content["cuda"] is not None and device.type == "cuda":
            torch.cuda.set_rng_state(content["cuda"].cpu())
        store.log(self.state, f"{self.spec.name}: goes on after epoch {len(self.epochs) - 1}")

    def _write(self, parts: Parts, *, finished: bool) -> None:
        device = parts.stepper.device
        environment = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
            "graph": parts.stepper.captured,
            "channels_last": self.channels_last and self.spec.net != "mlp",
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
        content = {
            "spec": self.spec.to_json(),
            "environment": environment,
            "names": parts.gauge.names,
            "parameters": sum(p.numel() for p in parts.model.parameters()),
            "steps": parts.stepper.steps,
            "finished": finished,
            "seconds": self.seconds,
            "epochs": self.epochs,
        }
        store.write_json(self.state / "results" / f"{self.spec.slug}.json", content)

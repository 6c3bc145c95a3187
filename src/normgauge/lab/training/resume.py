"""What a training run leaves behind: one record an epoch, and checkpoints, written whole or not at all.

A checkpoint is plain data that loads with ``weights_only=True``.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normgauge.core.errors import LoadError
from normgauge.core.stored import written_whole

Settings = Mapping[str, str | int | float]


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


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The moving parts of a run; everything the next epoch depends on besides the data and the settings.

    Attributes:
        model: the network being trained, on its device.
        optimizer: the optimizer of its parameters.
        shuffle: the generator of the order of the examples.
        device: where the network lives.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    shuffle: torch.Generator
    device: torch.device


def save_checkpoint(path: Path, run: TrainingRun, history: History, settings: Settings) -> None:
    """Write a checkpoint; a kill while writing leaves the one before.

    Args:
        path: the file.
        run: the run to write down.
        history: its epochs so far.
        settings: what a resumed run must have in common with this one.
    """
    content = {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "epoch": len(history.epochs),
        "history": [asdict(epoch) for epoch in history.epochs],
        "settings": dict(settings),
        "rng": {
            "shuffle": run.shuffle.get_state(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(run.device) if run.device.type == "cuda" else None,
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        torch.save(content, partial)


def restore_run(path: Path, run: TrainingRun, settings: Settings, epochs: int) -> History:
    """Put a run back where its checkpoint was written.

    Args:
        path: a file written by ``save_checkpoint``.
        run: a fresh run, filled in place.
        settings: the settings of this run.
        epochs: how many epochs this run is asked for.

    Returns:
        The epochs done before.

    Raises:
        LoadError: if the file is not such a checkpoint, or belongs to another run.
    """
    content = _read(path)
    changed = [
        f"{key}={content['settings'].get(key)} there, {value} here"
        for key, value in settings.items()
        if content["settings"].get(key) != value
    ]
    if changed:
        raise LoadError(f"{path} belongs to another run ({'; '.join(changed)}); give another checkpoint or delete it.")
    if content["epoch"] > epochs:
        raise LoadError(f"{path} is past this run: it holds {content['epoch']} epochs, and {epochs} were asked for.")
    try:
        run.model.load_state_dict(content["model"])
        run.optimizer.load_state_dict(content["optimizer"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise LoadError(f"{path} does not fit this model: {error}") from error
    run.shuffle.set_state(content["rng"]["shuffle"])
    torch.set_rng_state(content["rng"]["cpu"])
    if run.device.type == "cuda" and content["rng"]["cuda"] is not None:
        torch.cuda.set_rng_state(content["rng"]["cuda"], run.device)
    return History(tuple(Epoch(**epoch) for epoch in content["history"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise LoadError(f"{path} was refused and nothing in it was run: it is no checkpoint of ours.") from error
    except Exception as error:  # a damaged file can make torch.load raise anything
        raise LoadError(
            f"{path} could not be read ({type(error).__name__}: {error}); delete it to start anew."
        ) from error
    if not isinstance(content, dict) or not {"model", "optimizer", "epoch", "history", "settings", "rng"} <= set(
        content
    ):
        raise LoadError(f"{path} is no checkpoint of this training loop; give another path or delete it.")
    return content

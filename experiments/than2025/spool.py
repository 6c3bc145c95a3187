"""The hand-over from runs to workers: one file a checkpoint to be read, claimed by renaming it."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.than2025.plan import Spec

WAITING, CLAIMED = ".wait", ".claimed"


@dataclass(frozen=True, slots=True)
class Item:
    """A checkpoint of a run, with the images it is to be read on."""

    spec: Spec
    epoch: int
    model: dict[str, torch.Tensor]
    images: torch.Tensor


def put(folder: Path, spec: Spec, epoch: int, model: nn.Module, images: torch.Tensor) -> None:
    """Write a checkpoint for the workers; last readings come before first ones, and these before those between."""
    folder.mkdir(parents=True, exist_ok=True)
    rank = 0 if epoch == spec.readings[-1] else 1 if epoch == spec.readings[0] else 2
    path = folder / f"{rank}-{spec.order:03d}-{epoch:03d}-{spec.slug}{WAITING}"
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    content = {"spec": spec.to_json(), "epoch": epoch, "model": state, "images": images.cpu()}
    partial = path.with_suffix(f".part{os.getpid()}")
    torch.save(content, partial)
    partial.replace(path)


def claim(folder: Path) -> Path | None:
    """Take the most important waiting file; None where there is none."""
    for path in sorted(folder.glob(f"*{WAITING}")):
        mine = path.with_suffix(CLAIMED)
        try:
            path.rename(mine)
        except FileNotFoundError:
            continue  # another worker was faster
        return mine
    return None


def release(folder: Path) -> None:
    """Files claimed by workers that are no more wait again."""
    for path in folder.glob(f"*{CLAIMED}"):
        path.rename(path.with_suffix(WAITING))


def waiting(folder: Path) -> int:
    """How many checkpoints are not read yet, those being read included."""
    return sum(path.suffix in (WAITING, CLAIMED) for path in folder.glob("*")) if folder.is_dir() else 0


def read(path: Path) -> Item:
    """The content of a claimed file.

    Raises:
        ValueError: if it is damaged.
    """
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{path} is no spooled checkpoint: {error}") from error
    return Item(Spec.from_json(content["spec"]), content["epoch"], content["model"], content["images"])

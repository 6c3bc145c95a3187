"""Training on data that lie on the device, as one CUDA graph a step where there is CUDA; resumable each epoch."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.generalization.data import Data, augmented
from experiments.than2025.steps import Stepper
from normgauge import NormgaugeError

Perturb = Callable[[nn.Module, Tensor, Tensor], Tensor]  # network, inputs, labels: other inputs
WARM = 0.25  # share of the steps in which the learning rate rises
REST = 10.0  # seconds between checkpoints, at least


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is trained.

    Attributes:
        epochs: passes through the data.
        batch: images a step.
        optimizer: "sgd" (Nesterov, momentum 0.9) or "adamw".
        lr: the peak of the one cycle.
        decay: as the optimizer takes it.
        smoothing: of the labels.
        shift: images are moved by up to so many pixels.
        flip: images are mirrored half of the time.
        cutout: side of a black square.
        mixed: bfloat16 in the forward pass, on CUDA.
    """

    epochs: int
    batch: int = 256
    optimizer: str = "sgd"
    lr: float = 0.2
    decay: float = 5e-4
    smoothing: float = 0.0
    shift: int = 0
    flip: bool = False
    cutout: int = 0
    mixed: bool = False


def rate(step: int, steps: int, peak: float) -> float:
    """One cycle: a line from peak/25 up in the first quarter, half a cosine down to 0.

    >>> [round(rate(k, 8, 1.0), 2) for k in (0, 1, 2, 5, 8)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    warm = WARM * steps
    if step < warm:
        return peak * (0.04 + 0.96 * step / warm)
    return peak * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2


class Trainee(Stepper):
    """A stepper that moves images about, smooths labels and follows a learning rate.

    Args:
        model: on the data's device.
        optimizer: from `optimizer_of`.
        data: bytes and labels.
        recipe: how to train.
        perturb: what is done to the inputs of a step, such as an attack.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        data: Data,
        recipe: Recipe,
        perturb: Perturb | None = None,
    ) -> None:
        super().__init__(model, optimizer, data, recipe.batch)
        self.recipe, self.perturb = recipe, perturb

    def step(self) -> None:
        """One step on the batch under the cursor; moves the cursor on."""
        recipe = self.recipe
        chosen = self.order.index_select(0, self.cursor).flatten()
        images, labels = self.data.train[chosen], self.data.labels[chosen]
        moved = augmented(images, shift=recipe.shift, flip=recipe.flip, cutout=recipe.cutout)
        inputs = self.data.real(moved).contiguous(memory_format=self.layout)
        if self.perturb is not None:
            inputs = self.perturb(self.model, inputs, labels)
        self.optimizer.zero_grad(set_to_none=True)
        # no cache of casted weights: a graph would go on with those of the step it was captured in
        on = recipe.mixed and self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=on, cache_enabled=False):
            logits = self.model(inputs)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=recipe.smoothing)
        loss.backward()
        self.optimizer.step()
        self.progress.loss.add_(loss.detach())
        self.progress.hits.add_((logits.detach().argmax(-1) == labels).sum())
        self.cursor.add_(1)

    def set_rate(self, value: float) -> None:
        """The learning rate of the next step; on CUDA it lives in memory that the graph reads."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value


def optimizer_of(model: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer, of a form that a graph can hold on CUDA.

    Raises:
        NormgaugeError: for an unknown name.
    """
    cuda = device.type == "cuda"
    lr = torch.tensor(recipe.lr, device=device) if cuda else recipe.lr
    parameters = list(model.parameters())
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=recipe.decay, fused=cuda)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=recipe.decay, fused=cuda, capturable=cuda)
    raise NormgaugeError(f"optimizer={recipe.optimizer!r} is not known; use sgd or adamw")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file a training goes on from.

    Attributes:
        path: of the file; None keeps none.
        stop: asked after each epoch; True ends the training there, to be continued.
    """

    path: Path | None = None
    stop: Callable[[], bool] = lambda: False

    def save(self, trainee: Trainee, epoch: int, shuffle: torch.Generator) -> None:
        """Write the training down, whole or not at all."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        kept = {"model": trainee.model.state_dict(), "optimizer": trainee.optimizer.state_dict(), "epoch": epoch}
        cuda = torch.cuda.get_rng_state(trainee.device) if trainee.device.type == "cuda" else None
        torch.save({**kept, "shuffle": shuffle.get_state(), "random": torch.get_rng_state(), "cuda": cuda}, partial)
        partial.replace(self.path)

    def resume(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, shuffle: torch.Generator, device: torch.device
    ) -> int:
        """How many epochs are done; network, optimizer and random numbers as they were then."""
        if self.path is None or not self.path.exists():
            return 0
        kept = torch.load(self.path, map_location=device, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        shuffle.set_state(kept["shuffle"].cpu())
        torch.set_rng_state(kept["random"].cpu())
        if kept["cuda"] is not None and device.type == "cuda":
            torch.cuda.set_rng_state(kept["cuda"].cpu(), device)
        return int(kept["epoch"])


NEVER = Checkpoint()


def fit(
    model: nn.Module,
    data: Data,
    recipe: Recipe,
    seed: int,
    *,
    perturb: Perturb | None = None,
    checkpoint: Checkpoint = NEVER,
) -> bool:
    """Train a network in place, on the data's device; the caller's random state is as before at the end.

    Args:
        model: any device; it is on the data's at the end, in eval mode.
        data: what it is trained on.
        recipe: how.
        seed: of the order and the augmentation.
        perturb: what is done to the inputs of a step.
        checkpoint: to go on from and to stop at.

    Returns:
        Whether the training is finished.
    """
    device = data.train.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return _fit(model, data, recipe, seed, perturb, checkpoint)


def _fit(
    model: nn.Module, data: Data, recipe: Recipe, seed: int, perturb: Perturb | None, checkpoint: Checkpoint
) -> bool:
    device = data.train.device
    images = any(isinstance(module, nn.Conv2d) for module in model.modules())
    model.to(device, memory_format=torch.channels_last if images and device.type == "cuda" else torch.preserve_format)
    optimizer, shuffle = optimizer_of(model, recipe, device), torch.Generator().manual_seed(seed)
    done = checkpoint.resume(model, optimizer, shuffle, device)
    model.train()
    trainee = Trainee(model, optimizer, data, recipe, perturb)
    if done < recipe.epochs and not trainee.capture() and device.type == "cuda":
        print(f"no graph, eager steps: {trainee.why}", flush=True)
    saved = time.monotonic()
    for epoch in range(done, recipe.epochs):
        _epoch(trainee, epoch, shuffle)
        stopping = epoch + 1 < recipe.epochs and checkpoint.stop()
        if stopping or epoch + 1 == recipe.epochs or time.monotonic() - saved > REST:
            checkpoint.save(trainee, epoch + 1, shuffle)
            saved = time.monotonic()
        if stopping:
            return False
    model.eval()
    return True


def _epoch(trainee: Trainee, epoch: int, shuffle: torch.Generator) -> None:
    order = torch.randperm(len(trainee.data.labels), generator=shuffle)[: trainee.order.numel()]
    trainee.begin(order.to(trainee.device))
    for step in range(trainee.steps):
        done, steps = epoch * trainee.steps + step, trainee.recipe.epochs * trainee.steps
        trainee.set_rate(rate(done, steps, trainee.recipe.lr))
        trainee.advance(1)


@torch.no_grad()
def logits(model: nn.Module, data: Data, images: Tensor, batch: int = 1000) -> Tensor:
    """What a network says of images, in eval mode and single precision, (n, classes) on their device."""
    model.eval()
    return torch.cat([model(data.real(part)).float() for part in torch.split(images, batch)])


def errors(model: nn.Module, data: Data) -> dict[str, float]:
    """Error and mean cross-entropy on the training and the test images, and the gaps."""
    told: dict[str, float] = {}
    for name, images, labels in (("train", data.train, data.labels), ("test", data.test, data.test_labels)):
        said = logits(model, data, images)
        told[f"{name}_error"] = float((said.argmax(1) != labels).double().mean())
        told[f"{name}_loss"] = float(F.cross_entropy(said, labels))
    told["gap"] = told["test_error"] - told["train_error"]
    told["loss_gap"] = told["test_loss"] - told["train_loss"]
    return told

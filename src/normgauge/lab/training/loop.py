"""The training loop: cross-entropy, shuffled batches, exact resumption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from normgauge.core.errors import InputError
from normgauge.lab.training.resume import Epoch, History, TrainingRun, restore_run, save_checkpoint
from normgauge.lab.zoo.split import Split

OnStart = Callable[[int], None]  # steps done before, in the run that is resumed
OnStep = Callable[[int, torch.Tensor], None]  # steps done so far, loss of this one (detached)
Progress = Callable[[int, int], None]  # steps done, steps in all


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: small matrices gain nothing from more and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    model: nn.Module,
    train_split: Split,
    *,
    epochs: int,
    batch_size: int = 64,
    lr: float = 1e-3,
    optimizer: Literal["adam", "adamw", "sgd"] = "adam",
    weight_decay: float = 0.0,
    momentum: float = 0.9,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    on_start: OnStart | None = None,
    on_step: OnStep | None = None,
    progress: Progress | None = None,
) -> History:
    """Train a classifier in place, on the device its parameters are on.

    The same seed gives the same run bit for bit on a CPU. With a checkpoint, the run is written down after each epoch,
    and a later call with the same settings goes on from there: it ends as an uninterrupted run would have. The
    caller's random state and the mode of each module are as before at the end.

    Args:
        model: the network; its initial weights are the caller's.
        train_split: inputs and labels.
        epochs: passes through the data, those already in the checkpoint included.
        batch_size: examples a step; a last batch of a single example is left out, as BatchNorm cannot use it.
        lr: learning rate.
        optimizer: "adam", "adamw" or "sgd".
        weight_decay: as the optimizer takes it (decoupled for "adamw").
        momentum: for "sgd" only.
        seed: of the shuffling and of dropout.
        checkpoint: file to write after each epoch and to resume from if it exists.
        on_start: called once before the first step with the count of steps done before, 0 for a fresh run.
        on_step: called after each step with the count of steps so far and the loss; gradients are still there.
        progress: called after each step with the steps done and the steps in all.

    Returns:
        The record of every epoch.

    Raises:
        InputError: if an option is not known or the data do not fit.
    """
    count = len(train_split.labels)
    if epochs < 0 or batch_size < 1 or count < 1 or len(train_split.inputs) != count:
        raise InputError(
            f"expected epochs >= 0, batch_size >= 1 and as many inputs as labels; got epochs={epochs}, "
            f"batch_size={batch_size}, {len(train_split.inputs)} inputs and {count} labels."
        )
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    run = TrainingRun(model, _optimizer(model, optimizer, lr, weight_decay, momentum), torch.Generator(), device)
    run.shuffle.manual_seed(seed)
    settings = {"batch_size": batch_size, "lr": lr, "optimizer": optimizer, "weight_decay": weight_decay}
    settings |= {"momentum": momentum, "seed": seed, "examples": count}
    path = None if checkpoint is None else Path(checkpoint)
    per_epoch = len(_batches(torch.arange(count), batch_size))
    with _own_random_state(device, seed), in_mode(model, training=True):
        history = restore_run(path, run, settings, epochs) if path is not None and path.exists() else History()
        step = len(history.epochs) * per_epoch
        if on_start is not None:
            on_start(step)

        def after_step(loss: torch.Tensor) -> None:
            nonlocal step
            step += 1
            if on_step is not None:
                on_step(step, loss)
            if progress is not None:
                progress(step, epochs * per_epoch)

        for number in range(len(history.epochs) + 1, epochs + 1):
            epoch = _one_epoch(run, train_split, batch_size, number, after_step)
            history = History((*history.epochs, epoch))
            if path is not None:
                save_checkpoint(path, run, history, settings)
    return history


@dataclass(frozen=True, slots=True)
class Scores:
    """How well a network does on some examples.

    Attributes:
        loss: mean cross-entropy in nats.
        accuracy: fraction of labels that came first.
    """

    loss: float
    accuracy: float


def evaluate_model(model: nn.Module, split: Split, *, batch_size: int = 256) -> Scores:
    """Loss and accuracy in eval mode; afterwards each module has its own mode again.

    Args:
        model: the network.
        split: inputs and labels.
        batch_size: examples at a time.

    Returns:
        Means over all labels.

    Raises:
        InputError: if there are no examples.
    """
    if not split.labels.numel():
        raise InputError("the accuracy on no examples is not defined; give at least one.")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    hits, total = 0, 0.0
    with torch.no_grad(), in_mode(model, training=False):
        for inputs, labels in zip(
            torch.split(split.inputs, batch_size), torch.split(split.labels, batch_size), strict=True
        ):
            logits, wanted = _logits(model(inputs.to(device))), labels.to(device)
            hits += int((logits.argmax(-1) == wanted).sum())
            total += float(F.cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="sum"))
    return Scores(total / split.labels.numel(), hits / split.labels.numel())


def model_accuracy(model: nn.Module, split: Split, *, batch_size: int = 256) -> float:
    """Fraction of labels the model puts first, in eval mode; afterwards each module has its own mode again.

    Args:
        model: the network.
        split: inputs and labels.
        batch_size: examples at a time.

    Returns:
        A number in [0, 1].
    """
    return evaluate_model(model, split, batch_size=batch_size).accuracy


def _logits(output: object) -> torch.Tensor:
    """What a network returned, where that can be trained with cross-entropy.

    Raises:
        InputError: for anything but one tensor with an axis of classes.
    """
    if isinstance(output, torch.Tensor) and output.ndim > 1:
        return output
    got = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, torch.Tensor) else type(output).__name__
    raise InputError(f"a network that is trained here returns one tensor, (samples, ..., classes); got {got}")


def _one_epoch(
    run: TrainingRun, data: Split, batch_size: int, number: int, after_step: Callable[[torch.Tensor], None]
) -> Epoch:
    order = torch.randperm(len(data.labels), generator=run.shuffle)
    total = torch.zeros((), dtype=torch.float64 if run.device.type != "mps" else torch.float32, device=run.device)
    hits, seen = torch.zeros((), dtype=torch.int64, device=run.device), 0
    run.model.train()  # a callback may have left eval mode behind
    for chosen in _batches(order, batch_size):
        inputs, labels = data.inputs[chosen].to(run.device), data.labels[chosen].to(run.device)
        run.optimizer.zero_grad(set_to_none=True)
        logits = _logits(run.model(inputs))
        loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        run.optimizer.step()
        # sums stay on the device, so that no step waits for the one before
        total += loss.detach() * labels.numel()
        hits += (logits.detach().argmax(-1) == labels).sum()
        seen += labels.numel()
        after_step(loss.detach())
    return Epoch(number, float(total) / seen, int(hits) / seen)


def _batches(order: torch.Tensor, size: int) -> list[torch.Tensor]:
    """The order cut in batches, without a last one of a single example unless it is all there is."""
    batches = list(torch.split(order, size))
    return batches[:-1] if len(batches) > 1 and size > 1 and len(batches[-1]) == 1 else batches


def _optimizer(model: nn.Module, name: str, lr: float, weight_decay: float, momentum: float) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError(f"this {type(model).__name__} has no parameters to train.")
    match name:
        case "adam":
            return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum)
    raise InputError(f"optimizer={name!r} is not known; use 'adam', 'adamw' or 'sgd'.")


@contextmanager
def _own_random_state(device: torch.device, seed: int) -> Iterator[None]:
    """Seed what dropout draws from, and give the caller's random state back at the end."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put the model in training or eval mode, and each module back in its own at the end."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was in before:
            module.training = was

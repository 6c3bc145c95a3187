"""What a training of the bench is: a function, what is wrong with it, and which words would name that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn


class Watch(Protocol):
    """What a training sees of the monitor."""

    def step(self, *, loss: Any = None) -> None: ...


class Outcome(NamedTuple):
    """The loss at every step, and what was learnt, held out or at the last steps: smaller is better."""

    losses: list[float]
    score: float


Factory = Callable[[nn.Module, Any], Watch]
Train = Callable[[Factory], Outcome]


@dataclass(frozen=True)
class Training:
    """One row of the bench; without a fault it is healthy.

    Attributes:
        begins: the step at which the fault begins to act.
        accepted: at least one must occur in the first incident, in lower case; of "a+b" both parts must.
        mended: the same training without the fault.
    """

    name: str
    train: Train
    fault: str = ""
    layer: str = ""
    begins: int = 0
    accepted: tuple[str, ...] = ()
    mended: Train | None = None


# Words that name a cause. A symptom (the loss is NaN, the gradient is large) is none of them.
ACCEPTED: dict[str, tuple[str, ...]] = {
    "not in optimizer": (
        "not in the optimizer", "not in any optimizer", "in no optimizer", "missing from the optimizer",
        "not given to the optimizer", "outside the optimizer", "optimizer does not have", "optimizer does not hold",
        "optimizer does not know", "no optimizer holds", "no optimizer has",
    ),
    "no gradient": (
        "no gradient", "without gradient", "without a gradient", "gradient is none", "gradient is zero",
        "gradient is 0", "detach", "cut off",
    ),
    "no update": (
        "no update", "without update", "not updated", "never updated", "not moved", "does not move", "did not move",
        "never moved", "stands still", "rate is 0", "rate of 0", "rate 0",
    ),
    "dead relus": ("dead", "never active", "units are off", "units are zero", "outputs are zero", "always zero"),
    "saturated attention": (
        "attention+saturat", "softmax+saturat", "attention+one-hot", "attention+one key", "attention+entropy",
        "attention+logit", "attention+score",
    ),
    "attention logits": ("attention+logit", "attention+score", "attention+saturat", "attention+entropy", "query+key"),
    "vanishing": ("vanish", "sigmoid", "tanh+saturat"),
    "rate decayed": (
        "rate+decayed", "rate+decay to", "rate+to nothing", "rate+too small", "rate+too low", "rate+schedule",
        "rate+has fallen", "rate+fell",
    ),
    "rate too large": ("rate+too high", "rate+too large", "rate+too big", "steps+too large", "lower the learning rate"),
    "bf16 updates": ("bf16", "bfloat16", "rounded away", "half precision"),
    "eval left on": ("eval()", "eval mode", "evaluation mode", ".train()", "model.eval", "in eval"),
    "batchnorm momentum": ("momentum",),
    "tied twice": ("tied", "twice", "two times", "more than once"),
    "no warm-up": ("warm-up", "warmup", "warm up"),
    "wrong reduction": ("reduction", "summed", "sum over", "is a sum", "instead of the mean", "a mean instead"),
    "not normalized": (
        "input+normaliz", "input+normalis", "data+normaliz", "data+normalis", "input+standardi", "data+standardi",
        "input+scale", "inputs+unscaled",
    ),
    "fp16 overflow": ("overflow", "65504", "65,504", "65 504", "largest number of float16", "loss scale"),
    "residual grows": ("residual+grow", "residual+larger", "residual stream", "skip+grow"),
    "epsilon in half": ("ε", "eps"),
    "no normalizer": (
        "no normalizer", "no normaliser", "without normalizer", "without a normalizer", "normalizer anywhere",
        "add a normalizer", "no normalization", "without normalization", "add normalization",
    ),
}  # fmt: skip


def faulty(
    name: str,
    fault: str,
    train: Train,
    mended: Train,
    *,
    layer: str = "",
    begins: int = 0,
    accepted: Iterable[str] = (),
) -> Training:
    """A row with a fault out of the table, or with words of its own."""
    return Training(name, train, fault, layer, begins, tuple(accepted) or ACCEPTED[fault], mended)


def sample_words(index: int) -> tuple[str, ...]:
    """Words that say which sample of the batch it was."""
    forms = (
        "sample {}",
        "sample number {}",
        "sample no. {}",
        "sample #{}",
        "row {}",
        "index {}",
        "entry {}",
        "example {}",
    )
    return tuple(form.format(index) for form in forms)


def named(accepted: Iterable[str], text: str) -> bool:
    """Whether a text names the cause."""
    said = " ".join(text.lower().split())
    return any(all(part in said for part in entry.split("+")) for entry in accepted)


def descend(
    factory: Factory,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_at: Callable[[int], torch.Tensor],
    steps: int,
    *,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    clip: float | None = None,
) -> list[float]:
    """The plain loop of the README."""
    monitor, losses = factory(model, optimizer), []
    for step in range(steps):
        loss = loss_at(step)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        monitor.step(loss=loss)
        if scheduler is not None:
            scheduler.step()
        losses.append(float(loss.detach()))
    return losses

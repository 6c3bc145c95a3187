"""The ways of training that are compared: each makes an optimizer, a term of the loss and what follows a step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import normgauge as ng

MAPS = (nn.Linear, nn.Conv2d)
METHODS = (
    "none",
    "decay",
    "spectral",
    "unfolded",
    "unfolded_log",
    "muon",
    "muon_penalty",
    "muon_layers",
    "penalty",
    "layers",
    "cap",
    "bounded",
    "bounded_penalty",
    "local",
)
RIVALS = ("none", "decay", "spectral", "unfolded", "unfolded_log", "muon")
OURS = ("muon_penalty", "muon_layers", "penalty", "layers", "cap", "bounded", "bounded_penalty")
WORDS = {
    "none": "no control",
    "decay": "weight decay",
    "spectral": "torch spectral_norm",
    "unfolded": "penalty on bare norms (σ²)",
    "unfolded_log": "penalty on bare norms (log σ)",
    "muon": "torch.optim.Muon",
    "muon_penalty": "ng.penalty, total, with Muon",
    "muon_layers": "ng.penalty, by layer, with Muon",
    "penalty": "ng.penalty, total",
    "layers": "ng.penalty, by layer",
    "cap": "ng.cap",
    "cap_at_once": "ng.cap, clipped at once",
    "bounded": "bounded normalizers with ng.cap",
    "bounded_penalty": "bounded normalizers with ng.penalty by layer",
    "local": "the local term of bound (13)",
    "layer_norm": "LayerNorm, no control",
    "bounded_alone": "bounded normalizers alone",
}


@dataclass
class Training:
    """A model that is being trained in one way.

    Attributes:
        model: to be trained.
        optimizers: all of them step together.
        term: what is added to the loss.
        after: what follows a step.
        done: what follows the last one.
        local: weight of the loss's own slope at the samples.
        every: on how many steps the term is worked out once.
    """

    model: nn.Module
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    term: Callable[[], Tensor | float] = lambda: 0.0
    after: Callable[[], Any] = lambda: None
    done: Callable[[], Any] = lambda: None
    local: float = 0.0
    every: int = 1

    def step(self, loss: Tensor, x: Tensor | None = None) -> None:
        """Take gradients of the loss with the term, and one step.

        With ``local``, so many times the mean length of the loss's gradient in the inputs is added: the slope of the
        loss on the cell of each sample, which is what bound (13) of Than sums up.
        """
        if self.local and x is not None:
            (slopes,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + self.local * slopes.flatten(1).norm(dim=1).sum()
        self.gradients(loss)
        for optimizer in self.optimizers:
            optimizer.step()
        self.after()

    def gradients(self, loss: Tensor) -> None:
        """Take gradients of the loss with the term."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(self.every == 1)  # of two captured graphs both must leave gradients in one place
        (loss + self.term()).backward()

    def rate(self, share: float) -> None:
        """Set every learning rate to a share of the one it began with."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group.setdefault("first_lr", float(group["lr"]))
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(share * group["first_lr"])
                else:
                    group["lr"] = share * group["first_lr"]


def start(
    model: nn.Module, batch: Any, method: str, strength: float, lr: float, decay: float = 0.0, every: int = 1
) -> Training:
    """Make a training; ``decay`` is the weight decay that all ways share, ``strength`` what the way is tuned by.

    Penalties and projections are worked out on one step in ``every``; a projection also at the end.
    """
    if method.startswith("bounded"):
        model = ng.bounded(model, constant=2.0, floor=0.5)
    if method == "spectral":
        for module in maps(model):
            parametrizations.spectral_norm(module)
    training = Training(model, local=strength if method == "local" else 0.0)
    if method in ("penalty", "layers", "bounded_penalty", "muon_penalty", "muon_layers"):
        by = "total" if method in ("penalty", "muon_penalty") else "layer"
        term = ng.penalty(model, batch, by=by, every=every)
        training.term, training.done, training.every = lambda: strength * term(), term.close, every
    elif method.startswith("unfolded"):
        norms = BareNorms(model)
        training.term = lambda: strength * norms(method == "unfolded_log")
    elif method in ("cap", "cap_at_once", "bounded"):
        options = {"clip": math.inf} if method == "cap_at_once" else {}
        cap, turns = ng.cap(model, batch, log10=strength, **options), itertools.count(1)
        training.after = lambda: cap() if next(turns) % every == 0 else None
        training.done = cap
    training.optimizers = list(optimizers(model, method, strength, lr, decay))
    return training


def optimizers(
    model: nn.Module, method: str, strength: float, lr: float, decay: float
) -> Iterator[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for hidden matrices and AdamW for the rest; alone Muon is tuned by its rate."""
    decay = strength if method == "decay" else decay
    if not method.startswith("muon"):
        yield adamw(model.parameters(), lr, decay)
        return
    last = list(maps(model))[-1].weight
    for module in maps(model):
        if module.weight.ndim == 4:
            parametrize.register_parametrization(module, "weight", Flat(module.weight.shape))
    hidden = [
        p
        for n, p in model.named_parameters()
        if p.ndim == 2 and p is not last and "token" not in n and "place" not in n
    ]
    others = [p for p in model.parameters() if not any(p is h for h in hidden)]
    rate = strength if method == "muon" else lr
    yield torch.optim.Muon(hidden, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    yield adamw(others, lr, decay)


def adamw(parameters: Iterable[nn.Parameter], lr: float, decay: float) -> torch.optim.Optimizer:
    """AdamW; on a GPU one that a graph can hold, its rate a tensor."""
    own = list(parameters)
    if not own[0].is_cuda:
        return torch.optim.AdamW(own, lr, weight_decay=decay)
    rate = torch.tensor(lr, device=own[0].device)
    return torch.optim.AdamW(own, rate, weight_decay=decay, fused=True, capturable=True)


def maps(model: nn.Module) -> Iterator[Any]:
    """The linear maps and convolutions of a model."""
    return (module for module in model.modules() if isinstance(module, MAPS))


class Flat(nn.Module):
    """A kernel kept as a matrix, which Muon takes."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, matrix: Tensor) -> Tensor:
        """The kernel."""
        return matrix.view(self.shape)

    def right_inverse(self, kernel: Tensor) -> Tensor:
        """The matrix."""
        return kernel.flatten(1)


class BareNorms:
    """Σ σ² or Σ log10 σ of the weights as they are, by power iteration on the reshaped kernels, equal shapes at once.

    Source: Yoshida & Miyato 2017, Spectral norm regularization.
    """

    def __init__(self, model: nn.Module) -> None:
        draw, shapes = torch.Generator().manual_seed(0), {}
        for module in maps(model):
            shapes.setdefault(module.weight.flatten(1).shape, []).append(module)
        self.alike: list[list[Any]] = list(shapes.values())
        self.vectors = [
            torch.randn(len(own), shape[1], 1, generator=draw).to(own[0].weight) for shape, own in shapes.items()
        ]

    def __call__(self, log: bool) -> Tensor:
        """The sum, with its gradient."""
        total: Any = 0.0
        for own, vectors in zip(self.alike, self.vectors, strict=True):
            matrices = torch.stack([module.weight.flatten(1) for module in own])
            with torch.no_grad():
                u = nn.functional.normalize(matrices @ vectors, dim=1)
                vectors.copy_(nn.functional.normalize(matrices.mT @ u, dim=1))  # a captured graph goes on from it
                both = u @ vectors.mT
            sizes = (both * matrices).sum((1, 2))
            total = total + (sizes.log10() if log else sizes.square()).sum()
        return total


def plain(model: nn.Module) -> nn.Module:
    """The model with parametrizations worked into its weights."""
    for module in model.modules():
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
    return model

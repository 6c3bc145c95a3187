"""Optimizers over stacks, with a learning rate for each network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

BETA = 0.9  # momentum, and Adam's first
BETA2, TINY = 0.999, 1e-8


class Descent:
    """Gradient descent, with momentum ("momentum") or as Adam ("adam"), as torch.optim has them.

    Args:
        model: whose parameters have the network first.
        rule: "sgd", "momentum" or "adam".
        lr: one learning rate, or one a network.
        decay: λ of w ← w − lr λ w.
    """

    def __init__(self, model: nn.Module, rule: str, lr: float | Tensor, decay: float = 0.0) -> None:
        self.params, self.rule, self.decay, self.steps = list(model.parameters()), rule, decay, 0
        self.lr = torch.as_tensor(lr, dtype=self.params[0].dtype).reshape(-1, 1, 1)
        self.first = [torch.zeros_like(p) for p in self.params]
        self.second = [torch.zeros_like(p) for p in self.params]

    def step(self, grads: Sequence[Tensor]) -> None:
        """Move every parameter."""
        self.steps += 1
        with torch.no_grad():
            for k, (p, g) in enumerate(zip(self.params, grads, strict=True)):
                p.mul_(1 - self.lr * self.decay).sub_(self.lr * self._direction(k, g))

    def _direction(self, k: int, g: Tensor) -> Tensor:
        if self.rule == "sgd":
            return g
        if self.rule == "momentum":
            return self.first[k].mul_(BETA).add_(g)
        self.first[k].mul_(BETA).add_(g, alpha=1 - BETA)
        self.second[k].mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        return self.first[k] / (1 - BETA**self.steps) / self.scales(k)

    def scales(self, k: int) -> Tensor:
        """What Adam divides the coordinates of a parameter by: √v̂ + 1e-8."""
        return self.second[k].sqrt() / math.sqrt(1 - BETA2 ** max(self.steps, 1)) + TINY


def gradients(losses: Tensor, model: nn.Module) -> tuple[Tensor, ...]:
    """The gradient of each network's own loss; networks do not mix, so that of the sum has them all."""
    return torch.autograd.grad(losses.sum(), list(model.parameters()))


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm over all tensors, one a network."""
    return torch.stack([t.detach().flatten(1).square().sum(1) for t in tensors]).sum(0).sqrt()


def schedule(steps: int, count: int) -> list[int]:
    """About so many steps to look at, from 0 to the last, closer at the beginning."""
    rising = (round(steps ** (k / count)) for k in range(count + 1))
    return sorted({0, *rising, steps})


def first_time(seen: Tensor, true: Tensor, step: int) -> None:
    """Write a step into those entries of ``seen`` that are still −1 where something is true."""
    seen[(seen < 0) & true] = step

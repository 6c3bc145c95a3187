"""Many small networks of one shape side by side: one tensor a layer, the network first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from experiments.akbar2025.tasks import generator

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], type[nn.Module], float]] = {
    # the function, its module, the gain of the initialization
    "relu": (torch.relu, nn.ReLU, math.sqrt(2)),
    "tanh": (torch.tanh, nn.Tanh, 1.0),
    "linear": (lambda h: h, nn.Identity, 1.0),
}
MOMENTUM = 0.1  # of the running statistics, as torch has it


@dataclass(frozen=True, slots=True)
class Shape:
    """What all networks of a stack have in common.

    Attributes:
        widths: inputs first, outputs last.
        norm: of the hidden layers: "none", "batch" or "layer". A normalized layer has no bias of its own.
        activation: of the hidden layers.
        eps: of the normalizers.
        dropout: share of hidden activations dropped in training.
        biases: whether layers without a normalizer have any.
    """

    widths: tuple[int, ...]
    norm: str = "none"
    activation: str = "relu"
    eps: float = 1e-5
    dropout: float = 0.0
    biases: bool = True


class Stack(nn.Module):
    """Networks side by side; what happens in one of them does not reach another.

    Weights are normal with variance gain²/fan-in, biases and shifts 0, gains 1. The same seed gives the same weights
    with and without normalizers.

    Args:
        shape: of all of them.
        seeds: one a network.
        dtype: of everything.
    """

    def __init__(self, shape: Shape, seeds: Sequence[int], dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.shape, self.count, self.depth = shape, len(seeds), len(shape.widths) - 1
        self.tensors = nn.ParameterDict()
        self.drops = torch.Generator().manual_seed(seeds[0])
        draws = [generator(seed, "weights") for seed in seeds]
        for k in range(self.depth):
            n, m = shape.widths[k : k + 2]
            gain = ACTIVATIONS[shape.activation][2] if k < self.depth - 1 else 1.0
            drawn = torch.stack([torch.randn(m, n, generator=g, dtype=torch.float64) for g in draws])
            self.tensors[f"weight{k}"] = nn.Parameter((drawn * gain / math.sqrt(n)).to(dtype))
            names = ("gain", "shift") if self.normalized(k) else ("bias",) if shape.biases else ()
            for name in names:
                value = torch.full((self.count, 1, m), 1.0 if name == "gain" else 0.0, dtype=dtype)
                self.tensors[f"{name}{k}"] = nn.Parameter(value)
            self.register_buffer(f"mean{k}", torch.zeros(self.count, 1, m, dtype=dtype))
            self.register_buffer(f"var{k}", torch.ones(self.count, 1, m, dtype=dtype))

    def normalized(self, layer: int) -> bool:
        """Whether a layer has a normalizer."""
        return self.shape.norm != "none" and layer < self.depth - 1

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (networks, examples, outputs) of inputs (networks, examples, inputs)."""
        return self.hidden(x)[-1]

    def hidden(self, x: Tensor) -> list[Tensor]:
        """What each layer gives before its normalizer, and the output last."""
        seen, h = [], x
        for k in range(self.depth):
            h = h @ self.tensors[f"weight{k}"].mT
            if f"bias{k}" in self.tensors:
                h = h + self.tensors[f"bias{k}"]
            seen.append(h)
            if k < self.depth - 1:
                h = ACTIVATIONS[self.shape.activation][0](self._scaled(k, h) if self.normalized(k) else h)
                if self.training and self.shape.dropout:
                    kept = torch.rand(h.shape, generator=self.drops, dtype=h.dtype) >= self.shape.dropout
                    h = h * kept / (1 - self.shape.dropout)
        return seen

    def _scaled(self, k: int, h: Tensor) -> Tensor:
        if self.shape.norm == "layer":
            mean, var = h.mean(-1, keepdim=True), h.var(-1, correction=0, keepdim=True)
        elif self.training:
            mean, var = h.mean(1, keepdim=True), h.var(1, correction=0, keepdim=True)
            with torch.no_grad():
                self.get_buffer(f"mean{k}").lerp_(mean, MOMENTUM)
                self.get_buffer(f"var{k}").lerp_(var * h.shape[1] / (h.shape[1] - 1), MOMENTUM)
        else:
            mean, var = self.get_buffer(f"mean{k}"), self.get_buffer(f"var{k}")
        return (h - mean) / torch.sqrt(var + self.shape.eps) * self.tensors[f"gain{k}"] + self.tensors[f"shift{k}"]

    def one(self, index: int) -> nn.Sequential:
        """One of the networks, made of torch's own modules."""
        made: list[nn.Module] = []
        for k in range(self.depth):
            n, m = self.shape.widths[k : k + 2]
            linear = nn.Linear(n, m, bias=f"bias{k}" in self.tensors)
            linear.weight.data = self.tensors[f"weight{k}"].detach()[index].clone()
            if f"bias{k}" in self.tensors:
                linear.bias.data = self.tensors[f"bias{k}"].detach()[index, 0].clone()
            made.append(linear)
            if self.normalized(k):
                made.append(self._normalizer(k, index, m))
            if k < self.depth - 1:
                made.append(ACTIVATIONS[self.shape.activation][1]())
        return nn.Sequential(*made)

    def _normalizer(self, k: int, index: int, width: int) -> nn.Module:
        made: nn.BatchNorm1d | nn.LayerNorm
        if self.shape.norm == "layer":
            made = nn.LayerNorm(width, eps=self.shape.eps)
        else:
            made = nn.BatchNorm1d(width, eps=self.shape.eps, momentum=MOMENTUM)
            made.running_mean = self.get_buffer(f"mean{k}")[index, 0].clone()
            made.running_var = self.get_buffer(f"var{k}")[index, 0].clone()
        made.weight.data = self.tensors[f"gain{k}"].detach()[index, 0].clone()
        made.bias.data = self.tensors[f"shift{k}"].detach()[index, 0].clone()
        return made

    def rows(self) -> Tensor:
        """‖w‖ of every scale-free weight vector: (networks, units) for BatchNorm, (networks, layers) for LayerNorm."""
        weights = [self.tensors[f"weight{k}"] for k in range(self.depth) if self.normalized(k)]
        if self.shape.norm == "layer":
            return torch.stack([w.flatten(1).norm(dim=1) for w in weights], dim=1)
        return torch.cat([w.norm(dim=2) for w in weights], dim=1)


def scaled(stack: Stack, factor: float | Tensor, *, head: bool = False) -> None:
    """Multiply the weights of the hidden layers, or those of the head as well, in place.

    Args:
        stack: the networks.
        factor: one number, or one a network.
        head: whether the last layer's weights are multiplied too.
    """
    by = torch.as_tensor(factor, dtype=stack.tensors["weight0"].dtype).reshape(-1, 1, 1)
    with torch.no_grad():
        for k in range(stack.depth - (0 if head else 1)):
            stack.tensors[f"weight{k}"].mul_(by)

"""The samples' axis: mixed, moved, merged, or not there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.fuzz.tracing.trick import Told, Trick, trick

AXES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "linear over the samples": lambda m, x: m.over(x.pow(3).T).T.pow(3),
    "linear over squares": lambda m, x: F.relu(m.over(F.relu(x).square().T)).square().T,
    "layer norm of samples": lambda m, x: F.layer_norm(x.T, (len(x),), eps=1e-3).T,
    "normalised, mixed, normalised": lambda m, x: F.layer_norm(m.over(F.layer_norm(x, x.shape[1:]).T).T, x.shape[1:]),
    "product with its transpose": lambda m, x: (x.tanh() @ x.tanh().T) @ x.tanh(),
    "cumulative": lambda m, x: x.square().cumsum(0).tanh(),
    "sorted": lambda m, x: x.sort(0).values.square(),
    "rolled": lambda m, x: x.square() * x.roll(1, 0).tanh(),
    "permuted": lambda m, x: x.square().flip(0).pow(3),
    "flattened": lambda m, x: m.flat(x.square().reshape(1, -1)).reshape(x.shape).square(),
    "one row": lambda m, x: F.layer_norm(x.reshape(-1), (x.numel(),), eps=1e-3).reshape(x.shape).pow(3),
    "samples as channels": lambda m, x: F.conv1d(x.square()[None], m.kernel, padding=1)[0].square(),
    "softmax of samples": lambda m, x: (5 * x).softmax(0).square(),
    "einsum": lambda m, x: torch.einsum("ni,mn->mi", x.square(), m.over.weight).square(),
    "maximum over samples": lambda m, x: x.square() - x.square().amax(0, keepdim=True),
    "bilinear of samples": lambda m, x: F.bilinear(x.T.tanh(), x.T.square(), m.cube).T,
    "stacked": lambda m, x: torch.stack([x.square(), x.flip(0).pow(3)], 1).sum(1).square(),
    "gathered": lambda m, x: x.square()[torch.arange(len(x) - 1, -1, -1)] * x,
    "transposed twice": lambda m, x: m.same(x.T.contiguous().T.square()).square(),
    "outer": lambda m, x: (x.square()[:, None] * x.tanh()[None]).mean(1),
}


@trick
def odd_axis(rng: Random, width: int) -> Trick:
    name = rng.choice(list(AXES))
    samples = rng.randint(2, 3)
    parts: dict[str, Any] = {
        "over": nn.Linear(samples, samples, bias=False),
        "flat": nn.Linear(samples * width, samples * width),
        "same": nn.Linear(width, width),
        "kernel": torch.randn(samples, samples, 3, dtype=torch.float64),
        "cube": torch.randn(samples, samples, samples, dtype=torch.float64),
    }
    return Trick(Told(name, AXES[name], **parts), shape=lambda _, width: (samples, width), alone=True)


@trick
def one_vector(rng: Random, width: int) -> Trick:
    width += 2
    square = rng.choice([torch.square, lambda x: F.relu(x).square(), torch.exp, lambda x: x.pow(3), F.silu])
    a, b = nn.Linear(width, width), nn.Linear(width, width)

    def deep(m: Any, x: Tensor) -> Tensor:
        return m.b(square(m.a(square(x))))

    def gated(m: Any, x: Tensor) -> Tensor:
        return m.b(F.silu(m.a(x)) * square(x))

    function = rng.choice([deep, gated])
    return Trick(Told(function.__name__, function, a=a, b=b), shape=lambda *_: (width,), alone=True)


@trick
def merged_with_time(rng: Random, width: int) -> Trick:
    time = rng.randint(2, 3)
    layer, norm = nn.Linear(width, width), nn.LayerNorm(width)
    over = nn.Linear(time, time, bias=False)
    kinds: dict[str, Callable[[Any, Tensor], Tensor]] = {
        "merged": lambda m, x: m.layer(x.square().reshape(-1, width)).reshape(x.shape).square(),
        "time first": lambda m, x: m.layer(x.transpose(0, 1).square()).transpose(0, 1).square(),
        "time first, flat": lambda m, x: m.layer(x.transpose(0, 1).reshape(-1, width).square()).square(),
        "over time": lambda m, x: m.over(x.square().transpose(1, 2)).transpose(1, 2).square(),
        "over the samples": lambda m, x: x.square().permute(1, 2, 0).softmax(-1).permute(2, 0, 1),
        "shifted": lambda m, x: m.norm(x.reshape(-1, width).roll(1, 0)).reshape(x.shape).square(),
        "split elsewhere": lambda m, x: x.square().reshape(x.shape[1], x.shape[0], width).pow(2),
    }
    name = rng.choice(list(kinds))
    module = Told(name, kinds[name], layer=layer, norm=norm, over=over)
    return Trick(module, shape=lambda samples, width: (samples, time, width), alone=True)

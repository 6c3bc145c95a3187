"""Precision: casts that copy, programs that look at a type, models in half precision."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.fuzz.tracing.trick import Told, Trick, steep, trick

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


@trick
def cast(rng: Random, width: int) -> Trick:
    kinds: dict[str, tuple[Callable[[Tensor], Tensor], torch.dtype]] = {
        "half": (lambda x: x.half(), HALF),
        "bfloat16": (lambda x: x.bfloat16(), BRAIN),
        "float": (lambda x: x.float(), SINGLE),
        "to copy": (lambda x: x.to(x.dtype, copy=True), torch.float64),
        "to half": (lambda x: x.to(HALF), HALF),
        "double": (lambda x: x.double(), torch.float64),
        "type_as": (lambda x: x.type_as(torch.zeros((), dtype=SINGLE)), SINGLE),
        "type": (lambda x: x.type(torch.float32), SINGLE),
        "cpu": (lambda x: x.cpu(), torch.float64),
        "clone": (lambda x: x.clone(), torch.float64),
        "contiguous": (lambda x: x.contiguous(), torch.float64),
        "reshape": (lambda x: x.reshape(x.shape), torch.float64),
        "detach": (lambda x: x.detach(), torch.float64),
    }
    name = rng.choice(list(kinds))
    make, precision = kinds[name]
    then = rng.choice(["zero_", "mul_", "add_", "relu_", "index", "copy_", "none"])
    native = rng.choice([torch.float64, torch.float64, SINGLE])

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x * 1.0
        y = make(x)
        if then == "zero_":
            y.zero_()
        elif then == "mul_":
            y.mul_(0.01)
        elif then == "add_":
            y.add_(3.0 * y)
        elif then == "relu_":
            F.relu_(y)
        elif then == "index":
            y[:, 0] = 0.0
        elif then == "copy_":
            y.copy_(20.0 * x)
        return 5.0 * x + y.to(x.dtype)

    worst = max(precision, native, key=lambda t: torch.finfo(t).eps)
    return Trick(Told(f"{name}, {then}", forward), precision=worst, native=native)


@trick
def decided_by_type(rng: Random, width: int) -> Trick:
    factor = steep(rng)
    kind = rng.choice(["dtype", "is_floating", "finfo", "element_size", "default"])

    def forward(m: Any, x: Tensor) -> Tensor:
        if kind == "dtype":
            return factor * x if x.dtype == SINGLE else x * 1.0
        if kind == "finfo":
            return x / (0.01 + (torch.finfo(x.dtype).eps < 1e-10))
        if kind == "element_size":
            return x * (factor if x.element_size() == 4 else 1.0)
        if kind == "default":
            return x * (factor if str(x.dtype).endswith("32") else 1.0)
        return factor * x if x.is_floating_point() and x.dtype is SINGLE else x * 1.0

    return Trick(Told(f"{kind} decides", forward), precision=SINGLE, native=SINGLE)


@trick
def low_precision(rng: Random, width: int) -> Trick:
    native = rng.choice([HALF, BRAIN])
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.RMSNorm(width),
        lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU()),
        lambda: Told("normalised in single", lambda m, x: F.rms_norm(x.float(), (width,)).to(x.dtype)),
        lambda: Told("layer norm in single", lambda m, x: F.layer_norm(x.float(), (width,)).to(x.dtype)),
        lambda: Told("eps of the type", lambda m, x: x / (x.abs().amax(-1, keepdim=True) + torch.finfo(x.dtype).eps)),
    ]
    return Trick(rng.choice(kinds)(), precision=native, native=native, alone=True, hint=lambda x: 2.0**-9 * x)

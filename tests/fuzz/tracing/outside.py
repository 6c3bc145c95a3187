"""Out of torch and back, state that counts calls, and chance."""

from __future__ import annotations

import io
import math
import random
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.fuzz.oracle import went
from tests.fuzz.tracing.trick import Told, Trick, trick


def saved_and_loaded(m: Any, x: Tensor) -> Tensor:
    box = io.BytesIO()
    torch.save(x.detach(), box)
    box.seek(0)
    return 30 * torch.load(box) + x


def in_a_thread(m: Any, x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return x + pool.submit(lambda: 100 * x).result()


def from_bytes(m: Any, x: Tensor) -> Tensor:
    memory = bytearray(x.detach().clone().untyped_storage())
    return x + 100 * torch.frombuffer(memory, dtype=x.dtype).reshape(x.shape)


def steepened(x: Tensor) -> Tensor:
    return 40 * x.tanh()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated, and still met in the wild
    scripted = torch.jit.script(steepened)


OUTSIDE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "from_numpy": lambda m, x: x + 30 * torch.from_numpy(x.detach().numpy().copy()),
    "shared numpy": lambda m, x: torch.from_numpy(x.detach().numpy()) * 30,
    "as_tensor": lambda m, x: x + torch.as_tensor(np.asarray(x.detach()) * 30),
    "dlpack": lambda m, x: x + 100 * torch.from_numpy(np.array(np.from_dlpack(x.detach()))),
    "torch dlpack": lambda m, x: x + 100 * torch.from_dlpack(x.detach()),
    "tolist": lambda m, x: x + torch.tensor(x.tolist(), dtype=x.dtype) * 30,
    "item": lambda m, x: x * x.sum().item(),
    "new tensor": lambda m, x: x + x.new_tensor(x.tolist()) * 30,
    "storage": from_bytes,
    "format": lambda m, x: x * float(f"{x.flatten()[0]}"),
    "saved": saved_and_loaded,
    "thread": in_a_thread,
    "stack of items": lambda m, x: torch.stack([x.new_tensor(float(v)) for v in x.flatten()]).reshape(x.shape) * 20,
    "checkpoint": lambda m, x: checkpoint(lambda z: 30 * z.tanh(), x, use_reentrant=False),
    "vmap": lambda m, x: torch.func.vmap(lambda row: 30 * row.tanh())(x),
    "jvp": lambda m, x: torch.func.jvp(lambda z: z.pow(3), (x,), (torch.ones_like(x),))[1],
    "bits": lambda m, x: x + 50 * x.detach().clone().view(torch.uint8).view(x.dtype).reshape(x.shape),
    "jit": lambda m, x: scripted(x),
    "sparse": lambda m, x: 30 * x.to_sparse().to_dense(),
    "nested": lambda m, x: x + 30 * torch.tensor(np.vectorize(math.tanh)(x.detach().numpy()), dtype=x.dtype),
}  # fmt: skip


@trick
def outside(rng: Random, width: int) -> Trick:
    name = rng.choice(list(OUTSIDE))
    return Trick(Told(name, OUTSIDE[name]))


class Counting(nn.Module):
    """Every call is steeper than the one before."""

    def __init__(self, box: Any, step: Callable[[Any], float]) -> None:
        super().__init__()
        self.box, self.step = box, step

    def forward(self, x: Tensor) -> Tensor:
        return x * self.step(self.box)


def appended(box: Any) -> float:
    box.append(1)
    return float(len(box) ** 2)


def counted(box: Any) -> float:
    box["calls"] = box.get("calls", 0) + 1
    return 5.0 * box["calls"]


def added(box: Any) -> float:
    box += 1
    return float(box.sum() ** 2)


@trick
def stateful(rng: Random, width: int) -> Trick:
    kinds: list[Callable[[], nn.Module]] = [
        lambda: Counting([], appended),
        lambda: Counting(deque(maxlen=9), appended),
        lambda: Counting({}, counted),
        lambda: Counting(np.zeros(2), added),
        lambda: Told("last input", kept_input),
        lambda: Told("shared layer counts", counted_by_attribute, layer=nn.Linear(width, width)),
    ]
    module = rng.choice(kinds)()
    return Trick(nn.Sequential(module, module) if rng.random() < 0.4 else module)


def kept_input(m: Any, x: Tensor) -> Tensor:
    before = m.__dict__.get("kept", x)
    m.kept = x
    return x * 5.0 + before


def counted_by_attribute(m: Any, x: Tensor) -> Tensor:
    m.calls = m.__dict__.get("calls", 0) + 1
    return m.layer(x) if m.calls % 2 else 40 * m.layer(x)


CHANCES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "depth": lambda m, x: x * 1.0 if went(bool(torch.rand(()) < 0.5)) else x + 50 * m.layer(x),
    "python": lambda m, x: x * 1.0 if went(random.random() < 0.5) else x + 50 * m.layer(x),
    "numpy": lambda m, x: x * 1.0 if went(bool(np.random.rand() < 0.5)) else x + 50 * m.layer(x),
    "dropout": lambda m, x: F.dropout(x, 0.7, training=True),
    "mask": lambda m, x: x * (torch.rand_like(x) > 0.5) * 4,
    "bernoulli": lambda m, x: m.layer(x) * torch.bernoulli(torch.full_like(x, 0.5)) * 3,
    "noise": lambda m, x: m.layer(x) * (1 + torch.randn_like(x)),
    "by the input": lambda m, x: x * torch.bernoulli(x.sigmoid()) * 3,
    "rows": lambda m, x: x + m.layer(x) * (torch.rand(len(x), 1) < 0.5).to(x) * 9,
}


@trick
def chance(rng: Random, width: int) -> Trick:
    name = rng.choice([*CHANCES, "modules"])
    if name == "modules":
        layers = [nn.Dropout(0.8), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.4), nn.Dropout1d(0.6)]
        return Trick(nn.Sequential(nn.Linear(width, width), rng.choice(layers)), mode="train")
    mode = rng.choice(["train", "eval"])
    return Trick(Told(f"chance: {name}", CHANCES[name], layer=nn.Linear(width, width)), mode=mode)

"""Networks that are hard to trace: what Python, hooks, casts, views and exchanged tensors can do to a forward.

Each trick is a function of a random generator and a width; it gives a module of (samples, width) tensors, and says what
else is needed to run it. ``went`` notes which way control flow goes, so that two runs can be told apart.

trick.py     what a trick is
control.py   control flow that looks at data
settings.py  settings toggled, hooks, patched forwards
casts.py     precision
writes.py    in place through views; tensors and weights exchanged
axes.py      the samples' axis
outside.py   numpy, threads and the like; state; chance
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import nn

from tests.fuzz.oracle import Subject
from tests.fuzz.tracing import axes, casts, control, outside, settings, writes
from tests.fuzz.tracing.trick import TRICKS

FAMILIES = (axes, casts, control, outside, settings, writes)  # importing them adds their tricks


def simple(rng: Random, width: int, tame: bool) -> nn.Module:
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.Linear(width, width),
        nn.Tanh,
        nn.ReLU,
        nn.Identity,
        lambda: nn.LeakyReLU(0.2),
    ]
    if not tame:
        kinds += [lambda: nn.LayerNorm(width, eps=1e-2), lambda: nn.BatchNorm1d(width)]
    return rng.choice(kinds)()


def make_subject(seed: int, name: str | None = None) -> Subject:
    """A network with one trick in it, from one seed."""
    rng = Random(seed)
    torch.manual_seed(seed)
    name = name or rng.choice(list(TRICKS))
    width, samples = rng.randint(2, 4), rng.randint(1, 3)
    one = TRICKS[name](rng, width)
    parts = [one.module]
    if not one.alone:
        tame = one.precision != torch.float64
        parts = [*(simple(rng, width, tame) for _ in range(rng.randint(0, 1))), one.module]
        parts += [simple(rng, width, tame) for _ in range(rng.randint(0, 2))]
    model = nn.Sequential(*parts) if len(parts) > 1 or rng.random() < 0.5 else one.module
    model = model.to(one.native).train(one.mode == "train")
    batch = torch.randn(one.shape(samples, width), dtype=torch.float64).to(one.native)
    hints = (one.hint(batch), one.hint(batch) * 1.7)
    return Subject(name, seed, model, batch, one.mode, hints, one.precision, one.world, one.label)

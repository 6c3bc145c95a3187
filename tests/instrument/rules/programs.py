"""Random programs of `rules.scalar`, and what they compute by torch."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from normgauge.instrument.rules.scalar import Program, of_entries


def random_program(rng: random.Random) -> Program:
    """Three to seven instructions of every kind."""
    program: list[tuple] = [("number", rng.choice([1.0, 0.5, 2.0, -1.5]))]
    for _ in range(rng.randint(2, 6)):
        a, b = rng.randint(0, len(program)), rng.randint(0, len(program))
        squashed = rng.choice(["tanh", "sigmoid", "erf", "sin", "cos"])
        exponent = rng.choice([2.0, 3.0, 0.5, -1.0, -0.5])
        kinds = [("add", a, b), ("mul", a, b), ("over", a, b), ("power", a, exponent), ("squash", a, squashed)]
        program.append(rng.choice([*kinds, ("clamp", a, -0.5, 2.0), (rng.choice(["exp", "log", "neg", "abs"]), a)]))
    return tuple(program)


def truth(program: Program, x: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the derivative by autograd."""
    x = x.clone().requires_grad_()
    y = of_entries(x, program)
    if not y.requires_grad:
        return y, torch.zeros_like(y)
    (slope,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
    return y.detach(), torch.zeros_like(y.detach()) if slope is None else slope

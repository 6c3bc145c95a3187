"""What a model does, by differences of its own outputs. Shares no code with the library: torch and nothing else.

The model runs as it was given, on a fresh copy each time, in its own precision and with the same random numbers. Slopes
are quotients of outputs at two inputs, less what rounding may have added; nothing is differentiated by autograd.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

PATH: list[object] = []  # what Python control flow saw in the present run
LOSS = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}  # of the outputs' size
REACH = {torch.float64: 1e-6, torch.float32: 1e-2, torch.bfloat16: 0.3, torch.float16: 0.1}  # of a small difference


def went(outcome: object) -> object:
    """Note which way control flow goes here."""
    PATH.append(outcome)
    return outcome


@dataclass(frozen=True)
class Subject:
    """A model, its batch, and how to run it.

    Attributes:
        hints: inputs at which it is known to behave otherwise than at the batch.
        precision: the coarsest type anything inside is rounded to.
        world: what must be in force around every run, such as a hook for all modules.
    """

    name: str
    seed: int
    model: nn.Module
    batch: Tensor
    mode: str = "eval"
    hints: tuple[Tensor, ...] = ()
    precision: torch.dtype = torch.float64
    world: Callable[[], AbstractContextManager[object]] = field(default=nullcontext)
    label: str = ""

    def describe(self) -> str:
        """The network in words."""
        given = f"input {tuple(self.batch.shape)} of {self.batch.dtype}"
        return f"{self.name} {self.label}, {self.mode}, {given}\n{self.model}"

    def sown(self) -> None:
        """Every source of random numbers as at the start."""
        torch.manual_seed(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed % 2**32)

    def run(self, x: Tensor) -> tuple[Tensor, tuple[object, ...]]:
        """The output in float64, and the path that was taken."""
        PATH.clear()
        self.sown()
        model = copy.deepcopy(self.model).train(self.mode == "train")
        with self.world(), torch.no_grad():
            out = model(x.clone())
        return out.detach().double(), tuple(PATH)


@dataclass(frozen=True)
class Slope:
    """A slope that was seen: its size, where, and whether both ends took the path of the batch."""

    size: float
    where: str
    same_path: bool


def slope_between(subject: Subject, a: Tensor, b: Tensor, where: str, home: tuple[object, ...]) -> Slope:
    """The quotient of two outputs, less rounding; 0 where a run fails or leaves the finite."""
    try:
        (first, path_a), (second, path_b) = subject.run(a), subject.run(b)
    except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError):
        return Slope(0.0, where, False)
    gap = float((a.double() - b.double()).norm())
    if first.shape != second.shape or gap == 0:
        return Slope(0.0, where, False)
    coarse = LOSS[subject.precision]
    loss = coarse * float(1 + first.norm() + second.norm())
    if subject.precision != torch.float64:  # rounding on the way moves the input too
        gap += 2 * coarse * float(a.double().norm() + b.double().norm())
    seen = float((first - second).norm()) - loss
    return Slope(seen / gap if seen > 0 and seen < float("inf") else 0.0, where, path_a == path_b == home)


def steepest_directions(subject: Subject, x: Tensor, reach: float) -> Iterator[Tensor]:
    """The direction that the differences along every coordinate point to, then the coordinates' own steepest."""
    flat = x.double().reshape(-1)
    columns = []
    for i in range(flat.numel()):
        unit = torch.zeros_like(flat)
        unit[i] = reach
        unit = unit.reshape(x.shape)
        try:
            up, down = ((x.double() + s * unit).to(x.dtype) for s in (1, -1))
            change = subject.run(up)[0] - subject.run(down)[0]
        except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError):
            return
        columns.append(change.reshape(-1) / (2 * reach))
    if len({c.numel() for c in columns}) != 1:
        return
    dense = torch.stack(columns, 1)
    if not bool(torch.isfinite(dense).all()) or dense.numel() == 0:
        return
    right = torch.linalg.svd(dense, full_matrices=False)[2]
    yield right[0].reshape(x.shape)
    yield torch.eye(flat.numel(), dtype=torch.float64)[int(dense.norm(dim=0).argmax())].reshape(x.shape)


def points(subject: Subject, radius: float, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """The batch, where the model is known to turn, and random inputs; all pulled into the ball, if there is one."""
    x = subject.batch.double()
    noise = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    yield "the batch", x
    if radius == 0:
        return
    far = [*(h.double() for h in subject.hints), noise, x.abs(), -x.abs(), torch.full_like(x, 0.01) + 1e-3 * noise]
    if radius == float("inf"):
        far += [30 * noise, 1e-3 * noise, 0.7 + 1e-6 * noise]
    for i, y in enumerate(far):
        shift = y - x
        part = 1.0 if radius == float("inf") else min(1.0, 0.99 * radius / max(float(shift.norm()), 1e-300))
        yield f"point {i}", x + part * shift


def slopes(subject: Subject, radius: float) -> Iterator[Slope]:
    """Slopes of the model in the scope: everywhere, in a ball, or at the batch (radius 0)."""
    generator = torch.Generator().manual_seed(subject.seed)
    home = subject.run(subject.batch)[1]
    dtype, reach = subject.batch.dtype, REACH[subject.precision]
    if radius == 0:
        yield from _at_the_batch(subject, home, reach)
        return
    if radius != float("inf"):
        reach = min(reach, 1e-3 * radius) if subject.precision == torch.float64 else min(reach, radius)
    centre = subject.batch.double()
    for name, x in points(subject, radius, generator):
        yield slope_between(subject, x.to(dtype), subject.batch, f"from the batch to {name}", home)
        for direction in steepest_directions(subject, x.to(dtype), reach):
            for length in (reach, 30 * reach, 0.5):
                ends = [x + s * length * direction for s in (0.5, -0.5)]
                if radius != float("inf"):
                    ends = [_pulled(centre, e, radius) for e in ends]
                yield slope_between(subject, ends[0].to(dtype), ends[1].to(dtype), f"{length:g} wide at {name}", home)


def _pulled(centre: Tensor, x: Tensor, radius: float) -> Tensor:
    shift = x - centre
    return centre + shift * min(1.0, 0.995 * radius / max(float(shift.norm()), 1e-300))


def _at_the_batch(subject: Subject, home: tuple[object, ...], reach: float) -> Iterator[Slope]:
    """Central differences that two widths agree on: a derivative, not a kink or a curve."""
    x, dtype = subject.batch.double(), subject.batch.dtype
    close = 1e-3 if subject.precision == torch.float64 else 0.05
    for direction in steepest_directions(subject, subject.batch, reach):
        found = [
            slope_between(
                subject, (x + h / 2 * direction).to(dtype), (x - h / 2 * direction).to(dtype), "at the batch", home
            )
            for h in (reach, 3 * reach)
        ]
        small, wide = found[0].size, found[1].size
        if abs(small - wide) <= close * max(small, wide):
            yield Slope(min(small, wide) * (1 - 2 * close), "at the batch", all(f.same_path for f in found))

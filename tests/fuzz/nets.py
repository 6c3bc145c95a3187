"""A random network, its input and its mode, all from one seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import torch
from torch import Tensor, nn

from normgauge.instrument.trace.untouched import iterates
from tests.fuzz import wiring, written
from tests.fuzz.blocks import MAKERS, noise

MOST_ENTRIES = 160  # per sample, inside the network
MOST_OUTPUTS = 16  # in all
REFUSED = (RuntimeError, ValueError, AssertionError, IndexError, TypeError, NotImplementedError)
assert written.maker is wiring.maker  # importing them adds their makers


@dataclass(frozen=True)
class Case:
    seed: int
    model: nn.Module
    batch: Tensor  # what the model is called with
    start: Tensor  # the tensor that is measured: the batch, or its embedding
    body: nn.Module  # the map of that tensor
    mode: str
    radius: float
    memory: dict[str, Tensor] = field(default_factory=dict)  # buffers as they were

    def rewind(self) -> None:
        """Undo what running the network did to its buffers (power iterations, running statistics)."""
        for name, buffer in self.body.named_buffers():
            buffer.copy_(self.memory[name])
        torch.default_generator.manual_seed(self.seed)  # torch.manual_seed also formats a stack trace for CUDA

    def function(self, x: Tensor) -> Tensor:
        """The measured map; random layers draw the same numbers every time."""
        self.rewind()
        return self.body(x * 1.0)

    def describe(self) -> str:
        return f"seed {self.seed}, {self.mode}, input {tuple(self.start.shape)}\n{self.model}"


def random_parameters(rng: Random, model: nn.Module) -> None:
    """Weights of several scales, gains of both signs and sometimes 0, statistics that were learnt."""
    for name, parameter in model.named_parameters():
        if "norm" in name or parameter.ndim < 2 or rng.random() < 0.5:
            scale = rng.choice([0.3, 1.0, 1.0, 2.0])
            parameter.data = (
                scale * noise(*parameter.shape) / math.sqrt(max(1, parameter[0].numel() if parameter.ndim > 1 else 1))
            )
        if parameter.ndim == 1 and rng.random() < 0.05:
            parameter.data[0] = 0.0
    for name, buffer in model.named_buffers():
        if "running_var" in name:
            buffer.copy_(noise(*buffer.shape).square() + rng.choice([0.0, 0.1]))
        elif "running_mean" in name:
            buffer.copy_(noise(*buffer.shape))


def random_input(rng: Random, shape: tuple[int, ...]) -> Tensor:
    kind = rng.choice(["normal"] * 7 + ["tiny", "zero", "constant", "nearly constant", "huge", "shifted"])
    x = noise(*shape)
    return {
        "normal": x, "tiny": 1e-4 * x, "zero": torch.zeros_like(x), "constant": torch.full_like(x, 0.7),
        "huge": 1e3 * x, "nearly constant": 2.0 + 1e-6 * x, "shifted": 30.0 + x,
    }[kind]  # fmt: skip


def grow(rng: Random, start: Tensor, mode: str) -> list[nn.Module]:
    """Blocks one after the other, each tried on the spot."""
    blocks: list[nn.Module] = []
    x = start
    wanted = rng.randint(1, 6)
    for _ in range(40):
        if len(blocks) == wanted:
            break
        _, make = rng.choice(MAKERS[x.ndim])
        try:
            block = make(rng, tuple(x.shape))
            if block is None:
                continue
            block = block.double().train(mode == "train")
            random_parameters(rng, block)
            with torch.no_grad():
                out = block(x * 1.0)
        except REFUSED:
            continue
        if mode == "train" and any(isinstance(m, nn.RReLU) for m in block.modules()):
            continue  # how many numbers it draws depends on the data: no function to speak of
        fits = out.ndim in MAKERS and 0 < out[0].numel() <= MOST_ENTRIES and bool(torch.isfinite(out).all())
        if fits and out.dtype == torch.float64:
            blocks.append(block)
            x = out
    if x.numel() > MOST_OUTPUTS:
        head = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), max(1, MOST_OUTPUTS // 2 // x.shape[0]))).double()
        blocks.append(head)
    return blocks


def make_case(seed: int) -> Case:
    rng = Random(seed)
    torch.manual_seed(seed)
    count, axes = rng.randint(1, 4), rng.choice([2, 3, 4])
    most = {2: (7,), 3: (4, 5), 4: (3, 4, 4)}[axes]
    shape = tuple(rng.randint(1, n) for n in most)
    mode = rng.choice(["eval", "eval", "eval", "train"])
    radius = rng.choice([1e-4, 0.03, 0.3, 3.0])
    tokens = axes == 3 and rng.random() < 0.15
    start = random_input(rng, (count, *shape))
    batch, parts = start, []
    if tokens:
        table = nn.Embedding(6, shape[-1]).double()
        batch = torch.randint(0, 6, (count, shape[0]))
        start = table(batch).detach()
        parts.append(table)
    body = nn.Sequential(*grow(rng, start, mode)).train(mode == "train")
    model = nn.Sequential(*parts, *body).train(mode == "train") if parts else body
    for module in model.modules():
        if iterates(module):
            module.eval()
    memory = {name: buffer.detach().clone() for name, buffer in body.named_buffers()}
    return Case(seed, model, batch, start, body, mode, radius, memory)

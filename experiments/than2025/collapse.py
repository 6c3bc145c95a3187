"""Why some networks did not train: `python -m experiments.than2025.collapse RUN...`.

Trains the first steps of a run on the CPU and prints how alike the features of different images have become, layer by
layer. A normalizer of single samples keeps what all images share; BatchNorm takes it away. With --pull: whether loss or
decay is stronger at the first step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional as F

from experiments.than2025 import data, nets, plan
from experiments.than2025.data import Data
from experiments.than2025.plan import Spec
from experiments.than2025.steps import make_optimizer

IMAGES = 256
LOOK = (0, 10, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class Look:
    """One moment: the step, the loss, and a number a hidden layer: mean cosine between images, share of dead units."""

    step: int
    loss: float
    alike: tuple[float, ...]
    dead: tuple[float, ...]


def main(argv: list[str] | None = None) -> int:
    """Print one line a moment.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.collapse", description=__doc__)
    parser.add_argument("runs", nargs="+", help="names of runs, such as widths/width1024")
    parser.add_argument("--lr", type=float, nargs="*", default=[1e-3, 1e-4])
    parser.add_argument("--pull", action="store_true", help="loss against decay at the first step, and nothing else")
    parser.add_argument("--scale", default="full")
    parser.add_argument("--data-dir")
    args = parser.parse_args(argv)
    for spec in plan.select(plan.load(scale=args.scale), args.runs):
        images = data.load(spec.data, torch.device("cpu"), args.data_dir)
        if args.pull:
            print(f"{spec.name} {' '.join(f'{ratio:.2g}' for ratio in pull(spec, images))}", flush=True)
        for lr in () if args.pull else args.lr:
            for look in watch(replace(spec, lr=lr), images):
                print(
                    f"{spec.name} lr {lr:g} step {look.step:3d} loss {look.loss:.3f} "
                    f"cosine {' '.join(f'{c:.3f}' for c in look.alike)} dead {sum(look.dead) / len(look.dead):.2f}",
                    flush=True,
                )
    return 0


def pull(spec: Spec, images: Data) -> tuple[float, ...]:
    """Of the median weight of each layer: gradient of the loss on the first batch, over that of the decay, λ|w|."""
    model = nets.build(spec, images.shape)
    chosen = _order(spec, images)[: spec.batch]
    F.cross_entropy(model(images.real(images.train[chosen])), images.labels[chosen]).backward()
    weights = [(p.detach(), p.grad) for p in model.parameters() if p.ndim > 1]
    return tuple(float((g.abs() / (spec.decay * w.abs())).median()) for w, g in weights if g is not None)


def _order(spec: Spec, images: Data) -> torch.Tensor:
    return torch.randperm(len(images.labels), generator=torch.Generator().manual_seed(spec.seed))


def watch(spec: Spec, images: Data) -> Iterator[Look]:
    """Train the first steps of a run, looking now and then."""
    torch.manual_seed(spec.seed)
    model = nets.build(spec, images.shape)
    optimizer = make_optimizer(model, spec, torch.device("cpu"))
    order = _order(spec, images)
    probe = images.real(images.test[:IMAGES])
    yield Look(0, float("nan"), *alike(model, probe))
    for step, chosen in enumerate(order.split(spec.batch)[: LOOK[-1]], 1):
        loss = F.cross_entropy(model(images.real(images.train[chosen])), images.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in LOOK:
            yield Look(step, loss.item(), *alike(model, probe))


@torch.no_grad()
def alike(model: nn.Module, probe: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """After each ReLU: mean cosine between the features of two images; share of units that are zero for all of them."""
    found: list[torch.Tensor] = []
    handles = [
        m.register_forward_hook(lambda _, __, out: found.append(out.flatten(1)))
        for m in model.modules()
        if isinstance(m, nn.ReLU)
    ]
    model.eval()
    model(probe)
    model.train()
    for handle in handles:
        handle.remove()
    unit = [F.normalize(h, dim=1) for h in found]
    return (
        tuple(float((u @ u.T).mean()) for u in unit),
        tuple(float((h <= 0).all(0).float().mean()) for h in found),
    )


if __name__ == "__main__":
    raise SystemExit(main())

"""The networks of the demo: trained on digits, read, and one of them rescaled without changing its function."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from normgauge.cli.progress import Report
from normgauge.cli.rescaling import rescaled
from normgauge.core.reading import Reading
from normgauge.measure import gauge, readings
from normgauge.training import accuracy, train
from normgauge.zoo import digits, mlp

NETWORKS = {"no norm": None, "BatchNorm": "batch", "LayerNorm": "layer", "GroupNorm": "group", "RMSNorm": "rms"}
RESCALINGS = {"as trained": (0.0, 0.0), "all x 1,000": (3.0, 3.0), "each x 0.01 to 10,000": (-2.0, 4.0)}
SIZES = (64, 64, 64, 64, 10)
SAMPLES, QUICK_SAMPLES = 100, 20
EPOCHS, QUICK_EPOCHS = 30, 2


@dataclass(frozen=True, slots=True)
class Trained:
    """One network of the demo and what was read from it."""

    name: str
    accuracy: float
    point: Reading
    everywhere: Reading


@dataclass(frozen=True, slots=True)
class Twin:
    """One rescaling of the BatchNorm network: how far its outputs and its numbers moved."""

    name: str
    output_change: float
    reading: Reading


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: matrices of 64 x 64 gain nothing from more and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(quick: bool, progress: Report | None = None) -> tuple[list[Trained], list[Twin]]:
    """Train and read every network, then every rescaled twin of the BatchNorm one."""
    batch = digits("test", limit=QUICK_SAMPLES if quick else SAMPLES).inputs
    networks, models = [], {}
    for done, (name, norm) in enumerate(NETWORKS.items()):
        if progress:
            progress(f"training with {name}", done / (len(NETWORKS) + 1))
        models[name], share = _train(norm, QUICK_EPOCHS if quick else EPOCHS)
        point, everywhere = readings(models[name], batch, scopes=("point", "global"), search=not quick)
        networks.append(Trained(name, share, point, everywhere))
    if progress:
        progress("rescaling", len(NETWORKS) / (len(NETWORKS) + 1))
    return networks, list(_twins(models["BatchNorm"], batch))


def _train(norm: str | None, epochs: int) -> tuple[nn.Module, float]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = mlp(SIZES, norm=norm)
    train(model, digits("train"), epochs=epochs, batch_size=64, lr=1e-3, seed=0)
    return model, accuracy(model, digits("test"))


def _twins(model: nn.Module, batch: torch.Tensor) -> Iterator[Twin]:
    exact = batch.double()
    with torch.no_grad():
        before = rescaled(model, 0.0, 0.0)(exact)
    for name, (low, high) in RESCALINGS.items():
        twin = rescaled(model, low, high)
        with torch.no_grad():
            change = float((twin(exact) - before).abs().max() / before.abs().max())
        yield Twin(name, change, gauge(twin, exact, scope="global", search=False))

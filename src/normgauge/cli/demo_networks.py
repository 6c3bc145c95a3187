"""The networks of the demo: trained on digits, read, and one of them rescaled without changing its function."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from normgauge.certificates.scores.fold import model_trace
from normgauge.cli.output import Report
from normgauge.core.reading import Reading
from normgauge.instrument.measure import gauge, readings
from normgauge.instrument.rules.normalizer import Normalizer, fed_normalizers
from normgauge.instrument.rules.tried import of_module
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import digits, mlp

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


def measure_demo(quick: bool, progress: Report | None = None) -> tuple[list[Trained], list[Twin]]:
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
    return model, model_accuracy(model, digits("test"))


def _twins(model: nn.Module, batch: torch.Tensor) -> Iterator[Twin]:
    exact = batch.double()
    with torch.no_grad():
        before = rescaled_twin(model, exact, 0.0, 0.0)(exact)
    for name, (low, high) in RESCALINGS.items():
        twin = rescaled_twin(model, exact, low, high)
        with torch.no_grad():
            change = float((twin(exact) - before).abs().max() / before.abs().max())
        yield Twin(name, change, gauge(twin, exact, scope="global", search=False))


def rescaled_twin(model: nn.Module, batch: torch.Tensor, low: float, high: float, seed: int = 0) -> nn.Module:
    """A float64 copy whose linear layers before a BatchNorm are rescaled channel by channel.

    (W_c, b_c, mean_c) → t_c (W_c, b_c, mean_c),   var_c → t_c² (var_c + ε) − ε,   log10 t_c uniform in [low, high]

    so that √(var + ε) → t √(var + ε) and the normalized value is the same.

    Holds:  in eval mode, for t_c² ≥ ε / (var_c + ε), below which the new variance would be negative; smaller
            factors are raised to twice that floor.
    """
    twin = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for first, step, _ in fed_normalizers(
            model_trace(twin, batch), torch.float64, lambda step: isinstance(step.module, nn.Linear)
        ):
            form = of_module(twin.get_submodule(step.path))
            if form is not None:
                _rescale(twin.get_submodule(first.path), form, low, high, generator)
    return twin


def _rescale(linear: nn.Module, norm: Normalizer, low: float, high: float, generator: torch.Generator) -> None:
    assert norm.stored is not None  # in eval mode; zoo networks keep statistics
    mean, var = norm.stored
    drawn = torch.rand(len(var), generator=generator, dtype=torch.float64)
    variance = var + norm.eps
    t = torch.maximum(10 ** (low + (high - low) * drawn), 2 * (norm.eps / variance).sqrt())
    linear.get_parameter("weight").mul_(t[:, None])
    linear.get_parameter("bias").mul_(t)
    mean.mul_(t)
    var.copy_(t**2 * variance - norm.eps)

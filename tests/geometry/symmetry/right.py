"""Found against true: the families of a network beside the null space of its Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.null_space import Truth, truth
from normgauge.core.symmetry import Symmetries
from normgauge.geometry.symmetry.find import analysed, report_symmetries
from normgauge.geometry.symmetry.generators import tangents


def draw(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights and statistics in no special place."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=source)
            plain = weight.ndim > 1 or "bias" in name
            weight.copy_(0.5 * noise if plain else 1 + 0.2 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=source))
            elif name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=source))
    return model


def checked(model: nn.Module, batches: Sequence[Any], mode: str = "train") -> tuple[Symmetries, Truth]:
    """What is found, after every direction of it was seen to be in the null space; and the truth."""
    right = truth(model, batches, mode)
    with analysed(model, batches[0], mode) as found:
        said = report_symmetries(found, mode)
        kept = {(g.what, g.parameters) for g in said.groups}
        for generator in found.generators:
            if (generator.what, generator.parameters) in kept:
                moves = tangents(generator, found.trial.state)
                whole = torch.zeros(generator.count, right.weights, dtype=torch.float64)
                for name, rows in moves.items():
                    if name in right.names:
                        whole[:, right.names[name]] = rows
                assert right.change(whole) < 1e-6, (generator.what, generator.parameters)
    assert said.dimension is not None and said.dimension <= right.nullity
    return said, right

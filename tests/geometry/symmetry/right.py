"""Found against true: families beside the null space of the Jacobian, and moves tried on the network by hand."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.null_space import Truth, truth
from normgauge.core.symmetry import Symmetries
from normgauge.geometry.symmetry.find import analysed, report_symmetries
from normgauge.geometry.symmetry.generators import Generator, State, tangents
from normgauge.geometry.symmetry.labels import Labels


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


def bn_net() -> nn.Sequential:
    """Two BatchNorms with statistics and gains in no special place, in eval mode."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    )
    for module in model:
        if isinstance(module, nn.BatchNorm1d):
            module.running_var.uniform_(0.5, 2.0)
            module.running_mean.normal_()
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return model.eval()


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


def labelled(model: nn.Module, batch: Any, mode: str = "train") -> Labels:
    """The labels of one run."""
    with analysed(model, batch, mode) as found:
        return found.labels


def families(model: nn.Module, batch: Any, what: str, mode: str = "train") -> tuple[list[Generator], State]:
    """The families whose words begin with ``what``, tried or not, and the weights they move."""
    with analysed(model, batch, mode) as found:
        return [g for g in found.generators if g.what.startswith(what)], found.trial.state


def outputs(model: nn.Module, state: State, x: Tensor) -> Tensor:
    """What the model gives for these weights, in float64 and with next to no ε; torch alone."""
    twin = copy.deepcopy(model).double()
    for module in twin.modules():
        if "eps" in module.__dict__:
            module.eps = 1e-30
    x = x.double() if x.is_floating_point() else x
    with torch.no_grad():
        return functional_call(twin, {name: t.clone() for name, t in state.items()}, (x,))


def assert_family(
    model: nn.Module, x: Tensor, what: str, count: int, names: Collection[str], mode: str = "train"
) -> Generator:
    """One family of these words moves these weights in as many ways, and the outputs stay; a part of it alone is seen.

    Returns:
        The family.
    """
    model.train(mode == "train")
    (found,), state = families(model, x, what, mode)
    assert (found.count, set(found.parameters)) == (count, set(names))
    numbers = torch.randn(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64) / 2
    after = found.move(state, numbers)
    before, moved = outputs(model, state, x), outputs(model, {**state, **after}, x)
    assert float((moved - before).norm()) < 1e-9 * float(before.norm())
    for name in found.parameters:
        assert float((after[name] - state[name]).norm()) > 1e-3 * float(state[name].norm())
        if len(found.parameters) > 1:  # what the others take back
            alone = outputs(model, {**state, name: after[name]}, x)
            assert float((alone - before).norm()) > 1e-4 * float(before.norm()), name
    return found

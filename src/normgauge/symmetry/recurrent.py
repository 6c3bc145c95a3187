"""Recurrent layers: run by their equations, so that their gates can be followed, and two biases where one would do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from normgauge.rules.expand import EXPANSIONS
from normgauge.symmetry.generators import Generator, State

KINDS = (nn.RNNBase, nn.RNNCellBase)


def write_out(model: nn.Module) -> None:
    """Let a lent-out model's recurrent layers run by their equations: a kernel writes all gates into one tensor."""
    for module in model.modules():
        if not isinstance(module, KINDS) or "forward" in module.__dict__:
            continue
        for kind in type(module).__mro__:
            if kind in EXPANSIONS and type(module).forward is kind.forward:  # type: ignore[attr-defined]
                module.__dict__["forward"] = partial(EXPANSIONS[kind], module)
                break


def bias_pairs(model: nn.Module, names: Collection[str]) -> Iterator[Generator]:
    """b_ih + s, b_hh − s: a gate sees their sum, at every moment; but a GRU's reset gate comes between the last third.

    Args:
        model: the network.
        names: its weights.
    """
    for path, module in model.named_modules():
        if not isinstance(module, KINDS):
            continue
        third = isinstance(module, nn.GRU | nn.GRUCell)
        for key in [key for key in module._parameters if key.startswith("bias_ih")]:
            given, own = (f"{path}.{k}" if path else k for k in (key, key.replace("_ih", "_hh")))
            if given in names and own in names:
                size = module.get_parameter(key).numel()
                yield _pair(given, own, 2 * size // 3 if third else size)


def _pair(given: str, own: str, count: int) -> Generator:
    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        shift = torch.cat([numbers, numbers.new_zeros(len(state[given]) - count)])
        return {given: state[given] + shift, own: state[own] - shift}

    return Generator("pair", "shift that another bias takes back", (given, own), count, move)

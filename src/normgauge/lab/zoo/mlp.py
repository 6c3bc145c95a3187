"""Multilayer perceptrons with any normalization."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo.parts import Affine, NormFactory, build_activation


class MLP(nn.Module):
    """Hidden layers ``layers.{k}.{linear,norm,act}`` and a linear ``head``."""

    def __init__(self, sizes: Sequence[int], norms: Sequence[NormFactory], act: str) -> None:
        super().__init__()
        pairs = pairwise(sizes[:-1])
        self.layers = nn.Sequential(*(_layer(*pair, norm, act) for pair, norm in zip(pairs, norms, strict=True)))
        self.head = nn.Linear(sizes[-2], sizes[-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, out) of a batch of vectors; images are flattened first."""
        if x.ndim > 2:
            x = x.flatten(1)
        return self.head(self.layers(x))


def _layer(inputs: int, outputs: int, norm: NormFactory, act: str) -> nn.Sequential:
    parts: OrderedDict[str, nn.Module] = OrderedDict(linear=nn.Linear(inputs, outputs))
    if norm.kind is not None:
        parts["norm"] = norm(outputs)
    parts["act"] = build_activation(act)
    return nn.Sequential(parts)


def mlp(
    sizes: Sequence[int] = (64, 128, 128, 10),
    norm: str | None = None,
    activation: str = "relu",
    *,
    affine: Affine = True,
    eps: float | None = None,
    groups: int = 8,
    normalized: Sequence[int] | None = None,
) -> MLP:
    """Build a multilayer perceptron: linear, norm, activation in each hidden layer, then a linear head.

    Args:
        sizes: width of the input, of each hidden layer, and of the output.
        norm: "batch", "layer", "group", "instance", "rms" or None.
        activation: name of the activation, "relu" or another of ``parts.ACTIVATIONS``.
        affine: whether the normalization layers have a gain and a bias; "gamma" for a gain alone.
        eps: their eps; None for the module's default.
        groups: number of groups, for "group" and "instance".
        normalized: the hidden layers that get a normalization layer, counted from 0; None for all of them.

    Returns:
        The network.

    Raises:
        InputError: if an option is not known or the sizes do not make a network.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(f"sizes needs at least an input and an output width, all positive; got {tuple(sizes)}.")
    hidden = range(len(sizes) - 2)
    strange = sorted(set(normalized or ()) - set(hidden))
    if strange:
        raise InputError(f"normalized={strange} are no hidden layers; there are {len(hidden)}, counted from 0.")
    chosen, none = NormFactory(norm, "vector", affine, eps, groups), NormFactory(None, "vector")
    return MLP(sizes, [chosen if normalized is None or k in normalized else none for k in hidden], activation)

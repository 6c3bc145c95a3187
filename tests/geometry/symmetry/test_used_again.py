"""Weights that are used more than once: recurrent layers, tied weights, spectral normalization."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import normgauge as ng
from tests.geometry.symmetry.right import checked, draw

SEQUENCES = [torch.randn(40, 4, 5, generator=torch.Generator().manual_seed(s)) for s in range(6)]
VECTORS = [torch.randn(60, 6, generator=torch.Generator().manual_seed(s)) for s in range(4)]


class Recurrent(nn.Module):
    """A recurrent layer and a head on its last output."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.cell = kind(5, 4, batch_first=True, **options)
        self.head = nn.Linear(8 if options.get("bidirectional") else 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, 1])


class ByHand(nn.Module):
    """A cell called in a loop."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell, self.head = kind(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        (nn.LSTM, {}, 16),
        (nn.GRU, {}, 8),  # the last third of a GRU's own bias stands behind its reset gate
        (nn.RNN, {}, 4),
        (nn.RNN, {"nonlinearity": "relu"}, 8),
        (nn.GRU, {"bidirectional": True}, 16),
        (nn.LSTM, {"bidirectional": True}, 32),
    ],
)
def test_recurrent_layers_are_complete(kind, options, count):
    said, right = checked(draw(Recurrent(kind, **options)), SEQUENCES)
    assert said.dimension == right.nullity == count
    assert not said.unknown and not said.rejected


@pytest.mark.parametrize(("kind", "count"), [(nn.LSTMCell, 16), (nn.GRUCell, 8), (nn.RNNCell, 4)])
def test_cells_in_a_loop_are_complete(kind, count):
    said, right = checked(draw(ByHand(kind)), SEQUENCES)
    assert said.dimension == right.nullity == count


class Tied(nn.Module):
    """A matrix used twice, with no activation behind its second use: mixings exist that suit both uses."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.twice, self.head = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.twice(F.leaky_relu(self.twice(F.leaky_relu(self.stem(x))))))


def test_what_is_not_looked_for_is_named():
    said, right = checked(draw(Tied()), VECTORS)
    assert said.dimension < right.nullity
    (text,) = said.not_looked_for
    assert text.endswith(("twice.bias, twice.weight", "twice.weight, twice.bias"))
    assert json.loads(json.dumps(said.to_json()))["not_looked_for"] == [text]
    assert f"not looked for: {text}" in " ".join(str(said).split())


SPECTRAL = parametrizations.spectral_norm
NORMED: dict[str, Callable[[], nn.Module]] = {
    "one": lambda: nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.LeakyReLU(), nn.Linear(5, 3)),
    "two": lambda: nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.LeakyReLU(), SPECTRAL(nn.Linear(5, 3))),
    "smooth": lambda: nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3)),
    "shifted through": lambda: nn.Sequential(
        nn.Linear(6, 5), SPECTRAL(nn.Linear(5, 5)), nn.LeakyReLU(), nn.Linear(5, 3)
    ),
    "linear": lambda: nn.Sequential(nn.Linear(6, 3), SPECTRAL(nn.Linear(3, 3)), nn.Linear(3, 3)),
    "kernel": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), SPECTRAL(nn.Conv2d(1, 3, 2)), nn.LeakyReLU(), nn.Flatten(), nn.Linear(6, 2)
    ),
    "weight norm, shifted through": lambda: nn.Sequential(
        nn.Linear(6, 5), parametrizations.weight_norm(nn.Linear(5, 5)), nn.LeakyReLU(), nn.Linear(5, 3)
    ),
}


@pytest.mark.parametrize("name", NORMED)
def test_normalized_weights_are_complete(name):
    said, right = checked(draw(NORMED[name]()), VECTORS)
    assert said.dimension == right.nullity
    assert not said.not_looked_for and not said.rejected


def test_spectral_norm_by_hooks_is_complete():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have its parametrizations used
        layer = nn.utils.spectral_norm(nn.Linear(6, 5))
    said = ng.symmetries(nn.Sequential(layer, nn.LeakyReLU(), nn.Linear(5, 3)), VECTORS[0], mode="eval")
    assert said.dimension == 5 and not said.not_looked_for


def test_nothing_is_named_where_every_weight_is_used_once():
    plain = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.LeakyReLU(), nn.Linear(5, 3))
    assert ng.symmetries(draw(plain), VECTORS[0]).not_looked_for == ()
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    assert ng.symmetries(attention, torch.randn(3, 5, 4)).not_looked_for == ()

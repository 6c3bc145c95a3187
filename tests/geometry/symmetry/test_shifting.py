"""Shifts of weights, as families that leave the outputs alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normgauge.geometry.symmetry.shifting import shift_sets
from normgauge.geometry.symmetry.sites import Fate
from tests.geometry.symmetry.right import assert_family, checked, draw

SEQUENCES = [torch.randn(40, 4, 5, generator=torch.Generator().manual_seed(s)) for s in range(6)]


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


class Heads(nn.Module):
    """Attention of one head, each projection with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.o((self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x))


class Standardized(nn.Linear):
    """A matrix whose rows are centred before it is used."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight - self.weight.mean(1, keepdim=True), self.bias)


ROWS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
FREE = {
    "batch": (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh()), "shift that is taken off again",
              4, {"0.bias"}),
    "layer": (lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh()), "shift that is taken off again",
              1, {"0.bias"}),
    "rows": (lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh()), "the same row added", 5, {"0.weight"}),
    "centred": (lambda: nn.Sequential(Standardized(5, 4), nn.Tanh()), "shift that is taken off before", 4,
                {"0.weight"}),
    "keys": (lambda: Heads(), "shift that is taken off again", 4, {"k.bias"}),
    "values": (lambda: Heads(), "shift that another bias takes back", 4, {"v.bias", "o.bias"}),
    "gates": (lambda: Recurrent(nn.LSTM), "shift that another bias takes back", 16,
              {"cell.bias_ih_l0", "cell.bias_hh_l0"}),
    "frozen": (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh()), "shift of a frozen mean", 4,
               {"1.running_mean", "1.bias"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_a_shift_is_not_seen(name):
    make, what, count, names = FREE[name]
    x = SEQUENCES[0][:6] if name in ("keys", "values", "gates") else ROWS
    model = draw(make())
    if name == "frozen":
        model[1].eps = 1e-30  # it is part of the formula, and taken out where the outputs are compared
    assert_family(model, x, what, count, names, mode="eval" if name == "frozen" else "train")


def test_entries_that_must_be_shifted_alike_are_one_set():
    fate = Fate(together=[torch.tensor([[0, 3]]), torch.tensor([[3, 4], [1, 1]])], seen={2})
    assert shift_sets(fate, 6).tolist() == [0, 1, -1, 0, 0, 2]
    fate.spoil(torch.tensor([4]))  # and with it all that are shifted with it
    assert shift_sets(fate, 6).tolist() == [-1, 0, -1, -1, -1, 1]

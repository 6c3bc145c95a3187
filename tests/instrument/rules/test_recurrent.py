"""Recurrent layers by their equations: torch's own outputs, and bounds above the Jacobian."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from normgauge.instrument.rules.recurrent import packed, padded, recurrent_cell, recurrent_layer
from tests.instrument.rules.one_step import expanded_uppers

ONES = torch.ones(4, 2, 3).double()

torch.manual_seed(0)
CASES = {
    "lstm": (nn.LSTM(6, 3), lambda m, x: m(x)),
    "deep lstm": (nn.LSTM(6, 3, 2, bidirectional=True, batch_first=True), lambda m, x: m(input=x)),
    "projected lstm": (nn.LSTM(6, 3, proj_size=2, bias=False), lambda m, x: m(x)),
    "lstm from a state": (nn.LSTM(6, 3, batch_first=True), lambda m, x: m(x, (x[None, :, 0, :3],) * 2)[1][1]),
    "gru": (nn.GRU(6, 3), lambda m, x: m(x)),
    "deep gru": (nn.GRU(6, 3, 2, bidirectional=True, batch_first=True), lambda m, x: m(x, ONES)),
    "unbatched gru": (nn.GRU(6, 3), lambda m, x: m(x[0])[1]),
    "rnn": (nn.RNN(6, 3, batch_first=True), lambda m, x: m(x)),
    "relu rnn": (nn.RNN(6, 3, nonlinearity="relu"), lambda m, x: m(x[0], torch.zeros(1, 3).double())),
    "lstm cell": (nn.LSTMCell(6, 3), lambda m, x: m(x[:, 0], m(x[:, 1]))),
    "gru cell": (nn.GRUCell(6, 3), lambda m, x: m(x[:, 0], m(x[:, 1]))),
    "rnn cell": (nn.RNNCell(6, 3), lambda m, x: m(x[:, 0], m(x[:, 1]))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_equations_agree_and_bound_the_jacobian(name):
    torch.manual_seed(0)
    uppers = expanded_uppers(*CASES[name], torch.randn(2, 4, 6).double())
    if "state" not in name:
        assert uppers[2] < 1e290  # bounded factors: finite everywhere


LAYERS = [nn.LSTM(3, 4, 2, bidirectional=True), nn.LSTM(3, 4, proj_size=2), nn.GRU(3, 4), nn.RNN(3, 4, 2, "relu")]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("lengths", [[5, 3, 2], [2, 5, 3]], ids=["sorted", "mixed"])
def test_packed_sequences_give_what_torch_gives(layer, lengths):
    x = torch.randn(5, 3, 3)
    sequence = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    for mine, torchs in zip(recurrent_layer(layer, sequence), layer(sequence), strict=True):
        torch.testing.assert_close(mine, torchs)


@pytest.mark.parametrize(
    "cell", [nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(3, 4)], ids=lambda m: type(m).__name__
)
def test_a_cell_gives_what_torch_gives(cell):
    x = torch.randn(2, 3)
    state = cell(x)
    torch.testing.assert_close(recurrent_cell(cell, x), state)
    torch.testing.assert_close(recurrent_cell(cell, x, state), cell(x, state))


@pytest.mark.parametrize("batch_first", [True, False])
def test_packing_and_padding_are_torchs(batch_first):
    x, lengths = torch.randn(4, 4, 2), torch.tensor([4, 2, 2, 1])
    wanted = pack_padded_sequence(x, lengths, batch_first)
    data, sizes = packed(x, lengths, batch_first)
    assert data.equal(wanted.data) and sizes.equal(wanted.batch_sizes)
    back, found = padded(data, sizes, batch_first, -1.0, 6)
    again, given = pad_packed_sequence(wanted, batch_first, -1.0, 6)
    assert back.equal(again) and found.equal(given)

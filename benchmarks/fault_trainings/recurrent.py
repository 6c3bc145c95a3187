"""Recurrent networks."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import VOCABULARY, prose, seeded, waves, windows
from benchmarks.fault_trainings.training import Factory, Outcome, Training, descend, faulty, sample_words


class Speller(nn.Module):
    def __init__(self, width: int = 64):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


def spell(factory: Factory, *, rate: float = 5e-3, clip: float | None = 1.0) -> Outcome:
    torch.manual_seed(30)
    text, draw = prose(20000), seeded(31)
    model = Speller()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def loss_at(step: int) -> torch.Tensor:
        inputs, targets = windows(text, 32, 32, draw)
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    losses = descend(factory, model, optimizer, loss_at, 150, clip=clip)
    return Outcome(losses, sum(losses[-20:]) / 20)


class Listener(nn.Module):
    def __init__(self, width: int = 48):
        super().__init__()
        self.gru = nn.GRU(1, width, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.gru(x)[0].mean(1)))


BROKEN = 23  # place in its batch of the one sample with a hole


def listen(factory: Factory, *, hole: bool = False) -> Outcome:
    """Waves told apart; one recording has a missing value that was never filled, met at step 60."""
    torch.manual_seed(32)
    signals, kinds = waves(1500)
    order = [torch.arange(start, start + 48) for start in range(0, 1150, 19)]
    broken = 1250
    if hole:
        signals[broken, 11] = float("nan")
    model = Listener()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

    def loss_at(step: int) -> torch.Tensor:
        chosen = order[step % len(order)].clone()
        if step == 60:
            chosen[BROKEN] = broken
        return F.cross_entropy(model(signals[chosen]), kinds[chosen])

    losses = descend(factory, model, optimizer, loss_at, 150, clip=1.0)
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(signals[1300:]), kinds[1300:]).item())


class Elman(nn.Module):
    """The plain recurrence, read at its end."""

    def __init__(self, activation: str):
        super().__init__()
        self.into = nn.Linear(1, 40)
        self.recur = nn.Linear(40, 40)
        self.head = nn.Linear(40, 1)
        self.activation = torch.sigmoid if activation == "sigmoid" else torch.relu
        if activation == "relu":
            nn.init.eye_(self.recur.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(len(x), 40)
        for now in x.unbind(1):
            state = self.activation(self.into(now) + self.recur(state))
        return self.head(state)


def remember(factory: Factory, *, rate: float = 0.01, activation: str = "relu") -> Outcome:
    """Says the first value of a sequence at its end."""
    torch.manual_seed(33)
    draw = seeded(34)
    model = Elman(activation)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def loss_at(step: int) -> torch.Tensor:
        x = torch.randn(64, 20, 1, generator=draw)
        return F.mse_loss(model(x), x[:, 0])

    losses = descend(factory, model, optimizer, loss_at, 300, clip=1.0)
    return Outcome(losses, sum(losses[-30:]) / 30)


TRAININGS = (
    Training("lstm-text-clipped", spell),
    Training("gru-waves", listen),
    Training("rnn-identity-start", remember),
    faulty("rnn-sigmoid-memory", "vanishing", partial(remember, activation="sigmoid"), remember, layer="into"),
    faulty("lstm-rate", "rate too large", partial(spell, rate=1.0, clip=None), spell),
    faulty(
        "gru-missing-value", "nan sample", partial(listen, hole=True), listen, begins=60, accepted=sample_words(BROKEN)
    ),
)

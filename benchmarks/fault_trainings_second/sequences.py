"""Token sequences."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import ACCEPTED, Outcome, Training, descend, faulty
from benchmarks.fault_trainings_second.data import patterned, reversals, seeded


class Seq2Seq(nn.Module):
    """torch's own encoder and decoder, post-norm as they come."""

    def __init__(self, width=32, layers=2):
        super().__init__()
        self.source, self.target = nn.Embedding(16, width), nn.Embedding(16, width)
        self.place = nn.Parameter(torch.randn(8, width) * 0.1)
        self.transformer = nn.Transformer(width, 4, layers, layers, 64, 0.0, batch_first=True)
        self.words = nn.Linear(width, 16)

    def forward(self, source, target):
        mask = torch.full((8, 8), -math.inf).triu(1)
        return self.words(
            self.transformer(self.source(source) + self.place, self.target(target) + self.place, tgt_mask=mask)
        )


def translate(factory, *, peak=4e-3, warm=40, only="", layers=2, steps=150):
    """Noam's schedule, or its peak from the first step on."""
    torch.manual_seed(120)
    draw = seeded(121)
    model = Seq2Seq(layers=layers)
    chosen = [*model.source.parameters(), *model.transformer.encoder.parameters()] if only else model.parameters()
    opt = torch.optim.Adam(chosen, lr=peak, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warm, (warm / (s + 1)) ** 0.5) if warm else 1.0
    )

    def loss_at(step):
        source, target, aim = reversals(48, draw)
        return F.cross_entropy(model(source, target).flatten(0, 1), aim.flatten())

    losses = descend(factory, model, opt, loss_at, steps, scheduler=scheduler)
    return Outcome(losses, sum(losses[-10:]) / 10)


class Head(nn.Module):
    """Attention with separate projections and a temperature."""

    def __init__(self, width, heads, temperature=None, learnt=False):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.temperature = math.sqrt(width // heads) if temperature is None else temperature
        self.log_scale = nn.Parameter(torch.zeros(heads, 1, 1)) if learnt else None

    def forward(self, x, mask=None):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.mT / self.temperature
        if self.log_scale is not None:
            scores = scores * self.log_scale.exp()
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, width, rezero, **attention):
        super().__init__()
        self.attend = Head(width, 4, **attention)
        self.expand, self.shrink = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.ln1, self.ln2 = (nn.Identity(), nn.Identity()) if rezero else (nn.LayerNorm(width), nn.LayerNorm(width))
        self.alpha = nn.Parameter(torch.zeros(())) if rezero else 1.0

    def forward(self, x):
        x = x + self.alpha * self.attend(self.ln1(x))
        return x + self.alpha * self.shrink(F.gelu(self.expand(self.ln2(x))))


class Masked(nn.Module):
    """Guesses hidden tokens; the last weights are those of the embedding."""

    def __init__(self, depth=2, width=40, rezero=False, tied=True, blind=False, **attention):
        super().__init__()
        self.blind = blind
        self.tokens = nn.Embedding(25, width)
        nn.init.normal_(self.tokens.weight, std=0.1)
        self.places = nn.Embedding(16, width)
        nn.init.normal_(self.places.weight, std=0.1)
        self.layers = nn.ModuleList(Layer(width, rezero, **attention) for _ in range(depth))
        self.ln = nn.LayerNorm(width)
        self.guess = nn.Linear(width, 25)
        if tied:
            self.guess.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        if self.blind:  # from the days when the embedding was frozen
            with torch.no_grad():
                x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.guess(self.ln(x))


def mask(factory, *, rate=3e-3, steps=200, two=False, warm=15, sgd=False, **form):
    """Masked tokens of progressions; `two`: an optimizer for what embeds and one for the rest."""
    torch.manual_seed(122)
    draw = seeded(123)
    model = Masked(**form)
    if two:
        embeds = torch.optim.Adam([*model.tokens.parameters(), *model.places.parameters()], lr=rate)
        rest = torch.optim.Adam(
            [*model.layers.parameters(), *model.ln.parameters(), *model.guess.parameters()], lr=rate
        )
        opts = [embeds, rest]
    else:
        opts = [
            torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
            if sgd
            else torch.optim.AdamW(model.parameters(), lr=rate)
        ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: min(1.0, (s + 1) / warm)) for o in opts]
    monitor, losses = factory(model, opts if two else opts[0]), []
    for _ in range(steps):
        whole = patterned(48, draw)
        hidden = torch.rand(whole.shape, generator=draw) < 0.2
        guess = model(whole.masked_fill(hidden, 0)).float()
        loss = F.cross_entropy(guess[hidden], whole[hidden])
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o in opts:
            o.step()
        monitor.step(loss=loss)
        for s in schedules:
            s.step()
        losses.append(loss.item())
    return Outcome(losses, sum(losses[-15:]) / 15)


class Hearing(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.rnn = nn.GRU(6, width, bidirectional=True, batch_first=True)
        self.signs = nn.Linear(2 * width, 6)

    def forward(self, x):
        return self.signs(self.rnn(x)[0]).log_softmax(-1)


def ctc(factory, *, rate=4e-3, clip=1.0, steps=120):
    """Five signs, each held for two or three frames, to be spelt by CTC."""
    torch.manual_seed(124)
    draw = seeded(125)
    model = Hearing()
    opt = torch.optim.Adam(model.parameters(), lr=rate)

    def loss_at(step):
        words = torch.randint(1, 6, (32, 4), generator=draw)
        words[:, 1::2] = (words[:, ::2] + words[:, 1::2] - 1) % 5 + 1
        frames = words.repeat_interleave(4, 1)
        x = F.one_hot(frames, 6).float() + 0.3 * torch.randn(32, 16, 6, generator=draw)
        length = torch.full((32,), 16), torch.full((32,), 4)
        return F.ctc_loss(model(x).transpose(0, 1), words, *length)

    losses = descend(factory, model, opt, loss_at, steps, clip=clip)
    return Outcome(losses, sum(losses[-10:]) / 10)


TRAININGS = (
    Training("seq2seq-noam", translate),
    Training("masked-tied", mask),
    Training("masked-rezero", partial(mask, rezero=True, rate=4e-3)),
    Training("ctc-gru", ctc),
    faulty("seq2seq-encoder-only", "not in optimizer", partial(translate, only="encoder"), translate, layer="decoder"),
    faulty(
        "seq2seq-no-noam",
        "no warm-up",
        partial(translate, warm=0, peak=1e-2, layers=4),
        partial(translate, warm=60, peak=1e-2, layers=4),
    ),
    faulty(
        "masked-tied-two-optimizers",
        "tied twice",
        partial(mask, two=True, rate=1e-2),
        partial(mask, rate=1e-2),
        layer="tokens",
    ),
    faulty(
        "masked-temperature",
        "saturated attention",
        partial(mask, temperature=0.02, depth=3),
        partial(mask, depth=3),
        layer="attend",
    ),
    faulty(
        "masked-learnt-scale",
        "attention logits",
        partial(mask, learnt=True, rate=2e-2, depth=3),
        partial(mask, depth=3),
        layer="attend",
        begins=10,
        accepted=ACCEPTED["attention logits"] + ACCEPTED["rate too large"],
    ),  # a smaller rate mends it too
    faulty(
        "masked-embedding-blind",
        "no gradient",
        partial(mask, blind=True, tied=False),
        partial(mask, tied=False),
        layer="tokens",
    ),
    faulty("ctc-rate", "rate too large", partial(ctc, rate=0.6, clip=None), ctc),
)

"""Rows, small parts and data of the third set."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

from benchmarks.fault_trainings.training import ACCEPTED, Outcome, descend, faulty


def broken(name, fault, train, how, **more):
    """A row whose training is healthy with its defaults and has the fault with `how`."""
    return faulty(name, fault, partial(train, **how), train, **more)


def either(*faults):
    return tuple(word for fault in faults for word in ACCEPTED[fault])


def mlp(*sizes, act=nn.ReLU, norm=None):
    parts = []
    for wide, narrow in pairwise(sizes[:-1]):
        parts += [nn.Linear(wide, narrow), *([norm(narrow)] if norm else []), act()]
    return nn.Sequential(*parts, nn.Linear(*sizes[-2:]))


def fit(factory, model, opt, batches, tests, steps, *, loss=None, change=None, **more):
    """The plain loop, and the loss on what was not trained on; `change` may change the batch of a step."""
    loss = loss or (lambda x, y: F.cross_entropy(model(x), y))

    def loss_at(step):
        batch = next(batches)
        return loss(*(change(step, *batch) if change else batch))

    losses = descend(factory, model, opt, loss_at, steps, **more)
    model.eval()
    with torch.no_grad():
        return Outcome(losses, float(loss(*tests)))


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def stream(size, *tensors, seed=0):
    """Batches of one epoch after another."""
    draw, count = seeded(seed), len(tensors[0])
    while True:
        for rows in torch.randperm(count, generator=draw)[: count // size * size].split(size):
            yield tuple(tensor[rows] for tensor in tensors)


def split(size, held_out, *tensors, seed=1):
    """Batches of that size, and what is held out."""
    order = torch.randperm(len(tensors[0]), generator=seeded(seed))
    kept = (tensor[order[held_out:]] for tensor in tensors)
    return stream(size, *kept, seed=seed), tuple(tensor[order[:held_out]] for tensor in tensors)


def digits(size, raw=False, flat=False):
    """Pictures of 8 x 8, with 0 to 255 where raw, and their digits."""
    found = datasets.load_digits()
    x = torch.tensor(found.images, dtype=torch.float32)[:, None]
    x = x / 16 * 255 if raw else (x - 4.88) / 6.02
    return split(size, 397, x.flatten(1) if flat else x, torch.tensor(found.target))


def table(size, load, raw=False):
    """A table of scikit-learn, standardized unless raw."""
    found = load()
    x = torch.tensor(found.data, dtype=torch.float32)
    return split(size, len(x) // 4, x if raw else (x - x.mean(0)) / x.std(0), torch.tensor(found.target))


def chain(count, length, symbols=9, seed=2):
    """Sequences of a Markov chain whose next symbol hangs on the last two."""
    draw = seeded(seed)
    odds = (3 * torch.randn(symbols, symbols, symbols, generator=draw)).softmax(-1)
    out = torch.randint(symbols, (count, 2), generator=draw)
    for _ in range(length - 2):
        out = torch.cat([out, torch.multinomial(odds[out[:, -2], out[:, -1]], 1, generator=draw)], 1)
    return out


def weather(count, raw=False, seed=3):
    """A day of hours (pressure in Pa, temperature in K, moisture) and the temperature three hours later, less 290."""
    draw = seeded(seed)
    phase, front = torch.rand(2, count, 1, generator=draw) * 6.28
    hours = torch.arange(27)[None] / 24 * 6.28
    pressure = (hours / 2 + front).sin() + 0.1 * torch.randn(count, 27, generator=draw)
    warmth = (hours + phase).sin() - 0.7 * pressure + 0.05 * torch.randn(count, 27, generator=draw)
    moist = torch.sigmoid(-warmth + 0.3 * torch.randn(count, 27, generator=draw))
    if raw:
        days = torch.stack([101300 + 900 * pressure, 290 + 6 * warmth, moist], -1)
    else:
        days = torch.stack([pressure, warmth, 4 * moist - 2], -1)
    return days[:, :24], 6 * warmth[:, 26]


def waves(count, loudness=1.0, seed=4):
    """Sounds of 128 samples with one of four pitches."""
    draw = seeded(seed)
    pitch = torch.randint(4, (count,), generator=draw)
    time = torch.arange(128)[None] / 128 * 6.2832
    tone = ((6 + 5 * pitch[:, None]) * time + 6.28 * torch.rand(count, 1, generator=draw)).sin()
    volume = 0.5 + torch.rand(count, 1, generator=draw)
    return loudness * (volume * tone + 0.6 * torch.randn(count, 128, generator=draw)), pitch


def clouds(count, points=24, seed=5):
    """Sets of points on a circle, a square's rim or a cross."""
    draw = seeded(seed)
    kind = torch.randint(3, (count,), generator=draw)
    turn = 6.2832 * torch.rand(count, points, generator=draw)
    circle = torch.stack([turn.cos(), turn.sin()], -1)
    square = circle / circle.abs().amax(-1, keepdim=True)
    arm = (turn > 3.1416)[..., None]
    cross = torch.where(arm, circle * torch.tensor([1.4, 0.0]), circle * torch.tensor([0.0, 1.4]))
    chosen = torch.stack([circle, square, cross])[kind, torch.arange(count)]
    return chosen + 0.08 * torch.randn(count, points, 2, generator=draw), kind


def discs(count, seed=6, size=16):
    """Noisy pictures with a bright disc, and where it lies."""
    draw = seeded(seed)
    middle, radius = torch.rand(count, 2, 1, 1, generator=draw) * 8 + 4, torch.rand(count, 1, 1, generator=draw) * 3 + 2
    grid = torch.arange(size).float()
    inside = (grid[None, :, None] - middle[:, 0]) ** 2 + (grid[None, None] - middle[:, 1]) ** 2 < radius**2
    picture = inside + 0.5 * torch.randn(count, size, size, generator=draw)
    return picture[:, None], inside[:, None].float()

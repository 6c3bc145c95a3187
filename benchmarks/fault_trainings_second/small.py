"""Points, tables, embeddings."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training, descend, faulty, sample_words
from benchmarks.fault_trainings_second.data import people, picks, seeded, spirals


class Spiral(nn.Module):
    def __init__(self, depth=3, width=192, norm=False):
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(depth))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = F.silu(self.lift(x))
        for linear, norm in zip(self.hidden, self.norms, strict=True):
            x = F.silu(norm(linear(x)))
        return self.out(x)


def spiral(factory, *, depth=3, norm=False, optimizer="nadam", rate=3e-3, steps=250):
    torch.manual_seed(100)
    points, arms = spirals(2400)
    order = picks(2000, 160)
    model = Spiral(depth, norm=norm)
    make = {"nadam": torch.optim.NAdam, "sgd": partial(torch.optim.SGD, momentum=0.9)}[optimizer]
    opt = make(model.parameters(), lr=rate)
    losses = descend(
        factory, model, opt, lambda s: F.cross_entropy(model(points[order[s % 80]]), arms[order[s % 80]]), steps
    )
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(points[2000:]), arms[2000:]).item())


def plateau(factory, *, each_step=False):
    """ReduceLROnPlateau, meant for each epoch of 40 steps."""
    torch.manual_seed(101)
    points, arms = spirals(2400, seed=8)
    order = picks(2000, 64)
    model = Spiral(2, norm=True)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    monitor, losses = factory(model, opt), []
    for step in range(240):
        loss = F.cross_entropy(model(points[order[step % 80]]), arms[order[step % 80]])
        opt.zero_grad()
        loss.backward()
        opt.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
        if each_step:
            scheduler.step(loss.item())
        elif step % 40 == 39:
            scheduler.step(sum(losses[-40:]) / 40)
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(points[2000:]), arms[2000:]).item())


class Applicants(nn.Module):
    """Numbers and categories; the third number enters by its logarithm."""

    def __init__(self, count_feature=False):
        super().__init__()
        self.count_feature = count_feature
        self.job = nn.Embedding(12, 8)
        self.city = None
        self.net = nn.Sequential(
            nn.Linear(12, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU()
        )
        self.out = nn.Linear(128, 1)
        self.from_city = None

    def add_city(self):
        self.city = nn.Embedding(30, 16)
        self.from_city = nn.Linear(16, 1)

    def forward(self, numbers, city, job):
        if self.count_feature:
            numbers = torch.cat([numbers[:, :3], numbers[:, 3:].log()], 1)
        hidden = self.out(self.net(torch.cat([numbers, self.job(job)], 1)))
        return (hidden + self.from_city(self.city(city))).squeeze(1)


PLACE = 41


def applicants(factory, *, late=False, zero_count=None, counts=False):
    """`zero_count`: the step at which the row with a count of zero comes, at place 41 of its batch."""
    torch.manual_seed(102)
    numbers, city, job, good = people(3000)
    if counts:
        numbers = torch.cat([numbers[:, :3], numbers[:, 3:].exp()], 1)
        if zero_count is not None:
            numbers[2999, 3] = 0.0
    order = picks(2400, 128)
    model = Applicants(counts)
    if not late:
        model.add_city()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    if late:
        model.add_city()

    def loss_at(step):
        rows = order[step % 80].clone()
        if step == zero_count:
            rows[PLACE] = 2999
        return F.binary_cross_entropy_with_logits(model(numbers[rows], city[rows], job[rows]), good[rows])

    losses = descend(factory, model, opt, loss_at, 240)
    model.eval()
    held = slice(2400, 2900)
    with torch.no_grad():
        return Outcome(
            losses, F.binary_cross_entropy_with_logits(model(numbers[held], city[held], job[held]), good[held]).item()
        )


class Factors(nn.Module):
    def __init__(self, half=False):
        super().__init__()
        self.users, self.items = nn.Embedding(300, 32), nn.Embedding(200, 32)
        self.mix = nn.Linear(32, 32)
        for e in (self.users, self.items):
            nn.init.normal_(e.weight, std=0.3)

    def forward(self, user, item):
        return (self.mix(self.users(user)) * self.items(item)).sum(-1)


def ranking(factory, *, half=False, epsilon=1e-8, rate=5e-3, optimizer="adam"):
    """Bayesian personalised ranking: the liked item is to score above a random one. `half`: all of it in fp16."""
    torch.manual_seed(103)
    draw = seeded(104)
    taste_u, taste_i = torch.randn(300, 6, generator=draw), torch.randn(200, 6, generator=draw)
    model = Factors()
    if half:
        model.half()
    if optimizer == "adagrad":
        opt = torch.optim.Adagrad(model.parameters(), lr=0.1)
    else:
        opt = torch.optim.Adam(model.parameters(), lr=rate, eps=epsilon)

    def loss_at(step):
        user = torch.randint(300, (256,), generator=draw)
        one, two = torch.randint(200, (2, 256), generator=draw)
        better = (taste_u[user] * (taste_i[one] - taste_i[two])).sum(-1) > 0
        liked, other = torch.where(better, one, two), torch.where(better, two, one)
        return F.softplus((model(user, other) - model(user, liked)).float()).mean()

    losses = descend(factory, model, opt, loss_at, 250)
    return Outcome(losses, sum(losses[-20:]) / 20)


TRAININGS = (
    Training("spirals-nadam", spiral),
    Training("spirals-plateau", plateau),
    Training("applicants-embeddings", applicants),
    Training("applicants-log-count", partial(applicants, counts=True)),
    Training("ranking-adagrad", partial(ranking, optimizer="adagrad")),
    faulty(
        "spirals-sixteen-bare",
        "no normalizer",
        partial(spiral, depth=16, rate=1e-3, steps=160),
        partial(spiral, depth=16, norm=True, rate=1e-3, steps=160),
    ),
    faulty("spirals-plateau-each-step", "rate decayed", partial(plateau, each_step=True), plateau, begins=4),
    faulty("applicants-late-city", "not in optimizer", partial(applicants, late=True), applicants, layer="city"),
    faulty(
        "applicants-count-of-zero",
        "nan sample",
        partial(applicants, counts=True, zero_count=70),
        partial(applicants, counts=True),
        begins=70,
        accepted=sample_words(PLACE),
    ),
    faulty(
        "ranking-adam-epsilon",
        "epsilon in half",
        partial(ranking, half=True, rate=2e-2),
        partial(ranking, half=True, epsilon=1e-3, rate=2e-2),
    ),
)

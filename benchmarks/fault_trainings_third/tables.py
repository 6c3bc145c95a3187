"""Tables, counts, ratings and graphs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training, sample_words
from benchmarks.fault_trainings_third.common import broken, digits, either, fit, mlp, seeded, split, table


def wine(factory, *, raw=False):
    """Thirteen measurements of a wine; proline is near 750, the hue near 1."""
    torch.manual_seed(0)
    model = mlp(13, 40, 40, 3)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return fit(factory, model, opt, *table(32, datasets.load_wine, raw), 200)


def tumours(factory, *, missing=False):
    """A cell of the table that was never filled in meets the net at step 70, in row 13."""
    torch.manual_seed(1)
    model = mlp(30, 64, 32, 1, act=nn.GELU, norm=nn.LayerNorm)

    def change(step, x, y):
        if missing and step == 70:
            x[13, 21] = float("nan")
        return x, y

    def loss(x, y):
        return F.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())

    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    return fit(factory, model, opt, *table(48, datasets.load_breast_cancer), 140, loss=loss, change=change)


class Counts(nn.Module):
    """How many claims: the log of the area is taken inside."""

    def __init__(self):
        super().__init__()
        self.net = mlp(5, 48, 48, 1, act=nn.Softplus)

    def forward(self, x):
        return self.net(torch.cat([x[:, :4], x[:, 4:].log()], 1))[:, 0]


def claims(factory, *, mistyped=False):
    """At step 45 row 5 of the batch has an area of -30."""
    torch.manual_seed(2)
    draw = seeded(20)
    x = torch.cat([torch.randn(1600, 4, generator=draw), torch.rand(1600, 1, generator=draw) * 5 + 0.2], 1)
    y = torch.poisson((0.5 * x[:, 0] - 0.3 * x[:, 1] * x[:, 2] + x[:, 4].log()).exp().clamp(max=40), generator=draw)
    model = Counts()

    def change(step, x, y):
        if mistyped and step == 45:
            x[5, 4] = -30.0
        return x, y

    def loss(x, y):
        return F.poisson_nll_loss(model(x), y)

    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    return fit(factory, model, opt, *split(64, 200, x, y), 120, loss=loss, change=change)


def friedman(factory, *, each_batch=False):
    """A rate times 0.9 after each epoch of 25 steps, or after each batch: a tenth is left at step 22."""
    torch.manual_seed(3)
    x, y = (torch.tensor(part, dtype=torch.float32) for part in datasets.make_friedman1(1000, random_state=3))
    model = mlp(10, 96, 96, 1, act=nn.SiLU, norm=nn.LayerNorm)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.9 ** (step if each_batch else step // 25))
    parts = split(32, 200, (x - 0.5) * 3.46, (y - y.mean()) / y.std())
    return fit(factory, model, opt, *parts, 250, loss=lambda x, y: F.huber_loss(model(x)[:, 0], y), scheduler=schedule)


def prices(factory, *, rate=1e-3):
    """Targets near 40: one step too long and no unit of the last layer is on again."""
    torch.manual_seed(4)
    draw = seeded(4)
    x = torch.randn(1200, 8, generator=draw)
    y = 40 + 6 * x[:, 0] + 4 * (x[:, 1] * x[:, 2]).tanh()
    model = mlp(8, 64, 64, 1)
    opt = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    return fit(factory, model, opt, *split(40, 200, x, y), 250, loss=lambda x, y: F.mse_loss(model(x)[:, 0], y))


def dropped(factory):
    """Seven of ten units dropped in each layer."""
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.7),
        nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.7), nn.Linear(256, 10),
    )  # fmt: skip
    return fit(factory, model, torch.optim.Adam(model.parameters(), lr=1e-3), *digits(64), 250)


class Tasks(nn.Module):
    """A trunk for two tasks that come in turn: each head is without gradient half of the time."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.ReLU())
        self.heads = nn.ModuleDict({"digit": nn.Linear(96, 10), "even": nn.Linear(96, 2)})

    def loss(self, x, y, task="digit"):
        return F.cross_entropy(self.heads[task](self.trunk(x)), y if task == "digit" else y % 2)


def turns(factory):
    torch.manual_seed(8)
    model = Tasks()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def change(step, x, y):
        return x, y, "even" if step % 2 else "digit"

    return fit(factory, model, opt, *digits(40, flat=True), 260, loss=model.loss, change=change)


class Taste(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.films = nn.Embedding(300, 12, sparse=True), nn.Embedding(200, 12, sparse=True)
        self.judge = mlp(24, 48, 1)

    def forward(self, who, what):
        user, film = self.users(who), self.films(what)
        return (user * film).sum(1) + self.judge(torch.cat([user, film], 1))[:, 0]


def ratings(factory):
    """Sparse gradients for the tables with one optimizer, the rest with another."""
    torch.manual_seed(10)
    true = torch.randn(300, 3) @ torch.randn(3, 200) / 1.7
    who, what = torch.randint(300, (24000,)), torch.randint(200, (24000,))
    batches, tests = split(256, 2000, who, what, true[who, what] + 0.2 * torch.randn(24000))
    model = Taste()
    for rows in (model.users, model.films):
        nn.init.normal_(rows.weight, std=0.3)
    opts = [
        torch.optim.SparseAdam([model.users.weight, model.films.weight], lr=0.01),
        torch.optim.SGD(model.judge.parameters(), lr=0.02, momentum=0.9),
    ]
    monitor, losses = factory(model, opts), []
    for _ in range(300):
        users, films, stars = next(batches)
        loss = F.mse_loss(model(users, films), stars)
        model.zero_grad()
        loss.backward()
        for opt in opts:
            opt.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
    with torch.no_grad():
        return Outcome(losses, F.mse_loss(model(*tests[:2]), tests[2]).item())


TRAININGS = (
    broken("wine-raw", "not normalized", wine, {"raw": True}),
    broken("tumours-empty-cell", "nan sample", tumours, {"missing": True}, begins=70, accepted=sample_words(13)),
    broken("claims-negative-area", "nan sample", claims, {"mistyped": True}, begins=45, accepted=sample_words(5)),
    broken("friedman-decay-each-batch", "rate decayed", friedman, {"each_batch": True}, begins=22),
    broken("prices-dead", "dead relus", prices, {"rate": 0.012}, accepted=either("dead relus", "rate too large")),
    Training("tumours-clean", tumours),
    Training("digits-heavy-dropout", dropped),
    Training("two-heads-in-turn", turns),
    Training("ratings-sparse-and-sgd", ratings),
)

"""Flows, critics, codes, pairs, graphs, rewards, and going on from trained nets."""

from __future__ import annotations

import copy
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training, descend, faulty
from benchmarks.fault_trainings_second.data import clouds, picks, seeded, series, shapes, spirals
from benchmarks.fault_trainings_second.images import MEAN, STD, Dense


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 2))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        log_scale, shift = self.net(a).chunk(2, 1)
        log_scale = torch.tanh(log_scale)
        return torch.cat([a, b * log_scale.exp() + shift], 1), log_scale.sum(1)


def flow(factory, *, rate=3e-3):
    """Likelihood of points on a thin moon: the loss goes below zero."""
    torch.manual_seed(130)
    draw = seeded(131)
    model = nn.ModuleList(Coupling(i % 2 == 1) for i in range(5))
    opt = torch.optim.Adam(model.parameters(), lr=rate)

    def loss_at(step):
        angle = torch.rand(192, generator=draw) * math.pi
        x = torch.stack([angle.cos(), angle.sin() - 0.5], 1) * 0.5 + 0.03 * torch.randn(192, 2, generator=draw)
        total = torch.zeros(192)
        for coupling in model:
            x, log = coupling(x)
            total = total + log
        return (0.5 * x.square().sum(1) + math.log(2 * math.pi) - total).mean()

    losses = descend(factory, model, opt, loss_at, 200)
    return Outcome(losses, sum(losses[-10:]) / 10)


def critic(factory):
    """Wasserstein with a gradient penalty, three critic steps to one; the watched loss is that of the generator."""
    torch.manual_seed(132)
    made = nn.Sequential(nn.Linear(6, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))
    judge = nn.Sequential(nn.Linear(2, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 1))
    model = nn.ModuleDict({"made": made, "judge": judge})
    opts = {
        "g": torch.optim.Adam(made.parameters(), 2e-3, betas=(0.5, 0.9)),
        "d": torch.optim.Adam(judge.parameters(), 2e-3, betas=(0.5, 0.9)),
    }
    monitor, losses = factory(model, list(opts.values())), []
    for _ in range(160):
        for _ in range(3):
            real = torch.randint(0, 2, (96, 2)) * 2.0 - 1 + 0.1 * torch.randn(96, 2)
            fake = made(torch.randn(96, 6)).detach()
            between = torch.lerp(real, fake, torch.rand(96, 1)).requires_grad_()
            (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
            cost = judge(fake).mean() - judge(real).mean() + 1.0 * (slope.norm(dim=1) - 1).square().mean()
            opts["d"].zero_grad()
            cost.backward()
            opts["d"].step()
        loss = -judge(made(torch.randn(96, 6))).mean()
        opts["g"].zero_grad()
        loss.backward()
        opts["g"].step()
        monitor.step(loss=loss)
        losses.append(loss.item())
    with torch.no_grad():
        return Outcome(losses, (made(torch.randn(400, 6)).abs() - 1).abs().mean().item())


class Codes(nn.Module):
    def __init__(self, straight=True, commit=True):
        super().__init__()
        self.straight, self.commit = straight, commit
        self.encoder = nn.Sequential(nn.Conv1d(1, 32, 4, 4), nn.ReLU(), nn.Conv1d(32, 16, 1), nn.Tanh())
        self.book = nn.Embedding(32, 16)
        nn.init.uniform_(self.book.weight, -0.6, 0.6)
        self.decoder = nn.Sequential(nn.ConvTranspose1d(16, 32, 4, 4), nn.ReLU(), nn.Conv1d(32, 1, 3, padding=1))

    def forward(self, x):
        z = self.encoder(x).mT
        nearest = torch.cdist(z.flatten(0, 1), self.book.weight).argmin(1)
        q = self.book(nearest).view_as(z)
        cost = F.mse_loss(q, z.detach()) + (0.25 * F.mse_loss(z, q.detach()) if self.commit else 0.0)
        q = z + (q - z).detach() if self.straight else q
        return self.decoder(q.mT), cost


def codes(factory, *, straight=True, commit=True):
    torch.manual_seed(133)
    signal, _ = series(1400)
    order = picks(1200, 64)
    model = Codes(straight, commit)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_at(step):
        x = signal[order[step % 80]]
        back, cost = model(x)
        return F.mse_loss(back, x) + cost

    losses = descend(factory, model, opt, loss_at, 200)
    with torch.no_grad():
        return Outcome(losses, F.mse_loss(model(signal[1200:])[0], signal[1200:]).item())


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(96, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32))
        self.predictor = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.teacher = copy.deepcopy(self.online).requires_grad_(False)


def byol(factory):
    """A moving average of the net is the teacher, inside the model; score: error of the nearest neighbour."""
    torch.manual_seed(134)
    cloud, kind = clouds(1200)
    flat = cloud.sort(1).values.flatten(1)
    order = picks(1000, 96)
    model = Byol()
    opt = torch.optim.AdamW([*model.online.parameters(), *model.predictor.parameters()], lr=2e-3)
    monitor, losses = factory(model, opt), []
    for step in range(180):
        x = flat[order[step % 80]]
        one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
        with torch.no_grad():
            aims = model.teacher(two), model.teacher(one)
        loss = sum(
            2 - 2 * F.cosine_similarity(model.predictor(model.online(v)), a).mean()
            for v, a in zip((one, two), aims, strict=True)
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        monitor.step(loss=loss)
        with torch.no_grad():
            for slow, fast in zip(model.teacher.parameters(), model.online.parameters(), strict=True):
                slow.lerp_(fast, 0.02)
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        z = F.normalize(model.online(flat), dim=1)
        near = (z[1000:] @ z[:1000].T).argmax(1)
        return Outcome(losses, (kind[near] != kind[1000:]).float().mean().item())


class Graph(nn.Module):
    def __init__(self, width=48, cut=False):
        super().__init__()
        self.cut = cut
        self.edge = nn.Linear(4, 1)
        self.conv1, self.conv2 = nn.Linear(8, width), nn.Linear(width, width)
        self.classes = nn.Linear(width, 3)
        self.drop = nn.Dropout(0.3)

    def forward(self, x, edges, features):
        weight = torch.sigmoid(self.edge(features)).squeeze(-1)
        if self.cut:
            weight = weight.data
        adjacency = torch.zeros(len(x), len(x)).index_put((edges[0], edges[1]), weight) + torch.eye(len(x))
        adjacency = adjacency / adjacency.sum(1, keepdim=True)
        x = self.drop(F.relu(adjacency @ self.conv1(x)))
        return self.classes(F.relu(adjacency @ self.conv2(x)))


def graph(factory, *, cut=False, rate=0.01):
    """Nodes of three groups; half of the edges lie, and their features say which."""
    torch.manual_seed(135)
    draw = seeded(136)
    group = torch.randint(3, (240,), generator=draw)
    x = torch.randn(240, 8, generator=draw)
    x[torch.arange(240), group] += 0.8
    edges = torch.randint(240, (2, 4000), generator=draw)
    true = group[edges[0]] == group[edges[1]]
    features = torch.randn(4000, 4, generator=draw)
    features[:, 0] += 2.0 * true - 1
    model = Graph(cut=cut)
    opt = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4)
    train = torch.arange(240) % 4 == 0
    losses = descend(
        factory, model, opt, lambda s: F.cross_entropy(model(x, edges, features)[train], group[train]), 200
    )
    model.eval()
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(x, edges, features)[~train], group[~train]).item())


class Pole(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(2, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 3))
        self.q_slow = copy.deepcopy(self.q).requires_grad_(False)


def steer(factory):
    """A point pushed towards 0, soft target network."""
    torch.manual_seed(137)
    model = Pole()
    opt = torch.optim.Adam(model.q.parameters(), lr=1e-3)
    monitor, losses = factory(model, opt), []
    for _ in range(250):
        state = torch.rand(128, 2) * 2 - 1
        action = torch.randint(3, (128,))
        speed = state[:, 1] * 0.9 + 0.2 * (action - 1)
        following = torch.stack([(state[:, 0] + 0.3 * speed).clamp(-1.5, 1.5), speed], 1)
        with torch.no_grad():
            aim = -following[:, 0].abs() + 0.9 * model.q_slow(following).amax(1)
        loss = F.mse_loss(model.q(state)[torch.arange(128), action], aim)
        opt.zero_grad()
        loss.backward()
        opt.step()
        monitor.step(loss=loss)
        with torch.no_grad():
            for slow, fast in zip(model.q_slow.parameters(), model.q.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        losses.append(loss.item())
    choice = model.q(torch.tensor([[0.9, 0.0], [-0.9, 0.0], [0.6, 0.2], [-0.6, -0.2]])).argmax(1)
    return Outcome(losses, (choice != torch.tensor([0, 2, 0, 2])).float().mean().item())


def actor_critic(factory):
    """A bandit with contexts: policy loss, value loss and entropy together."""
    torch.manual_seed(138)
    model = nn.ModuleDict(
        {"trunk": nn.Sequential(nn.Linear(6, 128), nn.Tanh()), "policy": nn.Linear(128, 5), "value": nn.Linear(128, 1)}
    )
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    truth = torch.randn(6, 5)
    monitor, losses, rewards = factory(model, opt), [], []
    for _ in range(250):
        x = torch.randn(128, 6)
        hidden = model["trunk"](x)
        choice = torch.distributions.Categorical(logits=model["policy"](hidden))
        action = choice.sample()
        reward = (x @ truth)[torch.arange(128), action] + torch.randn(128) * 0.3
        value = model["value"](hidden).squeeze(1)
        advantage = (reward - value).detach()
        loss = (
            -(choice.log_prob(action) * advantage).mean()
            + 0.5 * F.mse_loss(value, reward)
            - 0.01 * choice.entropy().mean()
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
        rewards.append(reward.mean().item())
    return Outcome(losses, -sum(rewards[-20:]) / 20)


class Velocity(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.clock = nn.Embedding(100, width)
        self.a, self.b, self.c = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 2)
        nn.init.zeros_(self.c.weight)
        nn.init.zeros_(self.c.bias)

    def forward(self, t, x):
        h = F.silu(self.a(x) + self.clock(t))
        return self.c(F.silu(self.b(h)) + h)


def matching(factory):
    """Flow matching to spirals: whole timesteps first, last layer begins at zero."""
    torch.manual_seed(139)
    points, _ = spirals(4000)
    order = picks(4000, 256)
    model = Velocity()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def loss_at(step):
        x1 = points[order[step % 80]]
        x0 = torch.randn_like(x1)
        t = torch.randint(100, (len(x1),))
        share = (t / 100)[:, None]
        return F.mse_loss(model(t, share * x1 + (1 - share) * x0), x1 - x0)

    losses = descend(factory, model, opt, loss_at, 250)
    return Outcome(losses, sum(losses[-20:]) / 20)


class Student(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher.requires_grad_(False)
        self.student = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


def distil(factory):
    torch.manual_seed(140)
    points, arms = spirals(2400, seed=9)
    teacher = nn.Sequential(nn.Linear(2, 192), nn.SiLU(), nn.Linear(192, 192), nn.SiLU(), nn.Linear(192, 3))
    fit = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(150):
        fit.zero_grad()
        F.cross_entropy(teacher(points), arms).backward()
        fit.step()
    model = Student(teacher)
    order = picks(2000, 200)
    opt = torch.optim.Adam(model.student.parameters(), lr=4e-3)

    def loss_at(step):
        x = points[order[step % 80]]
        with torch.no_grad():
            soft = (model.teacher(x) / 2).softmax(-1)
        return 4 * F.kl_div((model.student(x) / 2).log_softmax(-1), soft, reduction="batchmean")

    losses = descend(factory, model, opt, loss_at, 250)
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model.student(points[2000:]), arms[2000:]).item())


def transfer(factory, *, whole_numbers=False):
    """Three rates by depth on a trained DenseNet; the head's group warms up on its own."""
    torch.manual_seed(141)
    images, kind = shapes(700, seed=15)
    images = (images - MEAN) / STD
    model = Dense(depth=3)
    fit = torch.optim.Adam(model.parameters(), lr=5e-3)
    order = picks(600, 32, seed=16)
    for step in range(40):
        fit.zero_grad()
        F.cross_entropy(model(images[order[step]].flip(-1)), (kind[order[step]] > 1).long()).backward()
        fit.step()
    model.classes = nn.Linear(52, 4)
    groups = [
        {"params": model.entry.parameters(), "lr": 1e-4},
        {"params": [*model.layers.parameters(), *model.last.parameters()], "lr": 5e-4},
        {"params": model.classes.parameters(), "lr": 5e-3},
    ]
    opt = torch.optim.AdamW(groups)
    warm = (lambda s: min(1, s // 200)) if whole_numbers else (lambda s: min(1, (s + 1) / 20))
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, [lambda s: 1.0, lambda s: 1.0, warm])
    losses = descend(
        factory,
        model,
        opt,
        lambda s: F.cross_entropy(model(images[order[s % 80]]), kind[order[s % 80]]),
        120,
        scheduler=scheduler,
    )
    model.eval()
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(images[600:]), kind[600:]).item())


def triplets(factory):
    torch.manual_seed(142)
    cloud, kind = clouds(1200, seed=17)
    flat = cloud.sort(1).values.flatten(1)
    by_kind = [torch.nonzero(kind == k).squeeze(1) for k in range(4)]
    draw = seeded(18)
    model = nn.Sequential(nn.Linear(96, 192), nn.LayerNorm(192), nn.GELU(), nn.Linear(192, 24))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_at(step):
        k = torch.randint(4, (96,), generator=draw)
        far = (k + torch.randint(1, 4, (96,), generator=draw)) % 4
        take = [
            torch.stack([by_kind[int(c)][int(torch.randint(len(by_kind[int(c)]), (1,), generator=draw))] for c in ks])
            for ks in (k, k, far)
        ]
        return F.triplet_margin_loss(*(model(flat[rows]) for rows in take), margin=1.0)

    losses = descend(factory, model, opt, loss_at, 150)
    return Outcome(losses, sum(losses[-15:]) / 15)


@torch.backends.mkldnn.flags(enabled=False)
def scaled(factory, *, scale=256.0, half=True):
    """Weights in fp16, a fixed loss scale, gradients divided before the step."""
    torch.manual_seed(143)
    points, arms = spirals(2400, seed=19)
    order = picks(2000, 128)
    model = nn.Sequential(
        nn.Linear(2, 96), nn.ReLU(), nn.LayerNorm(96), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 3)
    ).half()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    monitor, losses = factory(model, opt), []
    for step in range(200):
        rows = order[step % 80]
        loss = F.cross_entropy(model(points[rows].half()).float(), arms[rows])
        opt.zero_grad()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad /= scale
        opt.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(points[2000:].half()).float(), arms[2000:]).item())


@torch.backends.mkldnn.flags(enabled=False)
def slow_bf16(factory, *, kind=torch.bfloat16):
    """AdamW at a small rate, everything in bf16."""
    torch.manual_seed(145)
    points, arms = spirals(2400, seed=21)
    points = points.to(kind)
    order = picks(2000, 96)
    model = nn.Sequential(
        nn.Linear(2, 128), nn.SiLU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.SiLU(), nn.Linear(128, 3)
    )
    with torch.no_grad():
        model[2].weight *= 4
    model = model.to(kind)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
    losses = descend(
        factory, model, opt, lambda s: F.cross_entropy(model(points[order[s % 80]]).float(), arms[order[s % 80]]), 200
    )
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(points[2000:]).float(), arms[2000:]).item())


def cyclic(factory):
    """SGD under CyclicLR, BatchNorm, an average of the weights kept beside."""
    torch.manual_seed(144)
    cloud, kind = clouds(1300, seed=20)
    flat = cloud.sort(1).values.flatten(1)
    order = picks(1000, 100)
    model = nn.Sequential(
        nn.Linear(96, 160),
        nn.BatchNorm1d(160),
        nn.ReLU(),
        nn.Linear(160, 160),
        nn.BatchNorm1d(160),
        nn.ReLU(),
        nn.Linear(160, 4),
    )
    average = torch.optim.swa_utils.AveragedModel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CyclicLR(opt, 0.005, 0.1, step_size_up=40)

    def loss_at(step):
        if step % 10 == 9:
            average.update_parameters(model)
        return F.cross_entropy(model(flat[order[step % 80]]), kind[order[step % 80]])

    losses = descend(factory, model, opt, loss_at, 240, scheduler=scheduler)
    model.eval()
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(flat[1000:]), kind[1000:]).item())


TRAININGS = (
    Training("realnvp-likelihood", flow),
    Training("wgan-penalty", critic),
    Training("vq-codes", codes),
    Training("byol-moving-teacher", byol),
    Training("graph-dropout", graph),
    Training("soft-target-q", steer),
    Training("actor-critic", actor_critic),
    Training("flow-matching-steps-first", matching),
    Training("distilled-student", distil),
    Training("densenet-transfer-rates", transfer),
    Training("triplets", triplets),
    Training("cyclic-rate-averaged", cyclic),
    faulty("vq-not-straight", "no gradient", partial(codes, straight=False, commit=False), codes, layer="encoder"),
    faulty("graph-edges-data", "no gradient", partial(graph, cut=True), graph, layer="edge"),
    faulty(
        "densenet-transfer-whole-numbers", "no update", partial(transfer, whole_numbers=True), transfer, layer="classes"
    ),
    faulty("spirals-bf16-adamw", "bf16 updates", slow_bf16, partial(slow_bf16, kind=torch.float32)),
    faulty("spirals-loss-scale", "fp16 overflow", partial(scaled, scale=2.0**24), scaled),
)

"""Pictures and points that are made again, and embeddings that are compared."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training
from benchmarks.fault_trainings_third.common import broken, digits, fit, mlp, seeded, split


def ring(count, seed=30):
    draw = seeded(seed)
    turn = torch.randint(8, (count,), generator=draw) * 0.7854
    return torch.stack([turn.cos(), turn.sin()], 1) * 1.4 + 0.1 * torch.randn(count, 2, generator=draw)


@torch.no_grad()
def lag(slow, model, share):
    for old, new in zip(slow.parameters(), model.parameters(), strict=True):
        old.lerp_(new, share)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = mlp(64, 96, 16, act=nn.ELU), mlp(8, 96, 64, act=nn.ELU)

    def loss(self, x, y):
        mean, spread = self.encoder(x).chunk(2, 1)
        made = self.decoder(mean + (spread / 2).exp() * torch.randn_like(mean))
        apart = (mean.square() + spread.exp() - spread - 1).sum(1).mean() / 2
        return F.mse_loss(made, x, reduction="none").sum(1).mean() + 0.5 * apart


def vae(factory, *, late=False):
    """The last layer of the decoder is replaced after the optimizer was made."""
    torch.manual_seed(30)
    model = Vae()
    opt = torch.optim.Adamax(model.parameters(), lr=4e-3)
    if late:
        model.decoder[-1] = nn.Linear(96, 64)
    return fit(factory, model, opt, *digits(64, flat=True), 200, loss=model.loss)


class Codes(nn.Module):
    """Nearest code words; without the straight-through step nothing comes back to the encoder."""

    def __init__(self, through):
        super().__init__()
        self.through = through
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 32))
        self.words = nn.Parameter(torch.randn(32, 4))
        self.decoder = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64))

    def loss(self, x, y):
        z = self.encoder(x).view(-1, 8, 4)
        word = self.words[torch.cdist(z.detach(), self.words.detach()).argmin(-1)]
        pull = F.mse_loss(word, z.detach())
        if self.through:
            pull = pull + 0.25 * F.mse_loss(z, word.detach())
            word = z + (word - z).detach()
        return F.mse_loss(self.decoder(word.flatten(1)), x) + pull


def quantized(factory, *, through=True):
    torch.manual_seed(31)
    model = Codes(through)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    return fit(factory, model, opt, *digits(64, flat=True), 220, loss=model.loss)


def autoencoder(factory, *, act=nn.SELU):
    """Eight layers down to 16 and up again."""
    torch.manual_seed(32)
    model = mlp(64, 64, 48, 32, 16, 32, 48, 64, 64, act=act)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return fit(factory, model, opt, *digits(64, flat=True), 220, loss=lambda x, y: F.mse_loss(model(x), x))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.dec = nn.Sequential(nn.ConvTranspose2d(32, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 2, 2))

    def forward(self, x):
        return self.dec(self.enc(x))


def denoise(factory, *, rate=0.05):
    torch.manual_seed(33)
    model = Denoiser()
    opt = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def loss(x, y):
        return F.mse_loss(model(x + 0.5 * torch.randn_like(x)), x)

    return fit(factory, model, opt, *digits(64), 250, loss=loss)


class Mirror(nn.Module):
    """A decoder with the weights of the encoder."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(64, 48), nn.Linear(64, 48)
        self.dec.weight = self.enc.weight
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        return torch.tanh(self.enc(x)) @ self.dec.weight + self.bias


def mirrored(factory, *, twice=False):
    torch.manual_seed(34)
    model = Mirror()
    params = [model.enc.weight, model.enc.bias, model.bias]
    params += [model.dec.weight] if twice else []
    opt = torch.optim.SGD(params, lr=0.9, momentum=0.8, foreach=False)
    return fit(factory, model, opt, *digits(64, flat=True), 200, loss=lambda x, y: F.mse_loss(model(x), x))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker, self.judge = mlp(4, 64, 64, 2), mlp(2, 64, 64, 1, act=lambda: nn.LeakyReLU(0.2))


def gan(factory):
    """Least squares; one monitor sees both nets, both optimizers and the sum of both losses."""
    torch.manual_seed(35)
    (batches, _), model = split(128, 1, ring(4000)), Pair()
    opts = [torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.5, 0.999)) for net in (model.judge, model.maker)]
    monitor, losses, far = factory(model, opts), [], []
    for _ in range(300):
        (true,) = next(batches)
        made = model.maker(torch.randn(128, 4))
        judging = (model.judge(true) - 1).square().mean() + model.judge(made.detach()).square().mean()
        opts[0].zero_grad()
        judging.backward()
        opts[0].step()
        making = (model.judge(made) - 1).square().mean()
        opts[1].zero_grad()
        making.backward()
        opts[1].step()
        monitor.step(loss=judging.detach() + making.detach())
        losses.append(float(judging.detach() + making.detach()))
        far.append((made.detach().norm(dim=1) - 1.4).abs().mean().item())
    return Outcome(losses, sum(far[-50:]) / 50)


class Diffusion(nn.Module):
    """The time comes first."""

    def __init__(self):
        super().__init__()
        self.register_buffer("waves", 0.02 * 2.0 ** torch.arange(6))
        self.body = mlp(14, 128, 128, 2, act=nn.SiLU)
        nn.init.zeros_(self.body[-1].weight)

    def forward(self, t, x):
        angle = t[:, None] * self.waves
        return self.body(torch.cat([x, angle.sin(), angle.cos()], 1))


def diffusion(factory):
    torch.manual_seed(36)
    model = Diffusion()
    slow, opt = copy.deepcopy(model), torch.optim.AdamW(model.parameters(), lr=2e-3)
    kept = torch.cos(torch.arange(1000) / 1000 * 1.55)[:, None]

    def follow(step, x):
        lag(slow, model, 0.05)
        return (x,)

    def loss(x):
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        return F.mse_loss(model(t, kept[t] * x + (1 - kept[t] ** 2).sqrt() * noise), noise)

    return fit(factory, model, opt, *split(256, 500, ring(6000)), 300, loss=loss, change=follow)


class Flow(nn.Module):
    """Six affine couplings."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(mlp(1, 48, 48, 2, act=nn.Tanh) for _ in range(6))

    def forward(self, x):
        total = torch.zeros(len(x))
        for net in self.nets:
            scale, shift = net(x[:, :1]).tanh().chunk(2, 1)
            x = torch.cat([x[:, 1:] * scale.exp() + 2 * shift, x[:, :1]], 1)
            total = total + scale[:, 0]
        return (x.square().sum(1) / 2 + 1.838 - total).mean()


def flow(factory):
    torch.manual_seed(37)
    model = Flow()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    return fit(factory, model, opt, *split(200, 500, ring(5000) * 0.3), 250, loss=model)


def seen(x):
    """Another view of a digit: shifted by up to one pixel, noisy, of another contrast."""
    up, left = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(x, (up, left), (2, 3)) * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.2 * torch.randn_like(x)


def encoder(out):
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, out),
    )  # fmt: skip


def contrast(factory):
    """Two views, each other's only friend in the batch."""
    torch.manual_seed(38)
    model = encoder(32)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def loss(x, y):
        z, count = F.normalize(model(torch.cat([seen(x), seen(x)])), dim=1), len(x)
        near = (z @ z.T / 0.2).masked_fill(torch.eye(2 * count).bool(), float("-inf"))
        return F.cross_entropy(near, (torch.arange(2 * count) + count) % (2 * count))

    return fit(factory, model, opt, *digits(64), 150, loss=loss)


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.guess = encoder(32), mlp(32, 64, 32, norm=nn.BatchNorm1d)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def loss(self, x, y):
        one, two = seen(x), seen(x)
        with torch.no_grad():
            aims = self.target(two), self.target(one)
        guesses = self.guess(self.online(one)), self.guess(self.online(two))
        return sum(1 - F.cosine_similarity(guess, aim).mean() for guess, aim in zip(guesses, aims, strict=True))


def byol(factory):
    torch.manual_seed(39)
    model = Byol()
    opt = torch.optim.Adam([*model.online.parameters(), *model.guess.parameters()], lr=1e-3)

    def follow(step, x, y):
        lag(model.target, model.online, 0.03)
        return x, y

    return fit(factory, model, opt, *digits(64), 150, loss=model.loss, change=follow)


TRAININGS = (
    broken("vae-new-last-layer", "not in optimizer", vae, {"late": True}, layer="decoder.2"),
    broken("codes-without-straight-through", "no gradient", quantized, {"through": False}, layer="encoder"),
    broken("autoencoder-sigmoids", "vanishing", autoencoder, {"act": nn.Sigmoid}),
    broken("denoiser-rate", "rate too large", denoise, {"rate": 3.0}),
    broken("mirror-twice-in-list", "tied twice", mirrored, {"twice": True}),
    Training("gan-ring", gan),
    Training("diffusion-time-first", diffusion),
    Training("flow-negative-loss", flow),
    Training("contrast-two-views", contrast),
    Training("byol-digits", byol),
    Training("denoiser-conv", denoise),
    Training("codes-straight-through", quantized),
)

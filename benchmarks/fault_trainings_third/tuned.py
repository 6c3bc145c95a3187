"""Agents, and nets that were trained before."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training, descend
from benchmarks.fault_trainings_third.common import broken, digits, fit, mlp, seeded


def pretrained(seed, width=96):
    """A net that knows the digits up to 4, and one that does not know the others."""
    torch.manual_seed(seed)
    back, head = mlp(64, width, width, width, norm=nn.BatchNorm1d), nn.Linear(width, 5)
    opt, (batches, _) = torch.optim.Adam([*back.parameters(), *head.parameters()], lr=2e-3), digits(128, flat=True)
    for _ in range(80):
        x, y = next(batches)
        opt.zero_grad()
        F.cross_entropy(head(back(x[y < 5])), y[y < 5]).backward()
        opt.step()
    return nn.Sequential(back, nn.ReLU(), nn.Linear(width, 5))


def tune(factory, model, opt, *, before=None):
    """The digits from 5 on."""

    def change(step, x, y):
        if before is not None:
            before(step)
        return x, y

    def loss(x, y):
        return F.cross_entropy(model(x[y > 4]), y[y > 4] - 5)

    return fit(factory, model, opt, *digits(64, flat=True), 120, loss=loss, change=change)


def frozen(factory):
    """A new head on a frozen net that stays in eval()."""
    model = pretrained(50)
    model[0].requires_grad_(False).eval()
    return tune(factory, model, torch.optim.Adam(model[2].parameters(), lr=3e-3))


def by_depth(factory, *, low=3e-4):
    """A smaller rate for what was trained before; a rate of 0 trains nothing of it."""
    model = pretrained(51)
    groups = [{"params": model[0].parameters(), "lr": low}, {"params": model[2].parameters(), "lr": 3e-3}]
    return tune(factory, model, torch.optim.AdamW(groups))


def thawed(factory):
    """The net is frozen for 40 steps."""
    model = pretrained(52)
    model[0].requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    return tune(factory, model, opt, before=lambda step: model[0].requires_grad_(step >= 40))


class Lora(nn.Module):
    def __init__(self, linear, rank=4):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + 2 * x @ self.A.T @ self.B.T


def lora(factory):
    model = pretrained(53)
    back = model[0].requires_grad_(False)
    for index, part in enumerate(back):
        if isinstance(part, nn.Linear):
            back[index] = Lora(part)
    return tune(factory, model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3))


class Pole:
    """A pole to be kept upright by pushes to the left or to the right; eight at once."""

    def __init__(self, seed, count=8):
        self.draw, self.state = seeded(seed), torch.zeros(count, 2)

    def push(self, action):
        angle, speed = self.state.T
        speed = speed + 0.15 * angle + 0.1 * (action.float() * 2 - 1) + 0.02 * torch.randn(8, generator=self.draw)
        self.state = torch.stack([angle + 0.3 * speed, speed], 1)
        fallen = self.state[:, 0].abs() > 1
        reward = torch.where(fallen, -1.0, 0.1)
        self.state[fallen] = 0.2 * torch.randn(int(fallen.sum()), 2, generator=self.draw)
        return reward, fallen


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = mlp(2, 48, 48, 2)
        self.target = copy.deepcopy(self.online).requires_grad_(False)


def dqn(factory):
    """The target is set to the online net each 60 steps."""
    torch.manual_seed(55)
    model, pole, memory, rewards = Agent(), Pole(55), [], []
    opt = torch.optim.Adam(model.online.parameters(), lr=1e-3)

    def loss_at(step):
        if step % 60 == 0:
            model.target.load_state_dict(model.online.state_dict())
        for _ in range(4):
            state = pole.state.clone()
            with torch.no_grad():
                best = model.online(state).argmax(1)
            action = torch.where(torch.rand(8) < max(0.05, 1 - step / 100), torch.randint(2, (8,)), best)
            reward, fallen = pole.push(action)
            memory.append((state, action, reward, pole.state.clone(), fallen))
            rewards.append(reward.mean().item())
        drawn = [memory[i] for i in torch.randint(len(memory), (8,))]
        state, action, reward, after, fallen = (torch.cat(column) for column in zip(*drawn, strict=True))
        with torch.no_grad():
            aim = reward + 0.95 * model.target(after).amax(1) * ~fallen
        return F.smooth_l1_loss(model.online(state).gather(1, action[:, None])[:, 0], aim)

    losses = descend(factory, model, opt, loss_at, 360)
    return Outcome(losses, -sum(rewards[-200:]) / 200)


def reinforced(factory):
    """A guess, a reward if it is right, a running baseline: a loss of either sign that says little."""
    torch.manual_seed(56)
    (batches, _), model, usual, found = digits(64, flat=True), mlp(64, 64, 10, act=nn.Tanh), 0.1, []
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-3)

    def loss_at(step):
        nonlocal usual
        x, y = next(batches)
        policy = torch.distributions.Categorical(logits=model(x))
        guess = policy.sample()
        reward = (guess == y).float()
        loss = -(policy.log_prob(guess) * (reward - usual)).mean() - 0.01 * policy.entropy().mean()
        usual = 0.9 * usual + 0.1 * reward.mean().item()
        found.append(usual)
        return loss

    losses = descend(factory, model, opt, loss_at, 400)
    return Outcome(losses, -found[-1])


TRAININGS = (
    broken("tuned-rate-zero-below", "no update", by_depth, {"low": 0.0}),
    Training("tuned-frozen-below", frozen),
    Training("tuned-rate-by-depth", by_depth),
    Training("tuned-thawed-later", thawed),
    Training("tuned-lora", lora),
    Training("dqn-target-syncs", dqn),
    Training("reinforced-guesses", reinforced),
)

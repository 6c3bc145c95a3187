"""Learning from rewards: a Q network with a target network, and a policy."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.data import seeded
from benchmarks.fault_trainings.training import Factory, Outcome, Training

PLACES = 12  # a corridor; the reward lies at its right end


def walk(place: torch.Tensor, action: torch.Tensor, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The next place and its reward; one move in ten slips."""
    slip = torch.rand(place.shape, generator=draw) < 0.1
    move = torch.where(slip, 1 - action, action) * 2 - 1
    following = (place + move).clamp(0, PLACES - 1)
    return following, (following == PLACES - 1).float()


def observe(place: torch.Tensor) -> torch.Tensor:
    return F.one_hot(place, PLACES).float()


class Agent(nn.Module):
    def __init__(self, with_target: bool = True):
        super().__init__()
        self.online = nn.Sequential(
            nn.Linear(PLACES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
        )
        if with_target:
            self.target = copy.deepcopy(self.online).requires_grad_(False)


def q_learning(factory: Factory) -> Outcome:
    """The target network is inside the model and takes the weights over every 40 steps."""
    torch.manual_seed(50)
    draw = seeded(51)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.online.parameters(), lr=1e-3)
    monitor, losses = factory(agent, optimizer), []
    for step in range(300):
        place = torch.randint(PLACES, (128,), generator=draw)
        action = torch.randint(2, (128,), generator=draw)
        following, reward = walk(place, action, draw)
        with torch.no_grad():
            aim = reward + 0.9 * agent.target(observe(following)).max(1).values
        loss = F.smooth_l1_loss(agent.online(observe(place))[torch.arange(128), action], aim)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.online.parameters(), 10.0)
        optimizer.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
        if step % 40 == 39:
            agent.target.load_state_dict(agent.online.state_dict())
    value = agent.online(observe(torch.arange(PLACES - 1)))
    return Outcome(losses, (value.argmax(1) == 0).float().mean().item())


def policy(factory: Factory) -> Outcome:
    """REINFORCE with a mean as baseline: the loss has no sign and no trend; score: reward that was missed."""
    torch.manual_seed(52)
    draw = seeded(53)
    model = nn.Sequential(nn.Linear(PLACES, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    monitor, losses, rewards = factory(model, optimizer), [], []
    for _ in range(120):
        place = torch.randint(PLACES - 1, (64,), generator=draw)
        logs, total = [], torch.zeros(64)
        for _ in range(12):
            choice = torch.distributions.Categorical(logits=model(observe(place)))
            action = (torch.rand(64, generator=draw) < choice.probs[:, 1]).long()
            logs.append(choice.log_prob(action))
            place, reward = walk(place, action, draw)
            total = total + reward
        advantage = (total - total.mean()) / (total.std() + 1e-6)
        loss = -(torch.stack(logs).mean(0) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss)
        losses.append(loss.item())
        rewards.append(total.mean().item())
    return Outcome(losses, 12 - sum(rewards[-10:]) / 10)


TRAININGS = (
    Training("dqn-target-syncs", q_learning),
    Training("policy-gradient", policy),
)

"""Whole trainings: the cause comes first and once, under the default budget too, and healthy ones are quiet."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normgauge as ng
from normgauge.core import store
from normgauge.monitor.signs.sign import Alarm

CENTRES = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.randint(5, (32,), generator=generator)
    return CENTRES[labels] + torch.randn(32, 16, generator=generator), labels


def mlp(depth: int = 3, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(1)
    widths = [16, *[32] * (depth - 1)]
    hidden = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*hidden, nn.Linear(32, 5))


def incidents(
    path: Any, model: nn.Module, optimizer: Any, steps: int = 60, every: int | None = None, **ways: Callable[..., Any]
) -> tuple[list[Alarm], Any]:
    """The alarms of a training, and its run file; ``disturb`` changes batches, ``judge`` is the loss."""
    said: list[Alarm] = []
    generator = torch.Generator().manual_seed(2)
    judge = ways.get("judge", functional.cross_entropy)
    with ng.Monitor(model, path, every=every, optimizer=optimizer, on_alarm=said.append) as monitor:
        for step in range(1, steps + 1):
            inputs, labels = batch(generator)
            inputs, labels = ways.get("disturb", lambda step, x, y: (x, y))(step, inputs, labels)
            loss = judge(model(inputs), labels)
            for one in optimizer if isinstance(optimizer, list) else [optimizer]:
                one.zero_grad()
            loss.backward()
            for one in optimizer if isinstance(optimizer, list) else [optimizer]:
                one.step()
            monitor.step(loss=loss)
    return said, store.read(monitor.path)


def broken(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if step == 40:
        x[7, 3] = math.nan
    return x, y


def dead() -> nn.Sequential:
    model = mlp()
    nn.init.constant_(model[2].bias, -50.0)
    return model


class Cut(nn.Module):
    """Its first layer gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.out = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.second(self.first(x).relu().detach()).relu())


def summed(out: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(out, y, reduction="sum")


def descent(rate: float) -> Callable[[nn.Module], Any]:
    return lambda model: torch.optim.SGD(model.parameters(), rate)


CASES: dict[str, tuple[str, str, Callable[[], nn.Module], Callable[[nn.Module], Any], dict[str, Any]]] = {
    "left out": ("not_in_optimizer", "4", mlp, lambda m: torch.optim.Adam(m[:4].parameters()), {}),
    "cut": ("no_gradient", "first", Cut, lambda m: torch.optim.Adam(m.parameters()), {}),
    "dead": ("dead_relu", "2", dead, lambda m: torch.optim.Adam(m.parameters()), {}),
    "sigmoids": ("vanishing_gradient", "0", lambda: mlp(8, nn.Sigmoid), descent(0.1), {}),
    "bare": ("no_normalizer", "", lambda: mlp(16), descent(0.1), {}),
    "rate": ("learning_rate", "", mlp, descent(20.0), {}),
    "sum": ("loss_reduction", "", mlp, descent(0.5), {"judge": summed}),
    "sample": ("nan_input", "", mlp, lambda m: torch.optim.Adam(m.parameters()), {"disturb": broken}),
    "scale": ("data_scale", "", mlp, lambda m: torch.optim.Adam(m.parameters()),
              {"disturb": lambda step, x, y: (100 * x, y)}),
    "twice": ("stepped_twice", "4", mlp,
              lambda m: [torch.optim.SGD(m.parameters(), 0.1), torch.optim.SGD(m[4].parameters(), 0.1)], {}),
}  # fmt: skip


@pytest.mark.parametrize("every", [None, 1])
@pytest.mark.parametrize("case", CASES)
def test_the_cause_comes_first_and_alone(case, every, tmp_path):
    kind, layer, make, optimizer, ways = CASES[case]
    model = make()
    said, run = incidents(tmp_path, model, optimizer(model), every=every, **ways)
    assert [(alarm.alarm, alarm.layer) for alarm in said] == [(kind, layer)]
    assert said[0].advice.endswith((".", "?")) and (said[0].began or said[0].step) <= said[0].step
    assert [record["alarm"] for record in run.alarms] == [kind]
    assert {record["cause"] for record in run.consequences} <= {kind}


def test_the_sample_is_named_by_its_place(tmp_path):
    model = mlp()
    (alarm,), _ = incidents(tmp_path, model, torch.optim.Adam(model.parameters()), disturb=broken)
    assert "sample 7 of 32" in alarm.sentence and (alarm.step, alarm.began) == (40, 40)


def test_a_copy_that_is_synchronized_and_a_loss_that_jumps_with_it_are_healthy(tmp_path):
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = mlp()
            self.target = copy.deepcopy(self.online)

        def forward(self, x: Tensor) -> Tensor:
            return self.online(x)

    model = Agent()
    for weight in model.target.parameters():
        weight.data.mul_(3.0)

    def judge(out: Tensor, y: Tensor) -> Tensor:
        judge.calls += 1
        if judge.calls % 20 == 0:
            model.target.load_state_dict(model.online.state_dict())
        with torch.no_grad():
            goal = (y == 2).float() + 0.9 * model.target(CENTRES[y]).max(1).values
        return functional.smooth_l1_loss(out.gather(1, y[:, None])[:, 0], goal)

    judge.calls = 0
    said, _ = incidents(tmp_path, model, torch.optim.Adam(model.online.parameters()), 100, every=1, judge=judge)
    assert said == []


def test_a_spike_that_recovers_is_none(tmp_path):
    model = mlp()
    spiked = {"disturb": lambda step, x, y: (x if step != 40 else -3 * x, y)}
    said, _ = incidents(tmp_path, model, torch.optim.SGD(model.parameters(), 0.05), 80, **spiked)
    assert said == []

"""What shows in a short run under the default budget, where few steps are read; and healthy ones that look odd."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normgauge as ng
from normgauge.monitor.signs.sign import Alarm

DRAW = torch.Generator().manual_seed(0)
POINTS = torch.randn(64, 12, generator=DRAW)
TRUTH = POINTS[:, :4] - POINTS[:, 4:8]
LABELS = TRUTH.argmax(1)


def trained(path: Any, model: nn.Module, optimizer: Any, loss_at: Callable[[int], Tensor], steps: int) -> list[Alarm]:
    """The alarms of a training under the default budget."""
    said: list[Alarm] = []
    with ng.Monitor(model, path, optimizer=optimizer, on_alarm=said.append) as monitor:
        for step in range(steps):
            loss = loss_at(step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.step(loss=loss)
    return said


class Attending(nn.Module):
    """One attention over twelve tokens, written by hand."""

    def __init__(self, scale: float, learnt: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lift, self.q, self.k, self.v = (nn.Linear(n, 16) for n in (1, 16, 16, 16))
        self.o, self.head, self.scale = nn.Linear(16, 16), nn.Linear(16, 4), scale
        self.heat = nn.Parameter(torch.full((1, 1, 1), math.log(scale))) if learnt else None

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.lift(x[..., None])
        logits = self.q(tokens) @ self.k(tokens).mT
        logits = logits * self.scale if self.heat is None else logits * self.heat.exp()
        return self.head((tokens + self.o(logits.softmax(-1) @ self.v(tokens))).mean(1))


class Lora(nn.Module):
    """A frozen map and a correction both of whose factors begin at 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.base = nn.Linear(12, 4).requires_grad_(False)
        self.a, self.b = nn.Linear(12, 2, bias=False), nn.Linear(2, 4, bias=False)
        nn.init.zeros_(self.a.weight)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x))


class Twice(nn.Module):
    """Blocks that add their input, and are added to it once more."""

    def __init__(self, times: int) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.blocks, self.times = nn.ModuleList(nn.Linear(12, 12) for _ in range(8)), times
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.times * x + functional.relu(block(x))
        return self.head(x)


def judged(model: nn.Module) -> Callable[[int], Tensor]:
    return lambda step: functional.cross_entropy(model(POINTS), LABELS)


def frozen_by_rate(model: nn.Module) -> torch.optim.Optimizer:
    first, *rest = model.children()
    groups = [{"params": list(first.parameters()), "lr": 0.0}, {"params": [p for m in rest for p in m.parameters()]}]
    return torch.optim.SGD(groups, 0.05)


def plain() -> nn.Sequential:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam((p for p in model.parameters() if p.requires_grad), 1e-3)


CASES: dict[str, tuple[str, Callable[[], nn.Module], Callable[[nn.Module], Any], int]] = {
    "saturated": ("attention_saturated", lambda: Attending(400.0), adam, 8),
    "saturated by a learnt scale": ("attention_saturated", lambda: Attending(400.0, learnt=True), adam, 8),
    "both factors at 0": ("no_gradient", Lora, adam, 20),
    "rate of 0": ("no_update", plain, frozen_by_rate, 50),
    "a bare stream": ("residual_growth", lambda: Twice(2), lambda m: torch.optim.SGD(m.parameters(), 1e-5), 8),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_named_in_a_short_run(case, tmp_path):
    kind, make, optimizer, steps = CASES[case]
    model = make()
    said = trained(tmp_path, model, optimizer(model), judged(model), steps)
    assert [alarm.alarm for alarm in said] == [kind], [alarm.sentence for alarm in said]


class Logged(nn.Module):
    """Takes logarithms of its input, and mixes samples in a batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.log())


def test_a_sample_that_breaks_inside_the_model_is_named(tmp_path):
    model, good = Logged(), POINTS.abs() + 0.1
    bad = good.clone()
    bad[41, 3] = 0.0

    def loss_at(step: int) -> Tensor:
        return functional.cross_entropy(model(bad if step == 30 else good), LABELS)

    (alarm,) = trained(tmp_path, model, adam(model), loss_at, 33)
    assert (alarm.alarm, alarm.step) == (
        "nan_input",
        31,
    ) and "sample 41 of 64 reaches the first layer" in alarm.sentence


def test_a_sample_that_breaks_in_the_loss_is_named(tmp_path):
    model = plain()

    def loss_at(step: int) -> Tensor:
        weights = torch.ones(64)
        weights[17] = 0.0 if step == 30 else 1.0
        return ((model(POINTS) - TRUTH).square().mean(1) / weights).mean()

    (alarm,) = trained(tmp_path, model, adam(model), loss_at, 33)
    assert (alarm.alarm, alarm.step) == (
        "nan_input",
        31,
    ) and "the loss of sample 17 of 64 alone is not finite" in alarm.sentence


class Heads(nn.Module):
    """Two networks one after the other: the last layer of the first has no normalizer, as usual."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.encoder, self.predictor = (
            nn.Sequential(nn.Linear(a, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, b))
            for a, b in ((12, 8), (8, 4))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.predictor(self.encoder(x))


def masked(x: Tensor) -> Tensor:
    marked = x.clone()
    marked[::7, 0] = math.nan
    return marked


class Imputing(nn.Module):
    """Knows what a NaN in its input means."""

    def __init__(self) -> None:
        super().__init__()
        self.net = plain()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.nan_to_num(x))


HEALTHY: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Any], Callable[[Tensor], Tensor]]] = {
    "Adagrad": (plain, lambda m: torch.optim.Adagrad(m.parameters(), 0.1), lambda x: x),
    "heads": (Heads, adam, lambda x: x),
    "marks of what is missing": (Imputing, adam, masked),
    "a residual stream": (lambda: Twice(1), adam, lambda x: x),
    "attention": (lambda: Attending(0.25), adam, lambda x: x),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_run_is_quiet(case, tmp_path):
    make, optimizer, shown = HEALTHY[case]
    model, given = make(), shown(POINTS)
    said = trained(tmp_path, model, optimizer(model), lambda step: functional.cross_entropy(model(given), LABELS), 80)
    assert said == []


def test_two_that_are_trained_in_turns_are_healthy(tmp_path):
    model = plain()
    optimizers = [torch.optim.Adam(part.parameters(), 1e-3) for part in (model[:2], model[2:])]
    said: list[Alarm] = []
    with ng.Monitor(model, tmp_path, optimizer=optimizers, on_alarm=said.append) as monitor:
        for step in range(1, 130):
            model.zero_grad()
            optimizer = optimizers[step % 5 > 0]  # the first is stepped at every fifth step
            model[:2].requires_grad_(step % 5 == 0)
            loss = functional.cross_entropy(model(POINTS), LABELS)
            loss.backward()
            model[:2].requires_grad_(True)
            optimizer.step()
            monitor.step(loss=loss)
    assert said == []


@pytest.mark.filterwarnings("ignore:TF32")
@torch.backends.mkldnn.flags(enabled=False)  # its half kernels fail on some processors
def test_large_activations_that_leave_float16_before_they_are_squared_are_healthy(tmp_path):
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(9)
            self.lift, self.norm, self.head = nn.Linear(12, 32), nn.LayerNorm(32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm((300 * self.lift(x)).float().square()))

    model = Careful()

    def loss_at(step: int) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            out = model(POINTS)
        return functional.cross_entropy(out.float(), LABELS)

    assert trained(tmp_path, model, adam(model), loss_at, 20) == []

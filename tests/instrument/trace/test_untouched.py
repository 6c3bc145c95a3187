"""Measuring leaves no trace on the model: nor does a failure, nor Ctrl-C."""

from __future__ import annotations

import math
import random
import warnings
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from normgauge.core.errors import InputError
from normgauge.instrument.measure import gauge, readings
from normgauge.instrument.trace.untouched import Copies, bring_back, drawn_outside_torch, random_states, unwrap

pytestmark = pytest.mark.usefixtures("brief_search")


class Fragile(nn.Module):
    """Everything that can be disturbed: statistics, dropout, parametrizations, hooks, ties, flags, plain attributes."""

    def __init__(self, fail: BaseException | None = None) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Linear(4, 6))
        self.norm = nn.BatchNorm1d(6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.old = nn.utils.weight_norm(nn.Linear(6, 6))
        self.spectral = nn.utils.spectral_norm(nn.Linear(6, 6))
        self.newer = parametrizations.spectral_norm(nn.Linear(6, 6))
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(6, 3)
        self.tied = nn.Linear(6, 3)
        self.tied.weight = self.last.weight
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.scale = torch.tensor(2.0)
        self.seen: list[Tensor] = []
        self.fail = fail
        self.last.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.latest = x
        self.seen.append(x)
        self.extra = nn.Identity()
        h = self.drop(self.norm(self.first(x)).relu_())
        if self.fail is not None:
            raise self.fail
        return self.last(self.newer(self.spectral(self.old(h)))) + self.tied(h) * self.scale


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything that must be the same afterwards, tensors by identity and by bits."""
    state: dict[str, Any] = {
        "rng": torch.get_rng_state().clone(),
        "grad": torch.is_grad_enabled(),
        "call": nn.Module.__call__,
    }
    for name, module in model.named_modules(remove_duplicate=False):
        state[f"{name}/mode"] = module.training
        state[f"{name}/type"] = type(module)
        state[f"{name}/keys"] = sorted(module.__dict__)
        for kind in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
            "_state_dict_hooks",
        ):
            state[f"{name}/{kind}"] = list(getattr(module, kind).values())
        state[f"{name}/parametrized"] = parametrize.is_parametrized(module)
        for key, value in module.__dict__.items():
            if isinstance(value, Tensor):
                state[f"{name}/{key}"] = (id(value), value.detach().clone())
            elif isinstance(value, list | dict):
                state[f"{name}/{key}"] = (id(value), len(value))
    for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        grad = None if tensor.grad is None else (id(tensor.grad), tensor.grad.clone())
        state[f"{name}/tensor"] = (
            id(tensor),
            tensor._version,
            tensor.detach().clone(),
            tensor.requires_grad,
            grad,
            tensor.dtype,
        )
    return state


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def assert_untouched(before: dict[str, Any], model: nn.Module) -> None:
    after = snapshot(model)
    assert before.keys() == after.keys()
    changed = [key for key in before if not same(before[key], after[key])]
    assert not changed


def prepared(fail: BaseException | None = None, training: bool = True) -> tuple[Fragile, Tensor]:
    torch.manual_seed(3)
    model, x = Fragile(), torch.randn(5, 4)
    model.train()
    model(x).sum().backward()
    del model.latest, model.extra
    model.fail = fail
    model.train(training)
    model.drop.train(not training)
    return model, x


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("training", [True, False])
def test_everything_is_as_before(mode, training):
    model, x = prepared(training=training)
    kept = x.clone()
    before = snapshot(model)
    readings(model, x, ("ball:0.1", "global"), mode=mode, search=training)
    assert_untouched(before, model)
    assert torch.equal(x, kept) and x.grad is None and not x.requires_grad


@pytest.mark.parametrize("failure", [RuntimeError("no"), ZeroDivisionError("no"), KeyboardInterrupt()], ids=repr)
def test_also_when_the_forward_raises(failure):
    model, x = prepared(fail=failure)
    before = snapshot(model)
    with pytest.raises((InputError, ZeroDivisionError, KeyboardInterrupt)):
        gauge(model, x, scope="global")
    assert_untouched(before, model)


@pytest.mark.parametrize("part", ["rules", "balance", "lower", "search"])
def test_also_when_it_is_interrupted_later(part):
    model, x = prepared()
    before = snapshot(model)

    def press(stage: str, fraction: float) -> None:
        if stage == part:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gauge(model, x, scope="ball:0.1", progress=press)
    assert_untouched(before, model)


def test_hooks_of_the_user_stay_and_run():
    model, x = prepared()
    kept: list[str] = []
    model.last.register_forward_hook(lambda *a: (PATCHES.append("forward"), kept.append("forward"))[:0] or None)
    model.norm.register_forward_pre_hook(lambda *a: PATCHES.append("pre"))
    before = snapshot(model)
    PATCHES.clear()
    gauge(model, x, scope="global", search=False)
    assert_untouched(before, model)
    assert {"forward", "pre"} <= set(PATCHES) and not kept  # what a hook closes over is the user's


def test_a_network_that_collects_its_values_keeps_only_its_own():
    class Collector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.layer.weight.data.mul_(1.0)
            self.hidden = self.layer(x)
            return self.hidden.tanh()

    model, x = Collector(), torch.randn(2, 3)
    before = snapshot(model)
    gauge(model, x, scope="global", search=False)
    assert_untouched(before, model)
    assert "hidden" not in model.__dict__


class Hiding(nn.Module):
    """Keeps what it changes where no list of buffers shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.list = [torch.zeros(3), [nn.BatchNorm1d(4)]]
        self.table = {"deep": {"norm": nn.BatchNorm1d(4), "sum": torch.zeros(4)}}
        self.queue: deque[Any] = deque([torch.zeros(4)], maxlen=3)
        self.array = np.zeros(4)
        self.pair = (torch.zeros(4), 1.0)
        self.helper = SimpleNamespace(norm=nn.BatchNorm1d(4), count=0)
        self.dice, self.torch_dice = random.Random(0), torch.Generator().manual_seed(0)
        self.numpy_dice = np.random.default_rng(0)
        closed = nn.BatchNorm1d(4)
        self.function, self.method = (lambda x: closed(x)), closed.forward
        self.seen: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((nn.Module.__call__, nn.Module._call_impl, torch.rms_norm, F.rms_norm, nn.Linear.forward))
        with torch.no_grad():
            self.list[0].add_(1.0)
            self.table["deep"]["sum"].add_(1.0)
            self.pair[0].add_(1.0)
        self.queue.append(x.detach().sum(0))
        self.array += 1.0
        self.helper.count += 1
        self.table["new"] = {}
        random.random(), np.random.rand(), self.dice.random(), torch.rand(1, generator=self.torch_dice)
        self.numpy_dice.random()
        x = self.function(x)
        for norm in (self.list[1][0], self.table["deep"]["norm"], self.helper.norm):
            x = norm.train()(x)
        PATCHES.append(self.seen[-1])
        return x


PATCHES: list[Any] = []


def contents(model: Hiding) -> list[Any]:
    """Everything the forward changes, as plain numbers."""
    norms = (model.list[1][0], model.table["deep"]["norm"], model.helper.norm, model.method.__self__)
    tensors = [model.list[0], model.table["deep"]["sum"], model.pair[0], *model.queue]
    tensors += [t for norm in norms for t in (*norm.parameters(), *norm.buffers())]
    return [
        *((id(t), t.dtype, t.tolist()) for t in tensors), [norm.training for norm in norms], model.array.tolist(),
        model.helper.count, sorted(model.table), len(model.seen), len(model.queue), random.getstate(),
        np.random.get_state()[1].tolist(), model.numpy_dice.bit_generator.state, model.dice.getstate(),
        model.torch_dice.get_state().tolist(),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_what_a_model_hides_in_plain_attributes_is_untouched(mode: str) -> None:
    model = Hiding()
    before = contents(model)
    functions = (nn.Module.__call__, nn.Module._call_impl, torch.rms_norm, F.rms_norm, nn.Linear.forward)
    PATCHES.clear()
    gauge(model, torch.randn(5, 4), scope="global", mode=mode)
    assert contents(model) == before
    assert len(PATCHES) > 3 and all(seen == functions for seen in PATCHES)  # nor was anything of torch's patched


def test_a_hidden_layer_is_measured_as_any_other() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.hidden = {"map": nn.Linear(4, 4)}

        def forward(self, x: Tensor) -> Tensor:
            return self.hidden["map"](x)

    model = Net()
    norm = float(torch.linalg.matrix_norm(model.hidden["map"].weight.detach().double(), 2))
    assert gauge(model, torch.randn(3, 4), scope="global").log_upper == pytest.approx(math.log(norm), abs=1e-6)


def test_wrapped_models_are_unwrapped() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    parallel = nn.DataParallel(model)
    x = torch.randn(3, 4)
    values = {gauge(m, x, scope="global", search=False).log_upper for m in (model, compiled, parallel)}
    assert len(values) == 1
    inside = nn.Sequential(torch.compile(model, backend="eager"), nn.Tanh())
    assert not gauge(inside, x, scope="global", search=False).unknown


def test_copies_share_memory_where_the_originals_did() -> None:
    whole = torch.arange(6.0)
    parts, alone = (whole[:3], whole[2:], nn.Parameter(whole.view(2, 3))), torch.ones(2)
    copies = Copies(torch.float64, None)
    copies.meet([*parts, alone])
    made = [copies.of(part) for part in (*parts, alone)]
    assert [copy.dtype for copy in made] == [torch.float64] * 4 and copies.of(parts[0]) is made[0]
    assert isinstance(made[2], nn.Parameter) and made[2].shape == (2, 3)
    made[0][2] = 9.0
    assert made[1][0] == made[2][0, 2] == 9.0 and whole[2] == 2.0
    assert all(torch.equal(copy[-1:], part[-1:].double()) for copy, part in zip(made[1:2], parts[1:2], strict=True))


def test_states_of_chance_come_back() -> None:
    before = random_states()
    assert not drawn_outside_torch(before)
    drawn = torch.rand(3), random.random(), np.random.rand()
    assert drawn_outside_torch(before)
    bring_back(before)
    assert not drawn_outside_torch(before)
    again = torch.rand(3), random.random(), np.random.rand()
    assert torch.equal(drawn[0], again[0]) and drawn[1:] == again[1:]


def test_only_a_module_can_be_unwrapped() -> None:
    with pytest.raises(InputError, match=r"model: expected a torch\.nn\.Module, got int"):
        unwrap(3)  # type: ignore[arg-type]

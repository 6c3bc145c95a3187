"""Tensors, weights and settings that change during the forward: each step keeps those it ran with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import normgauge as ng
from normgauge.instrument.trace.held import Held, fresh_copy, memory_place
from tests.instrument.trace.nets import Net, batch, linear, slope, sound


def data(x: Tensor) -> Tensor:
    y = 1.0 * x
    y.data = 100 * x.data
    return y


def set_(x: Tensor) -> Tensor:
    return (1.0 * x.detach()).set_(100 * x.detach())


def swapped(x: Tensor) -> Tensor:
    y, z = 1.0 * x, 100.0 * x
    torch.utils.swap_tensors(y, z)
    return y


def through_numpy(x: Tensor) -> Tensor:
    memory = np.zeros(12)
    y = torch.from_numpy(memory).reshape(3, 4)
    memory[:] = 100 * x.detach().numpy().reshape(-1)
    return x + y


@pytest.mark.parametrize("function", [data, set_, swapped, through_numpy], ids=lambda f: f.__name__)
def test_exchanged_tensors_are_not_what_they_were(function: Callable[[Tensor], Tensor]) -> None:
    model, x = Net(function), batch()
    reading = ng.gauge(model, x, scope="global", search=False)
    assert sound(reading, slope(model, x, x))


def weight_exchanged(x: Tensor, layer: Any) -> Tensor:
    weight = layer.weight.data.clone()
    y = layer(x)
    layer.weight.data = 100 * weight
    z = layer(y)
    layer.weight.data = weight
    return z


def weight_overwritten(x: Tensor, layer: Any) -> Tensor:
    y = layer(x)
    with torch.no_grad():
        layer.weight.mul_(100.0)
        z = layer(y)
        layer.weight.div_(100.0)
    return z


@pytest.mark.parametrize("function", [weight_exchanged, weight_overwritten], ids=lambda f: f.__name__)
def test_each_step_has_the_weights_it_ran_with(function: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, bias=False).double()
    reading = ng.gauge(Net(function, layer), batch(), scope="global", balance=False, search=False)
    norm = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    assert reading.log_folded == pytest.approx(math.log(100 * norm**2), abs=1e-2)


def eps_toggled(x: Tensor, norm: Any) -> Tensor:
    norm.eps = 1e-12
    y = norm(x)
    norm.eps = 1.0
    return y


def slope_toggled(x: Tensor, leaky: Any) -> Tensor:
    leaky.negative_slope = 50.0
    y = leaky(x)
    leaky.negative_slope = 0.1
    return y


def trained_inside(x: Tensor, norm: Any) -> Tensor:
    norm.train()
    y = norm(x)
    norm.eval()
    return y


class Secret(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return 100 * out.as_subclass(torch.Tensor) if func is F.linear else out


class WeightNorm:
    """A hook with the name of one of torch's."""

    def __call__(self, module: nn.Module, args: Any) -> Any:
        return (100 * args[0],)


def hooked(register: str, hook: Callable[..., Any]) -> nn.Module:
    layer = linear()
    getattr(layer, register)(hook)
    return nn.Sequential(layer)


def patched_instance() -> nn.Module:
    layer = linear()
    layer.forward = lambda x: 100 * F.linear(x, layer.weight, layer.bias)
    return nn.Sequential(layer)


def secret_weight() -> nn.Module:
    layer = linear()
    layer.weight = nn.Parameter(layer.weight.data.as_subclass(Secret))
    return nn.Sequential(layer)


def own_weight() -> nn.Module:
    class Standardized(nn.Linear):
        @property
        def weight(self) -> Tensor:  # type: ignore[override]
            return 100 * self.raw

        @weight.setter
        def weight(self, value: Tensor) -> None:
            self.register_parameter("raw", nn.Parameter(value))

        def reset_parameters(self) -> None:
            pass

    torch.manual_seed(0)
    layer = Standardized.__new__(Standardized)
    nn.Module.__init__(layer)
    layer.register_parameter("raw", nn.Parameter(torch.randn(4, 4, dtype=torch.float64)))
    layer.bias = None  # type: ignore[assignment]
    return nn.Sequential(layer)


HIDDEN: dict[str, tuple[Callable[[], nn.Module], Tensor, Tensor]] = {
    "eps": (lambda: Net(eps_toggled, nn.LayerNorm(4)).double(), 1 + 1e-7 * batch()[:1], batch()[:1]),
    "negative slope": (lambda: Net(slope_toggled, nn.LeakyReLU(0.1)), -batch().abs(), batch()),
    "train()": (lambda: Net(trained_inside, nn.BatchNorm1d(4)).double(), 1e-3 * batch(), batch()),
    "forward hook": (lambda: hooked("register_forward_hook", lambda m, i, o: 100 * o), batch(), batch()),
    "pre-hook": (lambda: hooked("register_forward_pre_hook", lambda m, i: (100 * i[0],)), batch(), batch()),
    "a hook called WeightNorm": (lambda: hooked("register_forward_pre_hook", WeightNorm()), batch(), batch()),
    "patched instance": (patched_instance, batch(), batch()),
    "weight subclass": (secret_weight, batch(), batch()),
    "weight property": (own_weight, batch(), batch()),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_changes_a_layer_is_seen(name: str) -> None:
    make, at, along = HIDDEN[name]
    model = make()
    for scope in ("global", "point"):
        reading = ng.gauge(model, at if scope == "point" else batch(), scope=scope, search=False)
        assert sound(reading, slope(model, at, along, 1e-9 if name == "eps" else 1e-6))
    assert str(reading.evidence) == ("unknown" if name == "weight subclass" else "proved")  # measured, not refused


def test_an_alias_becomes_a_copy_just_before_its_memory_is_overwritten() -> None:
    held, tensor = Held(), torch.arange(4.0)
    alias = held.hold(tensor)
    assert held.hold(tensor) is alias and memory_place(alias) == memory_place(tensor)
    held.before_write(memory_place(tensor))
    tensor.zero_()
    assert alias.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert held.hold(tensor).tolist() == [0.0] * 4


def test_a_tensor_that_moved_to_other_memory_is_held_anew() -> None:
    held, tensor = Held(), torch.ones(3)
    first = held.hold(tensor)
    tensor.data = torch.full((3,), 2.0)
    assert held.hold(tensor).tolist() == [2.0] * 3 and first.tolist() == [1.0] * 3


def test_a_held_layer_has_its_weights_and_no_hooks() -> None:
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    layer.register_forward_hook(lambda *given: None)
    kept = Held().layer(layer, nn.Linear)
    assert type(kept) is nn.Linear and torch.equal(kept.weight, layer.weight) and not kept._forward_hooks
    fresh = fresh_copy(kept)
    fresh.weight.zero_()
    assert float(kept.weight.abs().sum()) > 0

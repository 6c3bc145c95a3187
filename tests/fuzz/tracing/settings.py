"""Settings, hooks and patches: what a layer is changes while the model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all

from tests.fuzz.tracing.trick import Told, Trick, steep, trick


@trick
def toggled(rng: Random, width: int) -> Trick:
    kind = rng.choice(["eps", "slope", "limit", "beta", "batch norm", "dropout", "weight", "group eps", "rms eps", "p"])
    parts: dict[str, tuple[nn.Module, str, Any, Any]] = {
        "eps": (nn.LayerNorm(width), "eps", 1e-10, 1.0),
        "slope": (nn.LeakyReLU(0.1), "negative_slope", 50.0, 0.1),
        "limit": (nn.Hardtanh(), "max_val", 1000.0, 1e-3),
        "beta": (nn.Softplus(), "beta", 1.0, 50.0),
        "batch norm": (nn.BatchNorm1d(width), "training", True, False),
        "dropout": (nn.Dropout(0.9), "training", True, False),
        "p": (nn.Dropout(0.1), "p", 0.95, 0.0),
        "group eps": (nn.GroupNorm(1, width), "eps", 1e-10, 1.0),
        "rms eps": (nn.RMSNorm(width), "eps", 1e-10, 1.0),
        "weight": (nn.Linear(width, width), "bias", None, None),
    }
    layer, name, inside, outside = parts[kind]
    twice = rng.random() < 0.3

    def forward(m: Any, x: Tensor) -> Tensor:
        setattr(m.layer, name, inside)
        y = m.layer(x)
        setattr(m.layer, name, outside)
        return y + m.layer(x) if twice else y

    hint = rng.choice([lambda x: -x.abs(), lambda x: 1 + 1e-6 * x, lambda x: 1e-3 * x])
    mode = "train" if kind == "p" else "eval"
    return Trick(Told(f"{kind} toggled{' twice' if twice else ''}", forward, layer=layer), hint=hint, mode=mode)


class WeightNorm:  # a name the library may know, and another class
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, module: nn.Module, args: Any) -> Any:
        return (self.factor * args[0],)


@trick
def hooked(rng: Random, width: int) -> Trick:
    factor = steep(rng)
    layer = rng.choice([lambda: nn.Linear(width, width), lambda: nn.Tanh(), lambda: nn.LayerNorm(width)])()
    kind = rng.choice(["pre", "post", "in place", "named", "with kwargs", "in the forward", "child"])
    if kind == "pre":
        layer.register_forward_pre_hook(lambda m, args: (factor * args[0],))
    elif kind == "post":
        layer.register_forward_hook(lambda m, args, out: factor * out)
    elif kind == "in place":
        layer.register_forward_hook(lambda m, args, out: out.mul_(factor) and None)
    elif kind == "named":
        layer.register_forward_pre_hook(WeightNorm(factor))
    elif kind == "with kwargs":
        layer.register_forward_pre_hook(lambda m, args, kwargs: ((factor * args[0],), kwargs), with_kwargs=True)
    elif kind == "child":
        outer = nn.Sequential(layer)
        outer.register_forward_hook(lambda m, args, out: out + factor * args[0])
        return Trick(outer, label=kind)
    else:

        def forward(m: Any, x: Tensor) -> Tensor:
            handle = m.layer.register_forward_hook(lambda m, args, out: factor * out)
            y = m.layer(x)
            handle.remove()
            return y

        return Trick(Told("hook of one call", forward, layer=layer))
    return Trick(nn.Sequential(layer), label=kind)


@trick
def hooked_everywhere(rng: Random, width: int) -> Trick:
    factor, before = steep(rng), rng.random() < 0.5

    @contextmanager
    def world() -> Iterator[None]:
        def change(m: nn.Module, args: Any, out: Any = None) -> Any:
            if not isinstance(m, nn.Linear):
                return None
            return (factor * args[0],) if before else factor * out

        register = (
            hooks_of_all.register_module_forward_pre_hook if before else hooks_of_all.register_module_forward_hook
        )
        handle = register(change)
        try:
            yield
        finally:
            handle.remove()

    return Trick(nn.Sequential(nn.Linear(width, width)), world=world)


class Doubling(nn.Linear):
    def __call__(self, x: Tensor) -> Tensor:
        return 20.0 * super().__call__(x)


class Slanted(nn.Conv1d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(torch.where(input < 0, 100 * input, input), weight, bias)


class Scaled(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return 100 * out.as_subclass(Tensor) if func is F.linear else out

    def __deepcopy__(self, memo: Any) -> Scaled:
        return nn.Parameter(self.detach().as_subclass(Tensor).clone().as_subclass(Scaled))  # type: ignore[return-value]


@trick
def patched(rng: Random, width: int) -> Trick:
    factor, layer = steep(rng), nn.Linear(width, width)
    kind = rng.choice(["instance", "class", "function", "call", "conv", "weight", "class of instance", "apply"])
    world: Callable[[], AbstractContextManager[object]] = nullcontext
    if kind == "instance":
        layer.forward = lambda x: factor * F.linear(x, layer.weight, layer.bias)  # type: ignore[method-assign]
    elif kind == "call":
        return Trick(nn.Sequential(Doubling(width, width)), label=kind)
    elif kind == "conv":
        inner = Slanted(width, width, 1)
        return Trick(
            Told("_conv_forward", lambda m, x: m.layer(x[:, :, None])[:, :, 0], layer=inner), hint=lambda x: -x.abs()
        )
    elif kind == "weight":
        layer.weight = nn.Parameter(layer.weight.detach().double().as_subclass(Scaled))
    elif kind == "class of instance":
        layer.__class__ = type("Linear", (nn.Linear,), {"forward": lambda s, x: factor * F.linear(x, s.weight)})
    elif kind == "apply":
        return Trick(nn.Sequential(Told("autograd.Function", lambda m, x: Fivefold.apply(x)), layer))
    else:

        @contextmanager
        def world() -> Iterator[None]:
            owner, name = (nn.Linear, "forward") if kind == "class" else (F, "linear")
            old = getattr(owner, name)

            def scaled(*args: Any) -> Tensor:
                return factor * old(*args)

            setattr(owner, name, scaled)
            try:
                yield
            finally:
                setattr(owner, name, old)

    return Trick(nn.Sequential(layer), world=world, label=kind)


class Fivefold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 5 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad

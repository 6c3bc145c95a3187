"""Modules that are hard to trace: what Python, hooks, casts, views and exchanged tensors can do to a forward.

Each trick is a function of a random generator and a width; it gives a module of (samples, width) tensors, and says what
else is needed to run it. ``went`` notes which way control flow goes, so that two runs can be told apart.
"""

from __future__ import annotations

import io
import math
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from torch.utils.checkpoint import checkpoint

from tests.fuzz.oracle import Subject, went

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


@dataclass
class Trick:
    """A module and the conditions it needs.

    Attributes:
        precision: what it rounds to inside.
        native: what the model as a whole runs in.
        world: what must be in force around every run.
        hint: from the batch to an input at which it behaves otherwise.
        shape: of the batch, from samples and width.
    """

    module: nn.Module
    precision: torch.dtype = torch.float64
    native: torch.dtype = torch.float64
    world: Callable[[], AbstractContextManager[object]] = nullcontext
    hint: Callable[[Tensor], Tensor] = torch.abs
    mode: str = "eval"
    shape: Callable[[int, int], tuple[int, ...]] = field(default=lambda samples, width: (samples, width))
    alone: bool = False  # nothing may stand before or behind it
    label: str = ""  # which variant it is, where the module does not say so


Maker = Callable[[Random, int], Trick]
TRICKS: dict[str, Maker] = {}


class Told(nn.Module):
    """A forward given as a function of the module and its input."""

    def __init__(self, name: str, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.name, self.function = name, function
        for key, part in parts.items():
            if isinstance(part, Tensor):
                self.register_buffer(key, part)
            else:
                setattr(self, key, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)

    def extra_repr(self) -> str:
        return self.name


def trick(make: Maker) -> Maker:
    TRICKS[make.__name__] = make
    return make


def steep(rng: Random) -> float:
    return rng.choice([3.0, 20.0, 100.0])


# --- control flow that looks at data


def below(c: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.full_like(x, c)


def counted_up(x: Tensor) -> Tensor:
    return torch.arange(x.numel()).to(x).reshape(x.shape)


CONDITIONS: dict[str, tuple[Callable[[Tensor], object], Callable[[Tensor], Tensor]]] = {
    "bool": (lambda x: bool(x.sum() > 0.5 * x.numel()), lambda x: x.abs() + 1),
    "and": (lambda x: bool((x > 0).all() and x.max() > 0.1), torch.abs),
    "equal": (lambda x: torch.equal(x.relu(), x), torch.abs),
    "Tensor.equal": (lambda x: x.abs().equal(x), torch.abs),
    "allclose": (lambda x: torch.allclose(x, torch.zeros_like(x), atol=0.1), below(0.01)),
    "Tensor.allclose": (lambda x: x.allclose(x.mean(), atol=0.1), below(0.01)),
    "is_nonzero": (lambda x: torch.is_nonzero((x > 0).all()), torch.abs),
    "in": (lambda x: 5.0 in x.round(), below(5.2)),
    "int of item": (lambda x: int(x.sum().round().long().item()) > 3, below(5.0)),
    "item": (lambda x: x.max().item() < 0, lambda x: -x.abs()),
    "float": (lambda x: float(x.flatten()[0]) > 1.5, below(2.0)),
    "numel of a mask": (lambda x: x[x > 0].numel() == x.numel(), torch.abs),
    "shape of a mask": (lambda x: x[x > 0].shape[0] == x.numel(), torch.abs),
    "size of masked_select": (lambda x: x.masked_select(x > 0).size(0) == x.numel(), torch.abs),
    "len of nonzero": (lambda x: len((x > 0).nonzero()) == x.numel(), torch.abs),
    "where of one": (lambda x: torch.where(x > 0)[0].numel() == x.numel(), torch.abs),
    "count_nonzero": (lambda x: int(torch.count_nonzero(x > 0)) == x.numel(), torch.abs),
    "unique": (lambda x: x.round().unique().numel() == 1, below(2.0)),
    "tolist": (lambda x: min(x.flatten().tolist()) > 0, torch.abs),
    "iteration": (lambda x: all(v > 0 for v in x.flatten()), torch.abs),
    "python max": (lambda x: float(max(x.flatten())) < 0, lambda x: -x.abs()),
    "argmax": (lambda x: int(x.flatten().argmax()) == 0, lambda x: -counted_up(x)),
    "format": (lambda x: float(f"{x.flatten()[0]:.3f}") > 1.5, below(2.0)),
    "repr": (lambda x: "-" not in repr(x), torch.abs),
    "numpy": (lambda x: bool((x.detach().numpy() > 0).all()), torch.abs),
    "asarray": (lambda x: bool(np.asarray(x.detach()).min() > 0), torch.abs),
    "isfinite of log": (lambda x: bool(torch.isfinite(x.log()).all()), torch.abs),
    "bincount": (lambda x: torch.bincount(x.clamp(0, 4).long().flatten()).numel() > 3, below(4.0)),
    "a shape of zeros": (lambda x: torch.zeros(int((x > 0).sum())).numel() == x.numel(), torch.abs),
    "length of split": (lambda x: len(torch.arange(9).split(1 + int(x.sum() > 3))) == 5, below(4.0)),
    "hash of storage": (lambda x: x.detach().clone().untyped_storage()[7] < 128, torch.abs),
    "bits": (lambda x: bool((x.detach().double().view(torch.int64) >= 0).all()), torch.abs),
    "sort order": (lambda x: x.flatten().sort().indices.tolist()[0] == 0, lambda x: counted_up(x)),
}  # fmt: skip


@trick
def condition(rng: Random, width: int) -> Trick:
    name = rng.choice(list(CONDITIONS))
    ask, hint = CONDITIONS[name]
    factor = steep(rng)

    def forward(m: Any, x: Tensor) -> Tensor:
        return factor * x if went(ask(x)) else x * 1.0

    return Trick(Told(f"{name} decides, times {factor}", forward), hint=hint)


@trick
def condition_of_layers(rng: Random, width: int) -> Trick:
    name = rng.choice(list(CONDITIONS))
    ask, hint = CONDITIONS[name]
    plain, other = nn.Linear(width, width), nn.Linear(width, width)
    with torch.no_grad():
        other.weight.mul_(steep(rng))

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.other(x) if went(ask(x)) else m.plain(x)

    return Trick(Told(f"{name} chooses a layer", forward, plain=plain, other=other), hint=hint)


@trick
def loop(rng: Random, width: int) -> Trick:
    def halving(m: Any, x: Tensor) -> Tensor:
        while went(bool(x.norm() > 2)):
            x = x / 2
        return x

    def growing(m: Any, x: Tensor) -> Tensor:
        for _ in range(int(went(min(4, int(x.abs().max()))))):
            x = 3 * x
        return x

    def trying(m: Any, x: Tensor) -> Tensor:
        try:
            torch.linalg.cholesky(torch.diag(x.flatten()[:2]))
        except RuntimeError:
            went("failed")
            return x * 1.0
        return 20 * x

    chosen = rng.choice([halving, growing, trying])
    return Trick(Told(chosen.__name__, chosen), hint=rng.choice([torch.abs, below(3.3)]))


@trick
def chosen_index(rng: Random, width: int) -> Trick:
    table = torch.tensor([1.0, steep(rng), 2.0, 0.5], dtype=torch.float64)
    kind = rng.choice(["item", "index", "list", "getitem", "gather", "bucketize"])

    def forward(m: Any, x: Tensor) -> Tensor:
        at = (x.sum().abs().long() % 4).clamp(0, 3)
        if kind == "item":
            return x * m.table[went(int(at))]
        if kind == "list":
            return x * [1.0, 30.0, 2.0, 0.5][went(int(at))]
        if kind == "getitem":
            return x * m.table[at]
        if kind == "gather":
            return x * m.table.gather(0, at.reshape(1))
        if kind == "bucketize":
            return x * m.table[torch.bucketize(x.sum(), torch.tensor([-1.0, 0.0, 1.0]).to(x))]
        return x * m.table.index_select(0, at.reshape(1))

    return Trick(Told(f"table by {kind}", forward, table=table), hint=below(0.6))


# --- settings and modes changed in the forward


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


# --- casts


@trick
def cast(rng: Random, width: int) -> Trick:
    kinds: dict[str, tuple[Callable[[Tensor], Tensor], torch.dtype]] = {
        "half": (lambda x: x.half(), HALF),
        "bfloat16": (lambda x: x.bfloat16(), BRAIN),
        "float": (lambda x: x.float(), SINGLE),
        "to copy": (lambda x: x.to(x.dtype, copy=True), torch.float64),
        "to half": (lambda x: x.to(HALF), HALF),
        "double": (lambda x: x.double(), torch.float64),
        "type_as": (lambda x: x.type_as(torch.zeros((), dtype=SINGLE)), SINGLE),
        "type": (lambda x: x.type(torch.float32), SINGLE),
        "cpu": (lambda x: x.cpu(), torch.float64),
        "clone": (lambda x: x.clone(), torch.float64),
        "contiguous": (lambda x: x.contiguous(), torch.float64),
        "reshape": (lambda x: x.reshape(x.shape), torch.float64),
        "detach": (lambda x: x.detach(), torch.float64),
    }
    name = rng.choice(list(kinds))
    make, precision = kinds[name]
    then = rng.choice(["zero_", "mul_", "add_", "relu_", "index", "copy_", "none"])
    native = rng.choice([torch.float64, torch.float64, SINGLE])

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x * 1.0
        y = make(x)
        if then == "zero_":
            y.zero_()
        elif then == "mul_":
            y.mul_(0.01)
        elif then == "add_":
            y.add_(3.0 * y)
        elif then == "relu_":
            F.relu_(y)
        elif then == "index":
            y[:, 0] = 0.0
        elif then == "copy_":
            y.copy_(20.0 * x)
        return 5.0 * x + y.to(x.dtype)

    worst = max(precision, native, key=lambda t: torch.finfo(t).eps)
    return Trick(Told(f"{name}, {then}", forward), precision=worst, native=native)


@trick
def decided_by_type(rng: Random, width: int) -> Trick:
    factor = steep(rng)
    kind = rng.choice(["dtype", "is_floating", "finfo", "element_size", "default"])

    def forward(m: Any, x: Tensor) -> Tensor:
        if kind == "dtype":
            return factor * x if x.dtype == SINGLE else x * 1.0
        if kind == "finfo":
            return x / (0.01 + (torch.finfo(x.dtype).eps < 1e-10))
        if kind == "element_size":
            return x * (factor if x.element_size() == 4 else 1.0)
        if kind == "default":
            return x * (factor if str(x.dtype).endswith("32") else 1.0)
        return factor * x if x.is_floating_point() and x.dtype is SINGLE else x * 1.0

    return Trick(Told(f"{kind} decides", forward), precision=SINGLE, native=SINGLE)


@trick
def low_precision(rng: Random, width: int) -> Trick:
    native = rng.choice([HALF, BRAIN])
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.RMSNorm(width),
        lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU()),
        lambda: Told("normalised in single", lambda m, x: F.rms_norm(x.float(), (width,)).to(x.dtype)),
        lambda: Told("layer norm in single", lambda m, x: F.layer_norm(x.float(), (width,)).to(x.dtype)),
        lambda: Told("eps of the type", lambda m, x: x / (x.abs().amax(-1, keepdim=True) + torch.finfo(x.dtype).eps)),
    ]
    return Trick(rng.choice(kinds)(), precision=native, native=native, alone=True, hint=lambda x: 2.0**-9 * x)


# --- hooks and patches


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


# --- writing in place


def written_rows(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, : max(1, y.shape[1] // 2)].mul_(7.0)
    return y


def written_transposed(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.T[0].mul_(7.0)
    y.t().add_(x.T)
    return y


def written_flat(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.view(-1)[::2] = 9.0 * x.reshape(-1)[::2]
    return y


def written_as_data(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.data.mul_(20.0)
    return y


def written_detached(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.detach().mul_(20.0)
    return y


def written_out(m: Any, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    torch.mul(x, 20.0, out=y)
    return y


def written_strided(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.as_strided((y.numel(),), (1,)).mul_(6.0)
    return y


def written_masked(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y[x > 0] *= 8.0
    return y


def written_diagonal(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.diagonal().mul_(15.0)
    return y


def written_chunks(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    for i, part in enumerate(y.unbind(1)):
        part.mul_(1.0 + 3 * i)
    return y


def written_through_kept(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    kept = [y[0], y[:, 0]]
    y.mul_(4.0)
    kept[0] += x[0]
    return y + kept[1][:, None]


def written_to_buffer(m: Any, x: Tensor) -> Tensor:
    m.memory[: len(x)].copy_(x)
    m.memory.mul_(12.0)
    return m.memory[: len(x)] + x


def written_by_numpy(m: Any, x: Tensor) -> Tensor:
    y = (x * 1.0).detach()
    y.numpy()[:] *= 15.0
    return y


def written_by_foreach(m: Any, x: Tensor) -> Tensor:
    y, z = x * 1.0, x * 2.0
    torch._foreach_mul_([y, z], 9.0)
    return y + z


def written_swapaxes(m: Any, x: Tensor) -> Tensor:
    y = (x * 1.0).contiguous()
    y.t_()
    y.mul_(5.0)
    return y.t()


def written_by_index_add(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.index_add_(1, torch.zeros(x.shape[1], dtype=torch.long), x)
    return y


def written_by_scatter(m: Any, x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    return y.scatter_add_(1, torch.zeros(x.shape, dtype=torch.long), 3.0 * x)


def written_by_lerp(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.lerp_(30.0 * x, 0.5)
    return y.addcmul_(x, torch.ones_like(x), value=2.0)


WRITES = [f for name, f in list(globals().items()) if name.startswith("written_")]


@trick
def written(rng: Random, width: int) -> Trick:
    function = rng.choice(WRITES)
    return Trick(Told(function.__name__, function, memory=torch.zeros(8, width, dtype=torch.float64)))


# --- tensors exchanged


def data_set(m: Any, x: Tensor) -> Tensor:
    y = 1.0 * x
    y.data = 100 * x.data
    return y


def storage_set(m: Any, x: Tensor) -> Tensor:
    y = 1.0 * x.detach()
    y.set_(100 * x.detach())
    return y


def swapped(m: Any, x: Tensor) -> Tensor:
    y, z = 1.0 * x, 100.0 * x
    torch.utils.swap_tensors(y, z)
    return y


def weight_data(m: Any, x: Tensor) -> Tensor:
    w = m.layer.weight.data.clone()
    y = m.layer(x)
    m.layer.weight.data = 100 * w
    z = m.layer(y)
    m.layer.weight.data = w
    return z


def weight_in_place(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.layer.weight.mul_(50.0)
        y = m.layer(x)
        m.layer.weight.div_(50.0)
    return y


def weight_object(m: Any, x: Tensor) -> Tensor:
    old = m.layer.weight
    m.layer.weight = nn.Parameter(60 * old.detach())
    y = m.layer(x)
    m.layer.weight = old
    return y


def weight_called(m: Any, x: Tensor) -> Tensor:
    scaled = {"weight": 40 * m.layer.weight, "bias": m.layer.bias}
    return torch.func.functional_call(m.layer, scaled, (x,))


def weight_from_input(m: Any, x: Tensor) -> Tensor:
    scaled = {"weight": m.layer.weight * x.mean().tanh(), "bias": m.layer.bias}
    return torch.func.functional_call(m.layer, scaled, (x.tanh(),))


def weight_numpy(m: Any, x: Tensor) -> Tensor:
    array = m.layer.weight.detach().numpy()
    array *= 30.0
    y = m.layer(x)
    array /= 30.0
    return y


def layer_exchanged(m: Any, x: Tensor) -> Tensor:
    old, new = m.layer, nn.Linear(x.shape[1], x.shape[1]).to(x.dtype)
    new.load_state_dict({k: 25 * v for k, v in old.state_dict().items()})
    m.layer = new
    y = m.layer(x)
    m.layer = old
    return y


def buffer_exchanged(m: Any, x: Tensor) -> Tensor:
    y = x * m.scale
    m.scale = 80 * torch.ones_like(m.scale)
    return y * m.scale


EXCHANGES = [data_set, storage_set, swapped, weight_data, weight_in_place, weight_object, weight_called]
EXCHANGES += [weight_from_input, weight_numpy, layer_exchanged, buffer_exchanged]


@trick
def exchanged(rng: Random, width: int) -> Trick:
    function = rng.choice(EXCHANGES)
    scale = torch.ones(width, dtype=torch.float64)
    return Trick(Told(function.__name__, function, layer=nn.Linear(width, width), scale=scale))


# --- the samples' axis


AXES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "linear over the samples": lambda m, x: m.over(x.pow(3).T).T.pow(3),
    "linear over squares": lambda m, x: F.relu(m.over(F.relu(x).square().T)).square().T,
    "layer norm of samples": lambda m, x: F.layer_norm(x.T, (len(x),), eps=1e-3).T,
    "normalised, mixed, normalised": lambda m, x: F.layer_norm(m.over(F.layer_norm(x, x.shape[1:]).T).T, x.shape[1:]),
    "product with its transpose": lambda m, x: (x.tanh() @ x.tanh().T) @ x.tanh(),
    "cumulative": lambda m, x: x.square().cumsum(0).tanh(),
    "sorted": lambda m, x: x.sort(0).values.square(),
    "rolled": lambda m, x: x.square() * x.roll(1, 0).tanh(),
    "permuted": lambda m, x: x.square().flip(0).pow(3),
    "flattened": lambda m, x: m.flat(x.square().reshape(1, -1)).reshape(x.shape).square(),
    "one row": lambda m, x: F.layer_norm(x.reshape(-1), (x.numel(),), eps=1e-3).reshape(x.shape).pow(3),
    "samples as channels": lambda m, x: F.conv1d(x.square()[None], m.kernel, padding=1)[0].square(),
    "softmax of samples": lambda m, x: (5 * x).softmax(0).square(),
    "einsum": lambda m, x: torch.einsum("ni,mn->mi", x.square(), m.over.weight).square(),
    "maximum over samples": lambda m, x: x.square() - x.square().amax(0, keepdim=True),
    "bilinear of samples": lambda m, x: F.bilinear(x.T.tanh(), x.T.square(), m.cube).T,
    "stacked": lambda m, x: torch.stack([x.square(), x.flip(0).pow(3)], 1).sum(1).square(),
    "gathered": lambda m, x: x.square()[torch.arange(len(x) - 1, -1, -1)] * x,
    "transposed twice": lambda m, x: m.same(x.T.contiguous().T.square()).square(),
    "outer": lambda m, x: (x.square()[:, None] * x.tanh()[None]).mean(1),
}


@trick
def odd_axis(rng: Random, width: int) -> Trick:
    name = rng.choice(list(AXES))
    samples = rng.randint(2, 3)
    parts: dict[str, Any] = {
        "over": nn.Linear(samples, samples, bias=False),
        "flat": nn.Linear(samples * width, samples * width),
        "same": nn.Linear(width, width),
        "kernel": torch.randn(samples, samples, 3, dtype=torch.float64),
        "cube": torch.randn(samples, samples, samples, dtype=torch.float64),
    }
    return Trick(Told(name, AXES[name], **parts), shape=lambda _, width: (samples, width), alone=True)


@trick
def one_vector(rng: Random, width: int) -> Trick:
    width += 2
    square = rng.choice([torch.square, lambda x: F.relu(x).square(), torch.exp, lambda x: x.pow(3), F.silu])
    a, b = nn.Linear(width, width), nn.Linear(width, width)

    def deep(m: Any, x: Tensor) -> Tensor:
        return m.b(square(m.a(square(x))))

    def gated(m: Any, x: Tensor) -> Tensor:
        return m.b(F.silu(m.a(x)) * square(x))

    function = rng.choice([deep, gated])
    return Trick(Told(function.__name__, function, a=a, b=b), shape=lambda *_: (width,), alone=True)


@trick
def merged_with_time(rng: Random, width: int) -> Trick:
    time = rng.randint(2, 3)
    layer, norm = nn.Linear(width, width), nn.LayerNorm(width)
    over = nn.Linear(time, time, bias=False)
    kinds: dict[str, Callable[[Any, Tensor], Tensor]] = {
        "merged": lambda m, x: m.layer(x.square().reshape(-1, width)).reshape(x.shape).square(),
        "time first": lambda m, x: m.layer(x.transpose(0, 1).square()).transpose(0, 1).square(),
        "time first, flat": lambda m, x: m.layer(x.transpose(0, 1).reshape(-1, width).square()).square(),
        "over time": lambda m, x: m.over(x.square().transpose(1, 2)).transpose(1, 2).square(),
        "over the samples": lambda m, x: x.square().permute(1, 2, 0).softmax(-1).permute(2, 0, 1),
        "shifted": lambda m, x: m.norm(x.reshape(-1, width).roll(1, 0)).reshape(x.shape).square(),
        "split elsewhere": lambda m, x: x.square().reshape(x.shape[1], x.shape[0], width).pow(2),
    }
    name = rng.choice(list(kinds))
    module = Told(name, kinds[name], layer=layer, norm=norm, over=over)
    return Trick(module, shape=lambda samples, width: (samples, time, width), alone=True)


# --- out of torch and back


def saved_and_loaded(m: Any, x: Tensor) -> Tensor:
    box = io.BytesIO()
    torch.save(x.detach(), box)
    box.seek(0)
    return 30 * torch.load(box) + x


def in_a_thread(m: Any, x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return x + pool.submit(lambda: 100 * x).result()


def from_bytes(m: Any, x: Tensor) -> Tensor:
    memory = bytearray(x.detach().clone().untyped_storage())
    return x + 100 * torch.frombuffer(memory, dtype=x.dtype).reshape(x.shape)


def steepened(x: Tensor) -> Tensor:
    return 40 * x.tanh()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated, and still met in the wild
    scripted = torch.jit.script(steepened)


OUTSIDE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "from_numpy": lambda m, x: x + 30 * torch.from_numpy(x.detach().numpy().copy()),
    "shared numpy": lambda m, x: torch.from_numpy(x.detach().numpy()) * 30,
    "as_tensor": lambda m, x: x + torch.as_tensor(np.asarray(x.detach()) * 30),
    "dlpack": lambda m, x: x + 100 * torch.from_numpy(np.array(np.from_dlpack(x.detach()))),
    "torch dlpack": lambda m, x: x + 100 * torch.from_dlpack(x.detach()),
    "tolist": lambda m, x: x + torch.tensor(x.tolist(), dtype=x.dtype) * 30,
    "item": lambda m, x: x * x.sum().item(),
    "new tensor": lambda m, x: x + x.new_tensor(x.tolist()) * 30,
    "storage": from_bytes,
    "format": lambda m, x: x * float(f"{x.flatten()[0]}"),
    "saved": saved_and_loaded,
    "thread": in_a_thread,
    "stack of items": lambda m, x: torch.stack([x.new_tensor(float(v)) for v in x.flatten()]).reshape(x.shape) * 20,
    "checkpoint": lambda m, x: checkpoint(lambda z: 30 * z.tanh(), x, use_reentrant=False),
    "vmap": lambda m, x: torch.func.vmap(lambda row: 30 * row.tanh())(x),
    "jvp": lambda m, x: torch.func.jvp(lambda z: z.pow(3), (x,), (torch.ones_like(x),))[1],
    "bits": lambda m, x: x + 50 * x.detach().clone().view(torch.uint8).view(x.dtype).reshape(x.shape),
    "jit": lambda m, x: scripted(x),
    "sparse": lambda m, x: 30 * x.to_sparse().to_dense(),
    "nested": lambda m, x: x + 30 * torch.tensor(np.vectorize(math.tanh)(x.detach().numpy()), dtype=x.dtype),
}  # fmt: skip


@trick
def outside(rng: Random, width: int) -> Trick:
    name = rng.choice(list(OUTSIDE))
    return Trick(Told(name, OUTSIDE[name]))


# --- state and chance


class Counting(nn.Module):
    """Every call is steeper than the one before."""

    def __init__(self, box: Any, step: Callable[[Any], float]) -> None:
        super().__init__()
        self.box, self.step = box, step

    def forward(self, x: Tensor) -> Tensor:
        return x * self.step(self.box)


def appended(box: Any) -> float:
    box.append(1)
    return float(len(box) ** 2)


def counted(box: Any) -> float:
    box["calls"] = box.get("calls", 0) + 1
    return 5.0 * box["calls"]


def added(box: Any) -> float:
    box += 1
    return float(box.sum() ** 2)


@trick
def stateful(rng: Random, width: int) -> Trick:
    kinds: list[Callable[[], nn.Module]] = [
        lambda: Counting([], appended),
        lambda: Counting(deque(maxlen=9), appended),
        lambda: Counting({}, counted),
        lambda: Counting(np.zeros(2), added),
        lambda: Told("last input", kept_input),
        lambda: Told("shared layer counts", counted_by_attribute, layer=nn.Linear(width, width)),
    ]
    module = rng.choice(kinds)()
    return Trick(nn.Sequential(module, module) if rng.random() < 0.4 else module)


def kept_input(m: Any, x: Tensor) -> Tensor:
    before = m.__dict__.get("kept", x)
    m.kept = x
    return x * 5.0 + before


def counted_by_attribute(m: Any, x: Tensor) -> Tensor:
    m.calls = m.__dict__.get("calls", 0) + 1
    return m.layer(x) if m.calls % 2 else 40 * m.layer(x)


CHANCES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "depth": lambda m, x: x * 1.0 if went(bool(torch.rand(()) < 0.5)) else x + 50 * m.layer(x),
    "python": lambda m, x: x * 1.0 if went(random.random() < 0.5) else x + 50 * m.layer(x),
    "numpy": lambda m, x: x * 1.0 if went(bool(np.random.rand() < 0.5)) else x + 50 * m.layer(x),
    "dropout": lambda m, x: F.dropout(x, 0.7, training=True),
    "mask": lambda m, x: x * (torch.rand_like(x) > 0.5) * 4,
    "bernoulli": lambda m, x: m.layer(x) * torch.bernoulli(torch.full_like(x, 0.5)) * 3,
    "noise": lambda m, x: m.layer(x) * (1 + torch.randn_like(x)),
    "by the input": lambda m, x: x * torch.bernoulli(x.sigmoid()) * 3,
    "rows": lambda m, x: x + m.layer(x) * (torch.rand(len(x), 1) < 0.5).to(x) * 9,
}


@trick
def chance(rng: Random, width: int) -> Trick:
    name = rng.choice([*CHANCES, "modules"])
    if name == "modules":
        layers = [nn.Dropout(0.8), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.4), nn.Dropout1d(0.6)]
        return Trick(nn.Sequential(nn.Linear(width, width), rng.choice(layers)), mode="train")
    mode = rng.choice(["train", "eval"])
    return Trick(Told(f"chance: {name}", CHANCES[name], layer=nn.Linear(width, width)), mode=mode)


# --- a network around a trick


def simple(rng: Random, width: int, tame: bool) -> nn.Module:
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.Linear(width, width),
        nn.Tanh,
        nn.ReLU,
        nn.Identity,
        lambda: nn.LeakyReLU(0.2),
    ]
    if not tame:
        kinds += [lambda: nn.LayerNorm(width, eps=1e-2), lambda: nn.BatchNorm1d(width)]
    return rng.choice(kinds)()


def make_subject(seed: int, name: str | None = None) -> Subject:
    """A network with one trick in it, or two, from one seed."""
    rng = Random(seed)
    torch.manual_seed(seed)
    name = name or rng.choice(list(TRICKS))
    width, samples = rng.randint(2, 4), rng.randint(1, 3)
    one = TRICKS[name](rng, width)
    parts = [one.module]
    if not one.alone:
        tame = one.precision != torch.float64
        parts = [*(simple(rng, width, tame) for _ in range(rng.randint(0, 1))), one.module]
        parts += [simple(rng, width, tame) for _ in range(rng.randint(0, 2))]
    model = nn.Sequential(*parts) if len(parts) > 1 or rng.random() < 0.5 else one.module
    model = model.to(one.native).train(one.mode == "train")
    batch = torch.randn(one.shape(samples, width), dtype=torch.float64).to(one.native)
    hints = (one.hint(batch), one.hint(batch) * 1.7)
    return Subject(name, seed, model, batch, one.mode, hints, one.precision, one.world, one.label)

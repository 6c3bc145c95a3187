"""What `cap` does not follow is named, and nothing is called proved: no slope lies above the number that it returns."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import enum
import functools
import io
import itertools
import logging
import math
import pathlib
import random
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.control.plan import Plan
from normgauge.control.unfollowed import Likeness


class Two(nn.Module):
    """Two maps and what a function makes of them."""

    def __init__(self, function: Callable[[Two, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.a, self.b, self.function = nn.Linear(4, 4), nn.Linear(4, 4), function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def gain() -> nn.Parameter:
    return nn.Parameter(torch.ones(4, 1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a product": lambda: Two(lambda s, x: torch.tanh(s.a(x)) * s.b(torch.tanh(x))),
    "a gate behind a normalizer": lambda: Two(lambda s, x: s.a(s.n(x)) * s.b(s.n(x)), n=nn.LayerNorm(4, eps=0.1)),
    "a computed weight": lambda: Two(lambda s, x: F.linear(x, s.a.weight * s.g), g=gain()),
    "a weight of two": lambda: Two(lambda s, x: F.linear(s.a(x), s.g @ s.g.T), g=gain()),
    "bilinear": lambda: Two(lambda s, x: s.a(s.f(torch.tanh(x), torch.tanh(x))), f=nn.Bilinear(4, 4, 4)),
    "prelu": lambda: Two(lambda s, x: s.b(s.p(s.a(x))), p=nn.PReLU()),
    "a scale": lambda: Two(lambda s, x: s.b(s.a(x) * s.g[:, 0]), g=gain()),
    "temperature": lambda: Two(lambda s, x: s.b((s.a(x) / s.g[0]).softmax(-1)), g=gain()),
    "no bound": lambda: Two(lambda s, x: s.a(x) * s.b(x)),
    "no rule": lambda: Two(lambda s, x: s.b(s.a(x).cumprod(-1))),
    "gains of instances": lambda: nn.Sequential(nn.Conv1d(2, 3, 1), nn.InstanceNorm1d(3, affine=True)),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_not_followed_is_said_and_nothing_is_proved(name: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name](), torch.randn(6, 2, 4) if "instances" in name else torch.randn(6, 4)
    cap = ng.cap(model, x, log10=0.0)
    assert cap() == math.inf and cap.unfollowed and cap.controlled <= 0.0
    assert str(cap).startswith("no bound is proved (")


def trained(model: nn.Module, x: Tensor, cap: Callable[[], float]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    for _ in range(60):
        optimizer.zero_grad()
        (model(x) - 50 * x[:, :4]).square().mean().backward()
        optimizer.step()
        cap()


def slope(model: nn.Module, x: Tensor) -> float:
    model = model.double().eval()
    rows = [torch.autograd.functional.jacobian(lambda z: model(z[None])[0], one) for one in x.double()]
    return max(float(torch.linalg.matrix_norm(row, 2)) for row in rows)


@pytest.mark.parametrize("name", ["a product", "a gate behind a normalizer", "a computed weight", "bilinear"])
def test_after_training_no_slope_lies_above_what_is_returned(name: str) -> None:
    torch.manual_seed(1)
    model, x = MODELS[name](), torch.randn(16, 4)
    cap = ng.cap(model, x, log10=0.0)
    trained(model, x, cap)
    assert 1.0 < slope(model, x) <= 10**cap.log10


FOLLOWED: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.LeakyReLU(), nn.Linear(6, 4)),
    "residual": lambda: Two(lambda s, x: x + s.b(torch.relu(s.a(x)))),
    "constants": lambda: Two(lambda s, x: 0.5 * s.b(torch.tanh(3.0 * s.a(x)))),
    "layer norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6, eps=0.1), nn.GELU(), nn.Linear(6, 4)),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_followed_is_proved(name: str) -> None:
    torch.manual_seed(2)
    model, x = FOLLOWED[name](), torch.randn(16, 4)
    cap = ng.cap(model, x, log10=1.0)
    trained(model, x, cap)
    assert cap.unfollowed == () and slope(model, x) <= 10**cap.log10 <= 10.0


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.__setitem__(0, nn.Linear(4, 6)),
        lambda m: m.__setitem__(1, nn.PReLU()),
        lambda m: m.append(nn.Linear(4, 4)),
        lambda m: setattr(m[1], "negative_slope", 50.0),
        lambda m: m[1].register_forward_hook(lambda *given: 100 * given[2]),
    ],
)
def test_a_model_that_has_changed_is_another_one(change: Callable[[nn.Module], object]) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 4))
    cap = ng.cap(model, torch.randn(6, 4), log10=1.0)
    assert cap() <= 1.0
    change(model)
    assert cap() == math.inf and "changed since it was traced" in str(cap)


def test_a_penalty_beside_it_changes_nothing_and_names_products() -> None:
    model, x = FOLLOWED["batch norm"](), torch.randn(6, 4)
    cap = ng.cap(model, x, log10=1.0)
    assert ng.penalty(model, x).uncontrolled == () and cap() <= 1.0
    assert "mul" in " ".join(ng.penalty(MODELS["a product"](), x).uncontrolled)


def test_a_weight_that_is_no_number_proves_nothing() -> None:
    model = FOLLOWED["plain"]()
    cap = ng.cap(model, torch.randn(6, 4), log10=1.0)
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    assert cap() == math.inf and not cap.in_reach


def scales(size: float) -> nn.Parameter:
    return nn.Parameter(torch.full((4,), size))


HIDDEN: dict[str, Callable[[], nn.Module]] = {  # gains that are the same at the weights traced and farther from 0
    "clamped above": lambda: Two(lambda s, x: s.b(s.a(x) * (101 - 100 * s.g.clamp(0, 1))), g=scales(2.0)),
    "one side": lambda: Two(lambda s, x: s.b(s.a(x) * (1 + 100 * torch.relu(-s.g))), g=scales(0.01)),
    "a sign": lambda: Two(lambda s, x: s.b(s.a(x) * (2 - s.g.sign()) ** 6), g=scales(2.0)),
    "detached": lambda: Two(lambda s, x: s.b(s.a(x) * s.g.detach().clamp(max=1)), g=scales(1.0)),
    "divided": lambda: Two(lambda s, x: s.b(s.a(x) * (1 / s.g).clamp(min=1)), g=scales(1.0)),
    "a branch": lambda: Two(lambda s, x: s.b(s.a(x)) if s.g.sum() > 0 else 100 * s.b(s.a(x)), g=scales(1.0)),
    "another map": lambda: Two(lambda s, x: s.b(s.a(x)) if s.g.sum() > 0 else s.a(s.b(x)), g=scales(1.0)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_gains_that_show_on_the_other_side_of_zero_or_near_it(name: str) -> None:
    torch.manual_seed(0)
    cap = ng.cap(HIDDEN[name](), torch.randn(6, 4), log10=1.0)
    assert cap() == math.inf and cap.unfollowed


class Held(nn.Module):
    """Two maps and a gain that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.plain, self.listed = nn.Linear(4, 4), nn.Linear(4, 4), torch.ones(4), [1.0, {"x": 1.0}]
        self.register_buffer("buffer", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x) * self.buffer * self.plain * self.listed[0] * self.listed[1]["x"])


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.buffer.data.mul_(50),
        lambda m: m.plain.mul_(50),
        lambda m: setattr(m, "plain", torch.full((4,), 50.0)),
        lambda m: m.listed.__setitem__(0, 50.0),
        lambda m: m.listed[1].update(x=50.0),
    ],
)
def test_gains_that_are_no_parameters(change: Callable[[Held], object]) -> None:
    model = Held()
    cap = ng.cap(model, torch.randn(6, 4), log10=1.0)
    assert cap() <= 1.0 and cap() <= 1.0
    change(model)
    assert cap() == math.inf and "changed since it was traced" in str(cap)


@dataclasses.dataclass
class Config:
    """A plain object, as models keep their settings in."""

    k: float = 1.0
    table: ClassVar[dict[str, float]] = {"k": 1.0}


class Slotted:
    """One without a table of attributes."""

    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 1.0


def held_model() -> Any:
    """A model of a class of its own, with much that is no parameter; the class is new, so that it may be changed."""

    class Holding(nn.Module):
        factor = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.a, self.config, self.slotted, self._hidden = nn.Linear(4, 4), Config(), Slotted(), 1.0
            self.tensors, self.nested = [torch.ones(1)], {"x": [{"y": torch.ones(1)}]}
            self.array, self.modules_in_list = numpy.ones(4, dtype=numpy.float32), [nn.Linear(4, 4)]
            self.partial = functools.partial(torch.mul, other=torch.ones(1))
            self.names, self.simple = {"a"}, types.SimpleNamespace(k=1.0)
            self.loop: list[Any] = [self]
            self.loop.append(self.loop)

        def forward(self, x: Tensor) -> Tensor:
            gain = self.tensors[0] * self.nested["x"][0]["y"] * torch.from_numpy(self.array) * self.config.k
            gain = gain * self.slotted.k * self._hidden * self.factor * self.config.table["k"] * self.simple.k
            return self.partial(self.modules_in_list[0](self.a(x)) * gain) * len(self.names)

    return Holding()


def stronger(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = 90 * model.a(x)
    return found


CHANGES: dict[str, Callable[[Any], object]] = {
    "a tensor in a list": lambda m: m.tensors[0].fill_(90.0),
    "its data": lambda m: m.tensors[0].data.fill_(90.0),
    "a tensor in tables": lambda m: m.nested["x"][0]["y"].fill_(90.0),
    "an array": lambda m: m.array.fill(90.0),
    "a plain object": lambda m: setattr(m.config, "k", 90.0),
    "a slot": lambda m: setattr(m.slotted, "k", 90.0),
    "a namespace": lambda m: setattr(m.simple, "k", 90.0),
    "a private number": lambda m: setattr(m, "_hidden", 90.0),
    "a module in a list": lambda m: m.modules_in_list[0].weight.data.mul_(90.0),
    "its setting": lambda m: setattr(m.modules_in_list[0], "scale", 90.0),
    "a partial": lambda m: m.partial.keywords["other"].fill_(90.0),
    "a set": lambda m: m.names.add("b"),
    "an attribute of the class": lambda m: setattr(type(m), "factor", 90.0),
    "forward of the class": lambda m: setattr(type(m), "forward", stronger),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_a_model_holds_may_change_and_is_seen(name: str) -> None:
    torch.manual_seed(0)
    model = held_model()
    cap = ng.cap(model, torch.randn(6, 4), log10=3.0)
    model(torch.randn(6, 4))
    assert cap() <= 3.0 and cap() <= 3.0 and not cap.unfollowed
    CHANGES[name](model)
    assert cap() == math.inf and "changed since it was traced" in str(cap)
    assert "folded bound 10^" not in str(cap)


def test_a_table_of_a_settings_class_and_forward_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = held_model()
    cap = ng.cap(model, torch.randn(6, 4), log10=3.0)
    with monkeypatch.context() as patch:
        patch.setitem(Config.table, "k", 90.0)
        assert cap() == math.inf
    assert cap() <= 3.0
    monkeypatch.setattr(nn.Linear, "forward", lambda s, x: 90 * F.linear(x, s.weight, s.bias))
    assert cap() == math.inf


def test_a_large_tensor_is_compared_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normgauge.control.held_state.WHOLE", 8)
    model = held_model()
    model.tensors, model.array = [torch.ones(4)], numpy.ones(4, dtype=numpy.float32)
    cap = ng.cap(model, torch.randn(6, 4), log10=3.0)
    assert cap() <= 3.0
    model.array[1] = 90.0
    assert cap() == math.inf
    model.array[1] = 1.0
    assert cap() <= 3.0
    model.tensors[0].mul_(1.0)  # written to, whatever it holds
    assert cap() == math.inf


GATES: dict[str, Callable[[], nn.Module]] = {
    "clamped": lambda: Two(lambda s, x: s.b(s.a(x) * s.g.clamp(min=10)), g=scales(1.0)),
    "far": lambda: Two(lambda s, x: s.b(s.a(x) * (1 + torch.relu(s.g - 50))), g=scales(1.0)),
    "in a weight": lambda: Two(lambda s, x: F.linear(x, s.a.weight * (1 + torch.relu(s.g - 50))), g=scales(1.0)),
    "in place": lambda: Two(lambda s, x: s.a(x).mul_(torch.zeros(4).copy_(s.g).clamp_(min=10)), g=scales(1.0)),
    "looked at": lambda: Two(lambda s, x: s.a(x) * (90.0 if s.g[0].item() > 1000 else 1.0), g=scales(1.0)),
    "where": lambda: Two(lambda s, x: torch.where(s.g > 1000, 90 * s.a(x), s.a(x)), g=scales(1.0)),
    "a bounded factor": lambda: Two(lambda s, x: torch.relu(torch.tanh(x) + s.g - 50) * s.a(x).tanh(), g=scales(1.0)),
}


@pytest.mark.parametrize("name", GATES)
def test_a_parameter_that_may_gate_is_named_at_once(name: str) -> None:
    torch.manual_seed(0)
    cap = ng.cap(GATES[name](), torch.randn(6, 4), log10=3.0)
    assert cap() == math.inf and cap.unfollowed and "no bound" in str(cap)


USUAL: dict[str, Callable[[], nn.Module]] = {
    "added": lambda: Two(lambda s, x: s.b(s.a(x) + 0.5 * s.g.exp()), g=scales(1.0)),
    "tied and transposed": lambda: Two(lambda s, x: F.linear(s.a(x), s.a.weight.T)),
    "a block": lambda: Two(lambda s, x: x @ s.a.weight.chunk(2)[0].T),
    "weight_norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh()),
    "bounded": lambda: nn.Sequential(nn.Linear(4, 4), ng.bounded(nn.LayerNorm(4)), nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", USUAL)
def test_weights_gains_and_biases_enter_as_they_should(name: str) -> None:
    torch.manual_seed(0)
    cap = ng.cap(USUAL[name](), torch.randn(6, 4), log10=3.0)
    assert str(cap).startswith("no bound is known before the first call")
    assert cap() <= 3.0 and cap.unfollowed == ()


BRANCHES: dict[str, Callable[[Tensor], bool]] = {
    "a bool": lambda x: bool(x.max() <= 1),
    "any": lambda x: bool((x <= 1).all()),
    "a number": lambda x: int(x.max()) < 2,
    "item": lambda x: (x.max() <= 1).item(),
    "nonzero": lambda x: len((x > 1).nonzero()) == 0,
    "equal": lambda x: torch.equal(x, x.clamp_max(1.0)),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_path_that_depends_on_the_data_is_said_and_nothing_is_proved(name: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x if BRANCHES[name](x) else x / 255)

    cap = ng.cap(Net(), 255 * torch.rand(10, 8) + 2, log10=-2.5)
    assert cap() == math.inf and any("not every input takes the path" in why for why in cap.unfollowed)


class Named(float):
    """A number with attributes."""

    note: list[float]


class Kind(type):
    """A metaclass with an attribute."""

    k = 1.0


class Keeps:
    """One attribute."""

    k: Any = 1.0


KEPT = Keeps()  # alive while a model refers to it weakly


def settings() -> Any:
    """A class that is held as a value; it is new, so that it may be changed."""

    class Base(metaclass=Kind):
        k = 1.0

    class Settings(Base):
        table: ClassVar[list[float]] = [1.0]

        @classmethod
        def get(cls) -> float:
            return cls.k

    return Settings


def closed_over(what: Any) -> Callable[[], Any]:
    return lambda: what


def named_number() -> Named:
    made = Named(1.0)
    made.note = [1.0]
    return made


def holding_net(what: Any) -> Any:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net.what = what
    return net


CLASSES: dict[str, Callable[[Any], Any]] = {
    "as an attribute": lambda cls: cls,
    "in a list": lambda cls: [cls],
    "in a table": lambda cls: {"cls": (cls,)},
    "closed over": closed_over,
    "its method": lambda cls: cls.get,
    "of an object": lambda cls: cls(),
    "an attribute of a class": lambda cls: type("Outer", (), {"cls": cls, "__module__": __name__}),
}
CHANGED: dict[str, Callable[[Any], object]] = {
    "its attribute": lambda cls: setattr(cls, "k", 50.0),
    "an attribute of its base": lambda cls: setattr(cls.__mro__[1], "k", 50.0),
    "its list": lambda cls: cls.table.append(50.0),
    "a new attribute": lambda cls: setattr(cls, "other", 50.0),
    "its bases": lambda cls: setattr(cls, "__bases__", (cls.__bases__[0], type("Other", (), {}))),
    "its metaclass": lambda cls: setattr(type(cls), "k", type(cls).k + 50.0),
}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("way", CLASSES)
def test_a_class_that_is_held_is_compared(way: str, change: str) -> None:
    cls = settings()
    likeness = Likeness(holding_net(CLASSES[way](cls)), FEW, torch.randn(6, 4))
    assert not likeness.changes()
    CHANGED[change](cls)
    assert likeness.changes()


FEW = Plan([], [], (), [])
OUT_OF_SIGHT: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the factory of a table": (lambda: collections.defaultdict(list), lambda w: setattr(w, "default_factory", dict)),
    "an attribute of a number": (named_number, lambda w: w.note.append(50.0)),
    "what is referred to weakly": (lambda: weakref.ref(KEPT), lambda w: setattr(w(), "k", w().k + 50.0)),
    "a list behind an iterator": (lambda: iter([[1.0]]), lambda w: w.__reduce__()[1][0][0].append(50.0)),
    "a counter": (lambda: itertools.count(1), next),
    "an array of ctypes": (lambda: (ctypes.c_double * 1)(1.0), lambda w: w.__setitem__(0, 50.0)),
    "a number of ctypes": (lambda: ctypes.c_double(1.0), lambda w: setattr(w, "value", 50.0)),
    "bytes": (lambda: io.BytesIO(b"1"), lambda w: w.write(b"2")),
    "Python's generator": (lambda: random.Random(0), lambda w: w.random()),
    "torch's generator": (torch.Generator, lambda w: w.manual_seed(1)),
    "numpy's generator": (lambda: numpy.random.RandomState(0), lambda w: w.seed(1)),
    "numpy's new generator": (lambda: numpy.random.default_rng(0), lambda w: w.random()),
    "memory": (lambda: torch.ones(1).untyped_storage(), lambda w: w.__setitem__(3, 64)),
    "strides": (lambda: torch.ones(2, 2), lambda w: w.t_()),
    "a distribution": (lambda: torch.distributions.Normal(0.0, 1.0), lambda w: w.scale.fill_(50.0)),
    "a bound method of a list": (lambda: [1.0].append, lambda w: w(50.0)),
}


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_what_pickle_would_keep_is_compared(name: str) -> None:
    make, change = OUT_OF_SIGHT[name]
    what = make()
    likeness = Likeness(holding_net(what), FEW, torch.randn(6, 4))
    assert not likeness.changes()
    change(what)
    assert likeness.changes() == ["the model: it has changed since it was traced; make the cap anew"]


@pytest.mark.parametrize(
    "what", [(one for one in "ab"), weakref.proxy(KEPT), threading.local(), {}.values(), super(Keeps, KEPT)]
)
def test_what_nobody_can_compare_is_named(what: Any) -> None:
    changes = Likeness(holding_net([what]), FEW, torch.randn(6, 4)).changes()
    assert len(changes) == 1 and "it holds " in changes[0] and "whether that changes cannot be seen" in changes[0]


def test_what_cannot_be_compared_proves_nothing() -> None:
    model = Two(lambda s, x: s.b(s.a(x)))
    model.view = closed_over(one for one in "ab")
    cap = ng.cap(model, torch.randn(6, 4), log10=1.0)
    assert cap.unfollowed and cap() == math.inf and "generator" in str(cap)


class Mode(enum.Enum):
    """A choice."""

    A = "a"


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    yield


def ordinary() -> list[Any]:
    """What models hold, and use, and are the same afterwards."""
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.Adam([weight])
    handle = nn.ReLU().register_forward_hook(lambda *given: None)
    kinds = [Mode, Config, nn.ReLU, torch.nn.functional, list[int], int | str, Callable[[], int], collections.Counter]
    values = [Mode.A, Config(), torch.channels_last, torch.finfo(torch.float32), pathlib.Path("a"), re.compile("a")]
    functions = [torch.relu, F.gelu, numpy.add, torch.ops.aten.relu, quietly()(len), torch.no_grad()(lambda: 1)]
    others = [
        logging.getLogger("a"),
        optimizer,
        torch.optim.lr_scheduler.StepLR(optimizer, 1),
        threading.Lock(),
        handle,
    ]
    return [kinds, values, functions, others, object(), numpy.float64(1.0), torch.autocast("cpu", enabled=False)]


def test_what_models_usually_hold_stays_the_same_while_they_train() -> None:
    held = ordinary()
    likeness = Likeness(holding_net(held), FEW, torch.randn(6, 4))
    assert not likeness.changes()
    log, optimizer, schedule, lock, _ = held[3]
    log.isEnabledFor(10)
    optimizer.step()
    schedule.step()
    with lock, held[-1]:
        assert str(held[1][4]) == "a" and held[2][4]("ab") == 2 and held[2][5]() == 1
    assert not likeness.changes()


class Normed(nn.Module):
    """A map, a normalizer, and what a function makes of both."""

    def __init__(self, function: Callable[[Normed, Tensor], Tensor]) -> None:
        super().__init__()
        self.l, self.n, self.function = nn.Linear(6, 6), nn.BatchNorm1d(6), function
        self.register_buffer("zero", torch.zeros(2))
        self.table = {0, 8}

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


READ_TWICE: dict[str, Callable[[Normed, Tensor], Tensor]] = {
    "the mean": lambda s, x: s.n(s.l(x)) * (1 + s.n.running_mean.sum()),
    "the variance": lambda s, x: s.n(s.l(x)) / s.n.running_var.sqrt().mean(),
    "a branch": lambda s, x: s.n(s.l(x)) * (50.0 if s.n.running_mean.sum() > 1 else 1.0),
    "a count": lambda s, x: s.n(s.l(x)) * (50.0 if int(s.n.num_batches_tracked) > 10 else 1.0),
    "a gate": lambda s, x: s.n(s.l(x)) * (1 + torch.relu(s.n.running_mean - 10).sum()),
    "out of torch": lambda s, x: s.n(s.l(x)) * (1 + float(s.n.running_mean.numpy().sum())),
    "by a function": lambda s, x: F.batch_norm(s.l(x), s.n.running_mean, s.n.running_var),
}


@pytest.mark.parametrize("kind", READ_TWICE)
def test_running_statistics_that_are_read_elsewhere_are_compared(kind: str) -> None:
    torch.manual_seed(0)
    model = Normed(READ_TWICE[kind]).eval()
    cap = ng.cap(model, torch.randn(4, 6), log10=5.0)
    cap()
    model.n.running_mean.fill_(50.0)
    model.n.running_var.mul_(1e-4)
    model.n.num_batches_tracked.fill_(50)
    assert cap() == math.inf


def test_running_statistics_that_their_own_step_alone_reads_may_move() -> None:
    torch.manual_seed(0)
    model, batch = Normed(lambda s, x: x + s.n(s.l(x))), torch.randn(8, 6)
    cap = ng.cap(model, batch, log10=5.0)
    for _ in range(3):
        model.train()(batch)
        assert cap() < 5.0
    model.n.running_mean = model.n.running_var = None
    assert cap() == math.inf


class Factor:
    def __init__(self) -> None:
        self.v = 1.0

    def __call__(self, module: nn.Module, given: object, out: Tensor) -> Tensor:
        return self.v * out


@pytest.mark.parametrize("bound", [False, True])
def test_a_hook_that_is_an_object_is_looked_into(bound: bool) -> None:
    torch.manual_seed(0)
    model, hook = nn.Sequential(nn.Linear(6, 6)), Factor()
    model.register_forward_hook(hook.__call__ if bound else hook)
    cap = ng.cap(model, torch.randn(4, 6), log10=5.0)
    cap()
    hook.v = 50.0
    assert cap() == math.inf


def test_the_sign_of_a_zero_and_the_order_of_a_set_are_compared() -> None:
    torch.manual_seed(0)
    for change in (lambda s: s.zero.neg_(), lambda s: (s.table.clear(), s.table.update([8]), s.table.add(0))):
        model = Normed(lambda s, x: s.l(x) * (50.0 if s.zero.signbit().any() or next(iter(s.table)) else 1.0)).eval()
        cap = ng.cap(model, torch.randn(4, 6), log10=5.0)
        cap()
        change(model)
        assert cap() == math.inf

"""Networks whose program hides something from the tape: each is measured right, or nothing is claimed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import normgauge as ng
from normgauge.instrument.session import opened


class Net(nn.Module):
    """A network around a function of its parts."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.parts)


def batch(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))


def slope(model: nn.Module, at: Tensor, along: Tensor, h: float = 1e-6) -> float:
    """A central difference of the model itself."""
    step = h * along / along.norm()
    with torch.no_grad():
        rise = (model(at + step) - model(at - step)).double().norm()
    return float(rise / ((at + step) - (at - step)).double().norm())


def sound(reading: ng.Reading, steep: float) -> bool:
    """Whether nothing finite was promised below a slope the network has, but for another path that was admitted."""
    return reading.log_upper >= math.log(steep) - 1e-4 or (reading.path_dependent and str(reading.scope) != "global")


# --- data that leaves the tensors as a value of Python's, or decides a shape -----------------------------------------


def storage(x: Tensor) -> Tensor:
    raw = torch.tensor(list(x.detach().contiguous().untyped_storage()), dtype=torch.uint8)
    return x + 100 * raw.view(x.dtype).reshape(x.shape)


def thread(x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return x + pool.submit(lambda: 100 * x).result()


READS: dict[str, Callable[[Tensor], Tensor]] = {
    "allclose": lambda x: 100 * x if torch.allclose(x, torch.zeros_like(x), atol=0.1) else x,
    "equal": lambda x: 100 * x if torch.equal(x.relu(), x) else x,
    "numel of a mask": lambda x: x * (100 if x[x > 0].numel() == x.numel() else 1),
    "len of nonzero": lambda x: x * (100 if len((x > 0).nonzero()) == x.numel() else 1),
    "masked_select": lambda x: x * (100 if x.masked_select(x > 0).shape[0] == x.numel() else 1),
    "unique": lambda x: x * (100 if len(torch.unique(x.sign())) == 1 else 1),
    "is_nonzero": lambda x: 100 * x if torch.is_nonzero((x > 0).all()) else x,
    "in": lambda x: 100 * x if 5.0 in x.round() else x,
    "truth": lambda x: 100 * x if (x > 0).all() else x,
    "item of a count": lambda x: 100 * x if (x > 0).sum().item() == x.numel() else x,
    "int": lambda x: x * (100 if int((x > 0).sum()) == x.numel() else 1),
    "tolist of truths": lambda x: 100 * x if all((x > 0).flatten().tolist()) else x,
}


@pytest.mark.parametrize("name", READS)
def test_a_path_that_depends_on_the_data_is_said(name: str) -> None:
    model, x = Net(READS[name]), batch()
    everywhere = ng.gauge(model, x, scope="global", search=False)
    assert everywhere.path_dependent and everywhere.log_upper == math.inf
    assert everywhere.to_json()["path_dependent"] is True
    ball = ng.gauge(model, x, scope="ball:0.001", search=False)
    assert ball.path_dependent and ball.log_upper == pytest.approx(0, abs=1e-6)
    assert any("looks at the data" in note for note in ball.notes)


LEAKS: dict[str, Callable[[Tensor], Tensor]] = {
    "format": lambda x: x * float(f"{x[0, 0]}"),
    "repr": lambda x: x * len(repr(x[0, 0])),
    "float": lambda x: x * float(x[0, 0]),
    "item": lambda x: x * x[0, 0].item(),
    "numpy": lambda x: x + 100 * torch.from_numpy(x.detach().numpy().copy()),
    "dlpack": lambda x: x + 100 * torch.from_numpy(np.array(np.from_dlpack(x.detach()))),
    "storage": storage,
    "threads": thread,
}


@pytest.mark.parametrize("name", LEAKS)
def test_data_that_leaves_the_tensors_is_unknown(name: str) -> None:
    for scope in ("global", "ball:0.01", "point"):
        reading = ng.gauge(Net(LEAKS[name]), batch(), scope=scope, search=False)
        assert reading.log_upper == math.inf and str(reading.evidence) == "unknown" and reading.unknown


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.jvp(lambda z: z.pow(3), (x,), (torch.ones_like(x),))[1],
        lambda x: torch.func.vmap(lambda row: row.sin() * 2)(x),
        lambda x: torch.func.grad(lambda z: z.pow(3).sum())(x),
        lambda x: torch.stack([x.new_tensor(float(v)) for v in x.flatten()]).reshape(x.shape),
    ],
)
def test_transforms_inside_the_forward_are_right_or_unknown(function: Callable[[Tensor], Tensor]) -> None:
    reading = ng.gauge(Net(function), batch(), scope="point", search=False)
    assert reading.log_upper == math.inf and str(reading.evidence) == "unknown"


def test_a_description_of_a_tensor_is_no_reading_of_it() -> None:
    def described(x: Tensor) -> Tensor:
        assert x.shape[0] == len(x) == x.size(0) and x.numel() and x.is_floating_point() and x.dtype == torch.float64
        return x * x.shape[1] * (1 if x.is_contiguous() else 2)

    reading = ng.gauge(Net(described), batch(), search=False)
    assert not reading.path_dependent and reading.log_upper == pytest.approx(math.log(4))


def test_a_mask_that_is_a_constant_decides_nothing() -> None:
    mask = torch.tensor([True, False, True, True])
    reading = ng.gauge(Net(lambda x: 3 * x[:, mask]), batch(), search=False)
    assert not reading.path_dependent and reading.log_upper == pytest.approx(math.log(3))


# --- tensors exchanged under the tape, and casts that copy -----------------------------------------------------------


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
    reading = ng.gauge(model, x, search=False)
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


def to_copy(x: Tensor) -> Tensor:
    y = x.to(x.dtype, copy=True)
    y.mul_(0.01)
    return 5 * x + y


def half(x: Tensor) -> Tensor:
    y = x.half()
    y.zero_()
    return 5 * x


def double(x: Tensor) -> Tensor:
    y = x.double()
    y.zero_()
    return 5 * x + y.to(x.dtype)


def same_precision(x: Tensor) -> Tensor:
    y = x * 1.0
    y.float().mul_(50.0)  # no copy where the network works in float32
    return y


def precision_branch(x: Tensor) -> Tensor:
    return 100 * x if x.dtype == torch.float32 else x


MEASURED: dict[str, tuple[Callable[..., Tensor], torch.dtype, float]] = {
    "to(copy=True)": (to_copy, torch.float64, 5.01),
    "half": (half, torch.float32, 5.0),
    "double": (double, torch.float32, 5.0),
    "float of float32": (same_precision, torch.float32, 50.0),
    "float of float64": (same_precision, torch.float64, 1.0),
    "a branch on the precision": (precision_branch, torch.float32, 100.0),
    "one that the batch does not show": (lambda x: precision_branch(-(x + 9)).relu(), torch.float32, 100.0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_casts_copy_where_the_models_own_would(name: str) -> None:
    function, dtype, truth = MEASURED[name]
    reading = ng.gauge(Net(function), batch(dtype), search=False)
    assert reading.log_upper == pytest.approx(math.log(truth), abs=1e-6)


@pytest.mark.parametrize("function", [weight_exchanged, weight_overwritten], ids=lambda f: f.__name__)
def test_each_step_has_the_weights_it_ran_with(function: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, bias=False).double()
    reading = ng.gauge(Net(function, layer), batch(), balance=False, search=False)
    norm = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    assert reading.log_folded == pytest.approx(math.log(100 * norm**2), abs=1e-2)


# --- settings changed during the forward, hooks, patches, subclasses -------------------------------------------------


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


class Patched(nn.Conv1d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(F.leaky_relu(input, 3.0), weight, bias)


class Secret(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return 100 * out.as_subclass(torch.Tensor) if func is F.linear else out


class WeightNorm:
    """A hook with the name of one of torch's."""

    def __call__(self, module: nn.Module, args: Any) -> Any:
        return (100 * args[0],)


def linear() -> Any:
    torch.manual_seed(0)
    return nn.Linear(4, 4).double()


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


class AlwaysTrained(nn.BatchNorm1d):
    def train(self, mode: bool = True) -> Any:
        return super().train(True)


class Flagged(nn.Linear):
    def train(self, mode: bool = True) -> Any:
        self.steep = 1.0 if mode else 5.0
        return super().train(mode)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.steep


class Wrapped(nn.DataParallel[nn.Module]):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return 5 * super().forward(*args, **kwargs)


class Quantized(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        return 7 * out if func is F.linear else out


class FlatWeights(nn.Module):
    """A bias and a view of its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4, dtype=torch.float64))
        self.flat = self.bias.data.view(4)

    def forward(self, x: Tensor) -> Tensor:
        self.flat.copy_(50 * x.detach().sum(0))
        y = x + self.bias
        self.flat.zero_()
        return y


def wrapper_with_a_hook() -> nn.Module:
    model: nn.Module = nn.DataParallel(linear())
    model.register_forward_hook(lambda module, given, out: 5 * out)
    return model


def quantized_weight() -> nn.Module:
    layer = linear()
    layer.weight = Quantized(layer.weight.data)
    return nn.Sequential(layer)


def with_gradients(x: Tensor) -> Tensor:
    return x * (5.0 if torch.is_grad_enabled() else 1.0)


SURPRISES: dict[str, Callable[[], nn.Module]] = {
    "train() overridden": lambda: nn.Sequential(AlwaysTrained(4)).double().eval(),
    "a flag set by train()": lambda: Flagged(4, 4).double(),
    "a wrapper with a hook": wrapper_with_a_hook,
    "a wrapper with a forward": lambda: Wrapped(linear()),
    "a parameter of its own kind": quantized_weight,
    "a view of a weight": FlatWeights,
    "gradients on": lambda: Net(with_gradients),
}


@pytest.mark.parametrize("name", SURPRISES)
def test_a_model_is_run_as_its_user_runs_it(name: str) -> None:
    model, x = SURPRISES[name](), 0.05 * batch()
    reading = ng.gauge(model, x, search=False, scope="point")
    model.eval()
    step = 1e-6 * torch.ones_like(x)
    steep = float((model(x + step) - model(x - step)).detach().norm() / (2 * step).norm())
    assert sound(reading, steep)


TOLD_BY_ERRORS: dict[str, Callable[[Tensor], Any]] = {
    "index": lambda x: torch.ones(1)[(x.abs() / 20).long()],
    "embedding": lambda x: F.embedding((x.abs() / 20).long(), torch.ones(1, 1)),
    "gather": lambda x: torch.ones(4, 4).gather(1, (x.abs() / 20).long()),
    "bernoulli": lambda x: torch.bernoulli(x.abs() / 20),
    "cross entropy": lambda x: F.cross_entropy(torch.ones(12, 1), (x.abs() / 20).long().flatten()),
    "eigh": lambda x: torch.linalg.eigh(x.T @ x),
}


@pytest.mark.parametrize("name", TOLD_BY_ERRORS)
def test_an_error_that_the_program_may_catch_is_a_path(name: str) -> None:
    def tried(x: Tensor) -> Tensor:
        try:
            TOLD_BY_ERRORS[name](x)
        except (IndexError, RuntimeError):
            return 50 * x
        return x * 1.0

    reading = ng.gauge(Net(tried), batch(), search=False)
    assert reading.path_dependent and reading.log_upper == math.inf


def test_shapes_that_the_data_decide_are_a_path() -> None:
    split = Net(lambda x: x * len(torch.tensor_split(torch.ones(3), (x > 20).any().long()[None])[0]))
    sparse = Net(lambda x: x * (1 + (x.abs() > 20).to_sparse().values().numel()))
    for model in (split, sparse):
        assert ng.gauge(model, batch(), search=False).log_upper == math.inf


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: (x + 1e7) - 1e7, torch.float32),
        (lambda x: (x * 1e-3 + 1e9) - 1e9, torch.float64),
        (lambda x: F.layer_norm(x + 1e7, (4,)), torch.float32),
    ],
)
def test_the_steps_of_rounding_refute_nothing(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    reading = ng.gauge(Net(function), batch(dtype), scope="ball:1")
    assert str(reading.evidence) != "refuted" and reading.log_lower <= reading.log_upper


def test_a_sample_alone_may_be_another_function() -> None:
    reading = ng.gauge(Net(lambda x: x / len(x)), batch(), scope="ball:0.1")
    assert str(reading.evidence) == "proved" and reading.log_upper == pytest.approx(-math.log(3), abs=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.to_sparse(),
        lambda t: t.to_sparse_csr(),
        lambda t: t.to(torch.float8_e4m3fn),
        lambda t: t.to("meta"),
        lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    ],
    ids=["sparse", "csr", "float8", "meta", "quantized"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:torch.quantize_per_tensor")
def test_buffers_of_any_kind_do_not_stop_a_measurement(make: Callable[[Tensor], Tensor]) -> None:
    model, buffer = Net(lambda x: 3 * x), make(torch.eye(4))
    model.register_buffer("odd", buffer)
    assert ng.gauge(model, batch().float(), search=False).log_upper == pytest.approx(math.log(3))


@pytest.mark.parametrize("function", [lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])), lambda x: x * x.prod()])
def test_one_number_for_all_samples_is_no_crash(function: Callable[[Tensor], Tensor]) -> None:
    for scope in ("point", "ball:0.1", "global"):
        ng.gauge(Net(function), batch(), scope=scope, search=False)


def test_results_written_into_a_given_tensor() -> None:
    def into(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        torch.mul(x, 2.0, out=y)
        torch.add(y, x, out=y)
        return y

    assert ng.gauge(Net(into), batch(), search=False).log_upper == pytest.approx(math.log(3))


def test_a_method_that_a_layers_forward_calls_is_part_of_it() -> None:
    torch.manual_seed(0)
    model, images = Patched(4, 4, 3).double(), torch.rand(2, 4, 9, dtype=torch.float64)
    reading = ng.gauge(model, images, search=False)
    assert math.isfinite(reading.log_upper)
    assert sound(reading, slope(model, -images, torch.autograd.functional.vjp(model, -images, model(-images))[1]))


@pytest.fixture
def exchanged_class() -> Iterator[None]:
    forward = nn.Linear.forward
    nn.Linear.forward = lambda self, x: 100 * F.linear(x, self.weight, self.bias)  # type: ignore[method-assign]
    yield
    nn.Linear.forward = forward  # type: ignore[method-assign]


@pytest.fixture
def hook_on_everything() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, given, out: 100 * out if isinstance(module, nn.Linear) else None
    )
    yield
    handle.remove()


@pytest.mark.usefixtures("exchanged_class")
def test_a_patched_class_is_not_what_its_rule_knows() -> None:
    model = nn.Sequential(linear())
    assert sound(ng.gauge(model, batch(), search=False), slope(model, batch(), batch()))


@pytest.fixture
def exchanged_function() -> Iterator[None]:
    function = F.linear
    F.linear = lambda x, weight, bias=None: 100 * function(x, weight, bias)  # type: ignore[assignment]
    yield
    F.linear = function


@pytest.mark.usefixtures("exchanged_function")
def test_a_patched_function_is_not_what_its_layers_rule_knows() -> None:
    model = nn.Sequential(linear())
    reading = ng.gauge(model, batch(), search=False)
    assert math.isfinite(reading.log_upper) and sound(reading, slope(model, batch(), batch()))


@pytest.mark.usefixtures("hook_on_everything")
def test_global_hooks_are_seen() -> None:
    model = nn.Sequential(linear())
    assert sound(ng.gauge(model, batch(), search=False), slope(model, batch(), batch()))


# --- a model that is another one at every call -----------------------------------------------------------------------


class Counting(nn.Module):
    """Steep at every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (100.0 if self.calls % 2 == 0 else 1.0)


def test_a_model_that_changes_from_call_to_call_is_unknown() -> None:
    reading = ng.gauge(Counting(), batch(), search=False)
    assert reading.log_upper == math.inf and str(reading.evidence) == "unknown"
    assert "from call to call" in reading.unknown[0].why


@pytest.mark.parametrize(
    "draw",
    [lambda: random.random(), lambda: np.random.rand(), lambda: torch.rand(())],
    ids=["python", "numpy", "torch"],
)
def test_a_path_that_depends_on_chance_is_said(draw: Callable[[], Any]) -> None:
    model = Net(lambda x: x if draw() < 0.5 else 100 * x)
    for seed in range(4):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        reading = ng.gauge(model, batch(), search=False)
        assert reading.path_dependent and reading.log_upper == math.inf
        point = ng.gauge(model, batch(), scope="point", search=False)
        assert str(point.evidence) == "proved" and any("random numbers" in note for note in point.notes)


def test_the_second_run_costs_at_most_six_forward_passes() -> None:
    class Count(TorchFunctionMode):
        passes = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.passes += func is torch.tanh
            return func(*args, **(kwargs or {}))

    with Count() as count, opened(Net(torch.tanh), batch(torch.float32)):
        pass
    assert 1 < count.passes <= 1 + 6  # the first is the trace's own


def test_dataclasses_are_measured_elsewhere_too() -> None:
    """The measured tensor of a nested input is exchanged for another one, not left as it was."""
    from dataclasses import dataclass

    @dataclass
    class Pair:
        x: Tensor
        scale: float

    reading = ng.gauge(Net(lambda pair: (pair.x * pair.scale).sin()), Pair(batch(), 3.0))
    assert 0.9 < reading.log_lower <= reading.log_upper == pytest.approx(math.log(3))

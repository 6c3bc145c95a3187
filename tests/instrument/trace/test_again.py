"""Networks whose program hides something from the tape: each is measured right, or nothing is claimed."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import normgauge as ng
from normgauge.instrument.session import opened
from normgauge.instrument.trace.again import elsewhere, remembering, same_but_for_precision, tensors_alike
from tests.instrument.trace.nets import Net, batch, linear, sound


def storage(x: Tensor) -> Tensor:
    raw = torch.tensor(list(x.detach().contiguous().untyped_storage()), dtype=torch.uint8)
    return x + 100 * raw.view(x.dtype).reshape(x.shape)


def thread(x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return x + pool.submit(lambda: 100 * x).result()


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


def test_what_reaches_the_output_far_from_the_samples_alone_is_unknown() -> None:
    hidden = Net(lambda x: x + torch.from_numpy(np.maximum(np.from_dlpack(x.detach()) - 30, 0)))
    pool: SimpleQueue[Any] = SimpleQueue()
    back: SimpleQueue[Any] = SimpleQueue()
    server = Thread(target=lambda: [back.put(torch.relu(x - 30)) for x in iter(pool.get, None)])
    server.start()
    queued = Net(lambda x: (pool.put(x), x + back.get())[1])  # no function of Python is called on the way
    for model in (hidden, queued):
        reading = ng.gauge(model, batch(), scope="global", search=False)
        assert reading.log_upper == math.inf and str(reading.evidence) == "unknown"
    pool.put(None)
    server.join()


class Counting(nn.Module):
    """Steep at every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (100.0 if self.calls % 2 == 0 else 1.0)


def test_a_model_that_changes_from_call_to_call_is_unknown() -> None:
    reading = ng.gauge(Counting(), batch(), scope="global", search=False)
    assert reading.log_upper == math.inf and str(reading.evidence) == "unknown"
    assert "from call to call" in reading.unknown[0].why


def test_the_second_run_costs_at_most_eight_forward_passes() -> None:
    class Count(TorchFunctionMode):
        passes = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.passes += func is torch.tanh
            return func(*args, **(kwargs or {}))

    with Count() as count, opened(Net(torch.tanh), batch(torch.float32)):
        pass
    assert 1 < count.passes <= 1 + 8  # the first is the trace's own


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
    assert ng.gauge(model, batch().float(), scope="global", search=False).log_upper == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (torch.ones(2), torch.ones(3), False),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), False),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        (torch.tensor([1.0, 1e4]), torch.tensor([1.5, 1e4]), True),  # as parts of the largest entry
        (torch.tensor([1.0, 1e4]), torch.tensor([1.0, 1.1e4]), False),
        (torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, math.inf]), True),
        (torch.tensor([math.inf]), torch.tensor([-math.inf]), False),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), False),
    ],
)
def test_tensors_are_alike_up_to_the_rounding_of_their_precision(a: Tensor, b: Tensor, alike: bool) -> None:
    assert tensors_alike(a, b) == alike


def test_elsewhere_is_near_and_far_and_the_same_each_time() -> None:
    x = batch()
    near, far = elsewhere(x)
    assert 0 < float((near - x).norm()) < 1e-2 * float(x.norm())
    assert torch.equal(far[1], near[1]) and ((far - x)[::2].norm(dim=1) > 0.5 * x[::2].norm(dim=1)).all()
    assert torch.equal(elsewhere(x)[1], far)


def test_an_output_that_overflows_in_its_own_precision_may_be_finite_in_the_copy() -> None:
    own = torch.tensor([1.0, math.inf])
    assert same_but_for_precision(own, torch.tensor([1.0, 1e40], dtype=torch.float64))
    assert not same_but_for_precision(own, torch.tensor([1.1, 1e40], dtype=torch.float64))
    assert not same_but_for_precision(torch.ones(2), torch.tensor([1.0, math.inf], dtype=torch.float64))


def test_a_function_that_remembers_runs_once_an_input() -> None:
    given: list[Tensor] = []

    def overwriting(x: Tensor) -> Tensor:
        given.append(x.clone())
        return x.mul_(2)

    function, x = remembering(overwriting), torch.tensor([1.0, 2.0])
    first = function(x.clone())
    assert torch.equal(function(x.clone()), first) and len(given) == 1
    assert torch.equal(function(x + 1), 2 * (x + 1)) and torch.equal(function(x.clone()), 2 * x) and len(given) == 3
    assert function(x.double()).dtype == torch.float64 and len(given) == 4

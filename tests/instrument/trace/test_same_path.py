"""A copy in float64 takes the path of the model's own precision, however a program asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.trace.again import as_it_runs
from normgauge.instrument.trace.inputs import make_call
from normgauge.instrument.trace.same_path import path_of, same_path
from normgauge.instrument.trace.step import Trace
from normgauge.instrument.trace.tape import record_trace
from tests.instrument.trace.nets import Net, batch

ASKED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "element_size": lambda x, w: x.element_size() == 4,
    "itemsize": lambda x, w: x.itemsize == 4,
    "nbytes": lambda x, w: x.nbytes == 4 * x.numel(),
    "type": lambda x, w: x.type() == "torch.FloatTensor",
    "isinstance": lambda x, w: isinstance(x, torch.FloatTensor),
    "result_type": lambda x, w: torch.result_type(x, 1.0) == torch.float32,
    "promote_types": lambda x, w: torch.promote_types(x.dtype, torch.float32) == torch.float32,
    "finfo": lambda x, w: torch.finfo(x.dtype).bits == 32,
    "rounding": lambda x, w: x.new_ones(1) + 1e-10 == 1,
    "rounding of all": lambda x, w: bool((torch.ones_like(x) + 1e-10 == 1).all()),
    "rounding of a weight": lambda x, w: bool((torch.ones_like(w) + 1e-10 == 1).all()),
    "element_size of a weight": lambda x, w: w.element_size() == 4,
    "storage of a weight": lambda x, w: w.untyped_storage().nbytes() == 16,
    "storage_type": lambda x, w: w.storage_type() is torch.FloatStorage,
    "numpy": lambda x, w: w.detach().numpy().dtype == np.float32,
    "array": lambda x, w: np.asarray(w.detach()).dtype == np.float32,
    "isinstance of a weight": lambda x, w: isinstance(w.data, torch.FloatTensor),
}


class Asking(nn.Module):
    """Layer normalization whose ε is another one in float32."""

    def __init__(self, ask: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.ask, self.w = ask, nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        eps = 1e-5 if self.ask(x, self.w) else 1e-3
        var = x.var(1, unbiased=False, keepdim=True)
        return (x - x.mean(1, keepdim=True)) * (var + eps).rsqrt() * self.w


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", ASKED)
def test_however_a_program_asks_its_precision_its_own_path_is_measured(name: str) -> None:
    torch.manual_seed(0)
    reading = ng.gauge(Asking(ASKED[name]), 300 * batch(torch.float32), scope="global", search=False)
    assert reading.log_upper >= math.log(316.2)


def test_where_the_own_path_cannot_be_recorded_no_copy_is_taken_for_it() -> None:
    torch.manual_seed(0)
    asking, x = Asking(lambda x, w: isinstance(x, torch.FloatTensor)), 300 * batch(torch.float32)

    def record(*given: Any) -> Trace:
        raise RuntimeError

    own = as_it_runs(asking, make_call(asking, x), False, None, record=record)
    trace = record_trace(asking, (x,), {}, x, lambda out: (out, []), lambda kind: False, lambda part: None)
    assert own.path is not None and not own.computed_by(trace, asking)


def recorded(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Trace:
    x = batch(dtype)
    return record_trace(Net(function), (x,), {}, x, lambda out: (out, []), lambda kind: False, lambda part: None)


def test_two_paths_are_the_same_but_for_rounding() -> None:
    def path(function: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float64) -> Any:
        return path_of(recorded(function, dtype))

    table = torch.arange(4000.0)
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: (x * 3.0).relu() + table.to(x.dtype)[:4].sin(),
        lambda x: (x * 3.1).relu() + table.to(x.dtype)[:4].sin(),
        lambda x: (x * 3.0).relu() + table.to(x.dtype)[:4].cos(),
        lambda x: (x * 3.0).tanh() + table.to(x.dtype)[:4].sin(),
        lambda x: (x * 3.0).relu(),
    ]
    for i, one in enumerate(functions):
        for j, other in enumerate(functions):
            assert same_path(path(one, torch.float32), path(other)) == (i == j)
    assert same_path(path(lambda x: x.double().relu(), torch.float32), path(lambda x: x.relu()))
    assert not same_path(path(lambda x: x.relu() - x.tanh()), path(lambda x: -(x.tanh() - x.relu())))
    swapped = path(lambda x: torch.sub(x.relu(), x.tanh())), path(lambda x: torch.rsub(x.tanh(), x.relu()))
    assert not same_path(*swapped)

"""What the program learns from the data: a path that depends on them is said, and nothing is proved beyond it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import normgauge as ng
from normgauge.instrument.trace.held import memory_place
from normgauge.instrument.trace.watch import OperatorWatch
from tests.instrument.trace.nets import Net, batch

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


def test_a_description_of_a_tensor_is_no_reading_of_it() -> None:
    def described(x: Tensor) -> Tensor:
        assert x.shape[0] == len(x) == x.size(0) and x.numel() and x.is_floating_point() and x.dtype == torch.float64
        return x * x.shape[1] * (1 if x.is_contiguous() else 2)

    reading = ng.gauge(Net(described), batch(), scope="global", search=False)
    assert not reading.path_dependent and reading.log_upper == pytest.approx(math.log(4))


def test_a_mask_that_is_a_constant_decides_nothing() -> None:
    mask = torch.tensor([True, False, True, True])
    reading = ng.gauge(Net(lambda x: 3 * x[:, mask]), batch(), scope="global", search=False)
    assert not reading.path_dependent and reading.log_upper == pytest.approx(math.log(3))


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

    reading = ng.gauge(Net(tried), batch(), scope="global", search=False)
    assert reading.path_dependent and reading.log_upper == math.inf


def test_shapes_that_the_data_decide_are_a_path() -> None:
    split = Net(lambda x: x * len(torch.tensor_split(torch.ones(3), (x > 20).any().long()[None])[0]))
    sparse = Net(lambda x: x * (1 + (x.abs() > 20).to_sparse().values().numel()))
    for model in (split, sparse):
        assert ng.gauge(model, batch(), scope="global", search=False).log_upper == math.inf


@pytest.mark.parametrize(
    "draw",
    [lambda: random.random(), lambda: np.random.rand(), lambda: torch.rand(())],
    ids=["python", "numpy", "torch"],
)
def test_a_path_that_depends_on_chance_is_said(draw: Callable[[], Any]) -> None:
    model = Net(lambda x: x if draw() < 0.5 else 100 * x)
    for seed in range(4):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        reading = ng.gauge(model, batch(), scope="global", search=False)
        assert reading.path_dependent and reading.log_upper == math.inf
        point = ng.gauge(model, batch(), scope="point", search=False)
        assert str(point.evidence) == "proved" and any("random numbers" in note for note in point.notes)


def test_what_depends_on_the_input_is_followed_through_memory() -> None:
    written: list[int] = []
    x, other = torch.ones(3), torch.ones(3)
    watch = OperatorWatch(written.append)
    watch.tainted.add(memory_place(x))
    with watch:
        made, clean = x * 2, other * 2
        other.add_(x)
    assert memory_place(made) in watch.tainted and memory_place(clean) not in watch.tainted
    assert memory_place(other) in watch.tainted and written == [memory_place(other)] == list(watch.written)
    assert not watch.draws and watch.reads == []


def test_a_number_a_shape_and_chance_are_seen() -> None:
    x = torch.ones(3)
    watch = OperatorWatch(lambda storage: None)
    watch.tainted.add(memory_place(x))
    with watch:
        x.sum().item(), x[x > 0], torch.rand(2)
    assert watch.reads == ["_local_scalar_dense", "index"] and watch.draws

"""What is proved of one sample over all inputs is told of the others only where the network is theirs too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normgauge.instrument.measure import gauge
from normgauge.instrument.one_map import is_one_map
from normgauge.instrument.session import opened
from tests.instrument.trace.nets import Lambda, Net, batch, true_norm


def masked(m: Any, x: Tensor, beside: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x)) * beside)


def counted(m: Any, x: Tensor, beside: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x)) / beside.sum(1, keepdim=True).clamp(min=1))


def capped(m: Any, x: Tensor, beside: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x).clamp(max=1e6) * beside.amax(0)))


def columns(m: Any, x: Tensor, beside: Tensor) -> Tensor:
    """The samples lie along the second axis of what stands beside."""
    return m.b(torch.tanh(m.a(x) * beside.t()[: x.shape[0]]))


ROWS = torch.tensor([[0.1, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [3.0, 0.0, 1.0, 2.0]], dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("function", [masked, counted, columns])
def test_a_sample_with_a_mask_of_its_own_is_bounded_by_its_own_network(function: Callable[..., Any], seed: int) -> None:
    """The first sample, whose network is nearly flat, says nothing of the others."""
    generator = torch.Generator().manual_seed(seed)
    beside = ROWS[:, :3].t().contiguous().repeat(2, 1)[:4] if function is columns else ROWS
    x = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    model = Lambda(function)
    reading = gauge(model, (x, beside), scope="global", search=False)
    assert reading.log_refuted is None
    assert reading.method == (
        "open units" if function is not columns else "balanced"
    )  # each sample's, where it runs alone
    for scale in (0.0, 0.1, 1.0):
        steep = true_norm(lambda y: model(y, beside), scale * x)
        assert math.isfinite(reading.log_upper) and math.exp(reading.log_upper) >= steep * (1 - 1e-9)


def test_the_loop_transformation_asks_too() -> None:
    """As many rows beside as its proof has starts: each start would run through another network."""
    torch.manual_seed(0)
    beside = torch.zeros(8, 1, dtype=torch.float64)
    beside[5] = 1.0
    net = Net(lambda x, a, b, c: c(torch.relu(b(torch.relu(a(x) * (beside if len(x) == 8 else 0.0))))), *(
        nn.Linear(n, m).double() for n, m in ((4, 300), (300, 300), (300, 4))
    ))  # fmt: skip
    x = torch.randn(8, 4, dtype=torch.float64)
    reading = gauge(net, x, scope="global", search=False)
    assert math.exp(reading.log_upper) >= true_norm(net, x) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("given", "one"),
    [
        ((batch(),), True),
        ((batch(), ROWS[:1]), True),
        ((batch(), ROWS[1:2].expand(3, 4)), True),
        ((batch(), ROWS), False),
    ],
)
def test_who_is_one_map(given: tuple[Tensor, ...], one: bool) -> None:
    model = Lambda(lambda m, x, c=None: m.b(torch.relu(m.a(x) if c is None else m.a(x) * c)))
    with opened(model, given) as session:
        assert is_one_map(session) is one


def test_numbers_that_are_no_tensors_are_asked_by_what_they_do() -> None:
    model = Lambda(lambda m, x, sizes: torch.minimum(m.a(x), torch.tensor(sizes).double().reshape(-1, 1)))
    for sizes, one in (([5.0, 5.0, 5.0], True), ([5.0, 9.0, 5.0], False)):
        with opened(model, (batch(), sizes)) as session:
            assert is_one_map(session) is one
    alike = gauge(Lambda(masked), (batch(), ROWS[1:2]), scope="global", search=False)
    assert alike.method == "open units"  # where it is one map, the better bound is kept

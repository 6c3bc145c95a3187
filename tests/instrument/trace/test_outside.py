"""Memory that torch shares with arrays: what is read there may follow the input, and is not followed."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import normgauge as ng


class Reads(nn.Module):
    """A map whose factor goes through memory that is no tensor's."""

    def __init__(self, how: Callable[[Any], tuple[Tensor, Any]]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Linear(4, 4)
        self.level, self.seen = how(self)

    def forward(self, x: Tensor) -> Tensor:
        self.level.copy_(x.detach().abs().max().reshape(1))
        return self.map(x) * float(numpy.frombuffer(self.seen[0], dtype=numpy.float32)[0]) * 10


def buffer_of_numpy(model: nn.Module) -> tuple[Tensor, Any]:
    level = torch.zeros(1)
    return level, [level.numpy()]


def tensor_from_numpy(model: nn.Module) -> tuple[Tensor, Any]:
    numbers = numpy.ones(1, dtype=numpy.float32)
    return torch.from_numpy(numbers), [numbers]


def tensor_from_array(model: nn.Module) -> tuple[Tensor, Any]:
    numbers = array("f", [1.0])
    return torch.frombuffer(numbers, dtype=torch.float32), [numbers]


def tensor_from_bytes(model: nn.Module) -> tuple[Tensor, Any]:
    numbers = bytearray(4)
    return torch.frombuffer(numbers, dtype=torch.float32), [numbers]


@pytest.mark.parametrize("how", [buffer_of_numpy, tensor_from_numpy, tensor_from_array, tensor_from_bytes])
@pytest.mark.parametrize("scope", ["point", "ball:0.5", "global"])
def test_memory_that_is_shared_is_not_followed(how: Callable[[Any], tuple[Tensor, Any]], scope: str) -> None:
    reading = ng.gauge(Reads(how), torch.randn(8, 4) + 3, scope, search=False)
    assert reading.evidence == "unknown" and "shares its memory" in reading.unknown[0].why


def test_cap_does_not_follow_it_either() -> None:
    cap = ng.cap(Reads(tensor_from_numpy), torch.randn(8, 4) + 3, log10=1.0)
    assert cap() == float("inf") and cap.unfollowed[0].startswith("the model")


def test_an_array_that_a_forward_writes_to_is_not_followed_and_is_put_back() -> None:
    class Net(nn.Module):
        def __init__(self, numbers: Any) -> None:
            super().__init__()
            self.map, self.numbers = nn.Linear(4, 4), numbers

        def forward(self, x: Tensor) -> Tensor:
            torch.frombuffer(self.numbers, dtype=torch.float32).copy_(x.detach().abs().max().reshape(1))
            return self.map(x * 50 if memoryview(self.numbers).cast("B").tolist() > [0, 0, 128, 63] else x)

    for numbers in (numpy.zeros(1, dtype=numpy.float32), array("f", [0.0]), bytearray(4)):
        before = bytes(memoryview(numbers).cast("B"))
        reading = ng.gauge(Net(numbers), torch.randn(8, 4) + 3, "global", search=False)
        assert reading.evidence == "unknown" and "array that is no tensor" in str([x.why for x in reading.unknown])
        assert bytes(memoryview(numbers).cast("B")) == before


def test_arrays_that_are_read_alone_are_constants() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(4, 4)
            self.mean, self.empty, self.turned = numpy.full(4, 0.5), numpy.zeros((0, 3)), numpy.ones((3, 4))[::-1, ::2]
            self.fixed = numpy.ones(3)
            self.fixed.flags.writeable = False

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x - torch.tensor(self.mean, dtype=x.dtype))

    assert ng.gauge(Net(), torch.randn(8, 4), "global", search=False).evidence == "proved"

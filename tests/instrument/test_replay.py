"""The model as a function of the measured tensor alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.instrument.measure import gauge
from normgauge.instrument.replay import Substitute, call_model, replay_model
from normgauge.instrument.session import opened
from normgauge.instrument.trace.inputs import make_call
from tests.instrument.trace.nets import Lambda, batch


def test_integer_inputs_are_measured_from_the_embedding_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 3))
    reading = gauge(model, torch.tensor([[1, 2], [3, 4]]), scope="global")
    norm = math.log(float(torch.linalg.matrix_norm(model[1].weight.detach().double(), 2)))
    assert reading.log_upper == pytest.approx(norm, abs=1e-6) and reading.log_lower <= reading.log_upper + 1e-9
    assert reading.log_lower > reading.log_upper - 0.05
    table = model[0].weight.detach()
    (told,) = re.findall(r"at most ([\d.]+) apart", " ".join(reading.notes))
    apart = float(torch.cdist(table.double(), table.double()).max())
    assert apart <= float(told) <= 1.001 * apart


def test_only_the_measured_tensor_is_exchanged() -> None:
    model = Lambda(lambda m, x, mask: {"other": x, "logits": m.a(x) * mask})
    call = make_call(model, {"x": batch(), "mask": torch.full((3, 4), 2.0, dtype=torch.float64)})
    with opened(model, {"x": batch(), "mask": call.kwargs["mask"]}) as session:
        function = session.function()
        assert torch.allclose(function(3 * batch()), 2 * model.a(3 * batch()))
        named = replay_model(model, session.call, session.trace, "other")
        assert torch.equal(named(3 * batch()), 3 * batch())


def test_one_lookup_of_several_is_exchanged() -> None:
    table, given = nn.Embedding(5, 2), torch.full((3, 2), 9.0)
    index = torch.tensor([0, 1, 4])
    with Substitute({2: given}):
        found = [table(index) for _ in range(3)]
    assert torch.equal(found[0], table(index)) and found[1] is given and torch.equal(found[2], table(index))


def test_what_the_model_raises_is_told_as_its_own() -> None:
    with pytest.raises(InputError, match=r"the model's forward raised RuntimeError: mat1 and mat2"):
        call_model(nn.Linear(3, 2), (torch.zeros(2, 4),), {})


class Twice(nn.Module):
    """A network of two lookups, joined by ``join``."""

    def __init__(self, join: Callable[[Twice, Tensor], tuple[Tensor, Tensor]], product: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = nn.Embedding(7, 4), nn.Embedding(7, 4), nn.Linear(4, 3)
        self.join, self.product = join, product

    def forward(self, tokens: Tensor) -> Tensor:
        return self.behind(*self.join(self, tokens))

    def behind(self, a: Tensor, b: Tensor) -> Tensor:
        return self.last(torch.tanh(a * b if self.product else a + b))


def joint_norm(model: Twice, a: Tensor, b: Tensor) -> float:
    """‖J‖ from both lookups of one sample, side by side."""
    found = torch.autograd.functional.jacobian(lambda a, b: model.behind(a, b).flatten(), (a.detach(), b.detach()))
    return float(torch.linalg.matrix_norm(torch.cat([part.flatten(1) for part in found], 1), 2))


JOINS: dict[str, Callable[[Twice, Tensor], tuple[Tensor, Tensor]]] = {
    "two tables": lambda m, t: (m.first(t), m.second(t)),
    "one table twice": lambda m, t: (m.first(t), m.first(t.flip(1))),
    "other tokens": lambda m, t: (m.first(t), m.second((t + 1) % 7)),
}


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("join", JOINS)
def test_a_network_of_several_lookups_is_measured_from_all_of_them(join: str, product: bool) -> None:
    model, tokens = Twice(JOINS[join], product).double(), torch.tensor([[1, 2, 3], [4, 0, 6]])
    truth = [joint_norm(model, *JOINS[join](model, row[None])) for row in tokens]
    reading = gauge(model, tokens, scope="point", search=False)
    assert math.exp(reading.log_upper) == pytest.approx(max(truth), rel=1e-6)
    assert math.exp(reading.log_lower) == pytest.approx(max(truth), rel=1e-5)
    for row, norm in zip(reading.samples, truth, strict=True):
        assert 10 ** row["log10_upper"] == pytest.approx(norm, rel=1e-6)
    assert gauge(model, tokens, scope="ball:0.01").log_lower >= reading.log_lower - 1e-6


def test_lookups_of_other_shapes_make_the_batch_one_point() -> None:
    join = lambda m, t: (m.first(t), m.second(t[0]))  # noqa: E731
    model, tokens = Twice(join).double(), torch.tensor([[1, 2, 3], [4, 0, 6]])
    reading = gauge(model, tokens, scope="point", search=False)
    assert math.exp(reading.log_upper) == pytest.approx(joint_norm(model, *join(model, tokens)), rel=1e-6)
    assert len(reading.samples) <= 1


def test_samples_that_meet_behind_the_second_lookup_are_one_point() -> None:
    join = lambda m, t: (m.first(t), m.second(t).flip(0))  # noqa: E731
    reading = gauge(Twice(join).double(), torch.tensor([[1, 2, 3], [4, 0, 6]]), scope="point", search=False)
    assert reading.together

"""The model as a function of the measured tensor alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.instrument.measure import gauge
from normgauge.instrument.replay import Substitute, call_model, replay_model
from normgauge.instrument.session import opened
from normgauge.instrument.trace.inputs import make_call
from tests.instrument.trace.nets import Lambda, batch


def test_integer_inputs_are_measured_from_the_embedding_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 3))
    reading = gauge(model, torch.tensor([[1, 2], [3, 4]]))
    norm = math.log(float(torch.linalg.matrix_norm(model[1].weight.detach().double(), 2)))
    assert reading.log_upper == pytest.approx(norm, abs=1e-6) and reading.log_lower <= reading.log_upper + 1e-9
    assert reading.log_lower > reading.log_upper - 0.05
    table = model[0].weight.detach()
    assert any(f"at most {float(torch.cdist(table, table).max()):.3g} apart" in note for note in reading.notes)


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
    with Substitute(given, 2):
        found = [table(index) for _ in range(3)]
    assert torch.equal(found[0], table(index)) and found[1] is given and torch.equal(found[2], table(index))


def test_what_the_model_raises_is_told_as_its_own() -> None:
    with pytest.raises(InputError, match=r"the model's forward raised RuntimeError: mat1 and mat2"):
        call_model(nn.Linear(3, 2), (torch.zeros(2, 4),), {})

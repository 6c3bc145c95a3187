"""Batches and answers: which tensor is measured, and what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.errors import InputError
from normgauge.instrument.measure import gauge
from tests.instrument.trace.nets import Lambda, Net, batch


def test_dataclasses_are_measured_elsewhere_too() -> None:
    """The measured tensor of a nested input is exchanged for another one, not left as it was."""
    from dataclasses import dataclass

    @dataclass
    class Pair:
        x: Tensor
        scale: float

    reading = ng.gauge(Net(lambda pair: (pair.x * pair.scale).sin()), Pair(batch(), 3.0))
    assert 0.9 < reading.log_lower <= reading.log_upper == pytest.approx(math.log(3))


def test_dictionaries_tuples_and_several_inputs() -> None:
    model = Lambda(lambda m, x, mask: {"hidden": m.b(x), "logits": m.a(x) * mask})
    inputs = {"x": batch(), "mask": torch.full((3, 4), 2.0, dtype=torch.float64)}
    reading = gauge(model, inputs, search=False)
    assert reading.input_name == "x" and any("hidden" in n for n in reading.notes)
    assert reading.log_upper == pytest.approx(
        math.log(2 * float(torch.linalg.matrix_norm(model.a.weight.detach(), 2))), abs=1e-6
    )
    other = gauge(model, inputs, input="mask", search=False)
    assert other.input_name == "mask" and other.log_upper != reading.log_upper
    named = gauge(model, inputs, output="hidden", search=False)
    assert named.log_upper == pytest.approx(
        math.log(float(torch.linalg.matrix_norm(model.b.weight.detach(), 2))), abs=1e-6
    )


@dataclass
class Pair:
    x: Tensor
    scale: float


def test_dataclasses_in_and_out() -> None:
    model = Lambda(lambda m, pair: Pair(m.a(pair.x) * pair.scale, 1.0))
    assert gauge(model, Pair(batch(), 2.0), search=False).log_upper < 3


def test_labels_beside_the_input_are_left_out() -> None:
    reading = gauge(nn.Linear(4, 2), (torch.randn(3, 4), torch.tensor([0, 1, 0])), search=False)
    assert any("labels" in note for note in reading.notes)


def test_no_path_and_no_tensor_are_errors() -> None:
    with pytest.raises(InputError, match="does not depend"):
        gauge(Lambda(lambda m, x: m.a.weight * 1.0), batch())
    with pytest.raises(InputError, match="str"):
        gauge(Lambda(lambda m, x: "nothing"), batch())

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
from normgauge.instrument.trace.inputs import (
    argument_name,
    choose,
    map_tensors,
    named_tensors,
    pick_output,
    positional_limit,
)
from tests.instrument.trace.nets import Lambda, Net, batch


def test_dataclasses_are_measured_elsewhere_too() -> None:
    """The measured tensor of a nested input is exchanged for another one, not left as it was."""
    from dataclasses import dataclass

    @dataclass
    class Pair:
        x: Tensor
        scale: float

    reading = ng.gauge(Net(lambda pair: (pair.x * pair.scale).sin()), Pair(batch(), 3.0), scope="global")
    assert 0.9 < reading.log_lower <= reading.log_upper == pytest.approx(math.log(3))


def test_dictionaries_tuples_and_several_inputs() -> None:
    model = Lambda(lambda m, x, mask: {"hidden": m.b(x), "logits": m.a(x) * mask})
    inputs = {"x": batch(), "mask": torch.full((3, 4), 2.0, dtype=torch.float64)}
    reading = gauge(model, inputs, scope="global", search=False)
    assert reading.input_name == "x" and any("hidden" in n for n in reading.notes)
    assert reading.log_upper == pytest.approx(
        math.log(2 * float(torch.linalg.matrix_norm(model.a.weight.detach(), 2))), abs=1e-6
    )
    other = gauge(model, inputs, scope="global", input="mask", search=False)
    assert other.input_name == "mask" and other.log_upper != reading.log_upper
    named = gauge(model, inputs, scope="global", output="hidden", search=False)
    assert named.log_upper == pytest.approx(
        math.log(float(torch.linalg.matrix_norm(model.b.weight.detach(), 2))), abs=1e-6
    )


@dataclass
class Pair:
    x: Tensor
    scale: float


def test_dataclasses_in_and_out() -> None:
    model = Lambda(lambda m, pair: Pair(m.a(pair.x) * pair.scale, 1.0))
    assert gauge(model, Pair(batch(), 2.0), scope="global", search=False).log_upper < 3


def test_labels_beside_the_input_are_left_out() -> None:
    reading = gauge(nn.Linear(4, 2), (torch.randn(3, 4), torch.tensor([0, 1, 0])), scope="global", search=False)
    assert any("labels" in note for note in reading.notes)


def test_no_path_and_no_tensor_are_errors() -> None:
    with pytest.raises(InputError, match="does not depend"):
        gauge(Lambda(lambda m, x: m.a.weight * 1.0), batch(), scope="global")
    with pytest.raises(InputError, match="str"):
        gauge(Lambda(lambda m, x: "nothing"), batch(), scope="global")


def test_every_tensor_has_a_path_and_can_be_exchanged_there() -> None:
    tree = {"a": (torch.ones(1), [torch.ones(2)]), "b": Pair(torch.ones(3), 2.0), "c": None}
    assert {name: len(tensor) for name, tensor in named_tensors(tree)} == {"a.0": 1, "a.1.0": 2, "b.x": 3}
    twin = map_tensors(lambda t: 5 * t, tree)
    assert [float(t[0]) for _, t in named_tensors(twin)] == [5.0] * 3 and isinstance(twin["b"], Pair)
    assert [float(t[0]) for _, t in named_tensors(tree)] == [1.0] * 3 and twin["b"].scale == 2.0


def test_the_measured_input_is_the_one_named_or_the_first_of_floats() -> None:
    tensors = {"0.0": torch.tensor([1]), "0.1": torch.ones(2), "1.mask": torch.ones(3)}
    assert choose(tensors, None) == "0.1" and choose(tensors, "mask") == "1.mask" and choose(tensors, "input") == "0.0"
    assert [argument_name(name) for name in ("0.0", "0.1", "1.mask", "0")] == ["input", "input 1", "mask", "input"]
    with pytest.raises(InputError, match="expected one of input, input 1, mask, got 'y'"):
        choose(tensors, "y")


def test_positional_arguments_are_counted() -> None:
    assert positional_limit(nn.Linear(2, 2)) == 1 and positional_limit(Lambda(lambda m, x: x)) is None
    assert positional_limit(nn.Bilinear(2, 2, 2)) == 2


def test_the_output_is_the_logits_or_the_first_float() -> None:
    given = {"index": torch.tensor([1]), "hidden": torch.ones(1), "logits": torch.ones(2)}
    found, notes = pick_output(given)
    assert found is given["logits"] and notes == ["measured output: logits; not measured: hidden"]
    assert pick_output((torch.tensor([1]), torch.ones(2)))[1] == []
    with pytest.raises(InputError, match=r"the model returned a tuple of int, str"):
        pick_output((3, "a"))


def test_a_forward_that_failed_is_told_with_the_names_it_does_not_know():
    """``**kwargs`` swallow what a model does not take; it fails where it misses what it does."""

    class Pictures(nn.Module):
        def forward(self, pixel_values=None, mask=None, **kwargs):
            return pixel_values.sum()

    said = r"forward raised AttributeError: .*; it takes pixel_values, mask, and the batch gives input_ids$"
    with pytest.raises(InputError, match=said):
        ng.gauge(Pictures(), {"input_ids": torch.ones(2, 3), "mask": torch.ones(2, 3)})
    with pytest.raises(InputError, match=r"no attribute 'shape'$"):
        ng.gauge(Fails(), {"x": torch.ones(2, 3)})


class Fails(nn.Module):
    """A forward that fails by itself."""

    def forward(self, x):
        return None.shape

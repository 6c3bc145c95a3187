"""What a normalizer says of itself: its parts against torch's own functions, and its neighbours in a trace."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.normalizer import (
    Normalizer,
    fed_normalizers,
    known_normalizer,
    making_map,
    of_torch,
    reading_steps,
)
from normgauge.instrument.trace import record_trace
from tests.cases import weight
from tests.instrument.rules.one_step import jacobian_norm

MODULES = {
    "batch": nn.BatchNorm2d(4),
    "instance": nn.InstanceNorm2d(4, affine=True),
    "group": nn.GroupNorm(2, 4),
    "layer": nn.LayerNorm((5, 5)),
    "rms": nn.RMSNorm(5, eps=1e-3),
}


@pytest.mark.parametrize("kind", MODULES)
def test_groups_and_variances_are_those_torch_divides_by(kind):
    module, x = MODULES[kind].double().train(), weight(3, 4, 5, 5)
    form = of_torch(module)
    assert form.kind == kind and form.own and form.stored is None
    groups, below = form.grouped(x), form.below(form.variance(x))
    middle = groups - groups.mean(2, keepdim=True) if form.centred else groups
    wanted = form.grouped(module(x).detach())
    torch.testing.assert_close(middle / below[:, :, None], wanted)  # gains are 1 and shifts 0


@pytest.mark.parametrize("where", ["inside", "outside", "floor"])
@pytest.mark.parametrize("size", [0.1, 3.0])
def test_what_epsilon_lets_through_is_the_radial_slope(where, size):
    form = Normalizer("rms", None, None, 0.5, dims=(-1,), where=where)
    x = size * F.normalize(weight(1, 4)) * 2  # root mean square: size
    variance = form.variance(x)
    radial = torch.autograd.functional.jvp(form, x, x / x.norm())[1].norm() * form.below(variance)
    assert float(form.left(variance)) == pytest.approx(float(radial), rel=1e-9)
    assert jacobian_norm(form, x) == pytest.approx(float(1 / form.below(variance)), rel=1e-9)


def test_stored_statistics_are_an_affine_map():
    module = nn.BatchNorm1d(3).double().eval()
    for tensor in module.state_dict().values():
        tensor.copy_(weight(*tensor.shape).abs() + 0.1)
    x = weight(4, 3, 2)
    torch.testing.assert_close(of_torch(module)(x), module(x))


def traced(*layers: nn.Module):
    net, x = nn.Sequential(*layers).double(), weight(4, 3)
    return record_trace(net, (x,), {}, x, lambda out: (out, []), REGISTRY.is_leaf, lambda target: None)


def is_linear(step) -> bool:
    return isinstance(step.module, nn.Linear)


def test_the_map_that_feeds_a_normalizer_is_found_through_dropout():
    trace = traced(nn.Linear(3, 5), nn.Dropout(0.5), nn.LayerNorm(5), nn.ReLU(), nn.LayerNorm(5))
    first, norm, other = trace.steps[0], trace.steps[2], trace.steps[4]
    assert making_map(norm.inputs[0], is_linear) is first and making_map(other.inputs[0], is_linear) is None
    assert reading_steps(trace, norm.outputs[0]) == [trace.steps[3]]


def test_only_maps_that_a_normalizer_alone_reads_are_fed():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map, self.norm = nn.Linear(3, 5), nn.LayerNorm(5)

        def forward(self, x):
            y = self.map(x)
            return self.norm(y) + y

    pairs = [
        (a.module, b.module, form.kind)
        for a, b, form in fed_normalizers(traced(nn.Linear(3, 5), nn.RMSNorm(5)), torch.float32, is_linear)
    ]
    assert [(type(a), type(b), kind) for a, b, kind in pairs] == [(nn.Linear, nn.RMSNorm, "rms")]
    assert list(fed_normalizers(traced(Twice()), torch.float32, is_linear)) == []


def test_another_step_is_refused_with_its_name():
    with pytest.raises(TypeError, match="ReLU is no normalizer"):
        known_normalizer(traced(nn.ReLU()).steps[0], torch.float32)

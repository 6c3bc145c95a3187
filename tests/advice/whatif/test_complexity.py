"""A network against itself without normalizers: the ratios are those of constants known by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.advice.whatif import WhatIf
from normgauge.advice.whatif.complexity import complexity, without_normalizers
from normgauge.core.errors import ReadingError
from normgauge.core.ratios import ratios

GAINS, SIGMA, WIDTH = (0.5, 3.0, 2.0), 4.0, 5
EPS = 1e-30  # torch 2.11 wants some


def stack(normalized: bool = True) -> nn.Sequential:
    """W_k = a_k·I, each with BatchNorm of one σ, and ReLU."""
    layers: list[nn.Module] = []
    for a in GAINS:
        linear, norm = nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH, eps=EPS)
        linear.weight = nn.Parameter(a * torch.eye(WIDTH))
        assert norm.running_var is not None
        norm.running_var.fill_(SIGMA**2)
        layers += [linear, *([norm] if normalized else []), nn.ReLU()]
    return nn.Sequential(*layers).eval()


def ask(model: nn.Module, x: Tensor, scope: str = "point") -> WhatIf:
    return ng.what_if(model, x, scope=scope, balance=False, search=False)


@pytest.fixture
def batch() -> Tensor:
    return torch.rand(3, WIDTH, generator=torch.Generator().manual_seed(0)) + 0.5


def test_every_layer_gains_all_normalizers_since_its_input_shrinks_too(batch):
    found = complexity(ask(stack(), batch))
    assert [one.log_ratio for one in found.layers] == pytest.approx([-3 * math.log(SIGMA)] * 3, abs=1e-6)
    assert [one.normalizers for one in found.layers] == [(3, 0), (2, 0), (1, 0)]
    largest = math.log(float(batch.norm(dim=1).max()))
    for i, one in enumerate(found.layers):
        others = math.prod(a for j, a in enumerate(GAINS) if j != i)
        assert one.log_b == pytest.approx(math.log(others) + largest, abs=1e-6)
    assert "statistics frozen" in found.notes[0]


def test_the_bare_reading_is_that_of_the_network_built_without(batch):
    net = stack()
    before = copy.deepcopy(net.state_dict())
    bare = without_normalizers(ask(net, batch))
    assert bare.log_upper == pytest.approx(ask(stack(normalized=False), batch).reading.log_upper, abs=1e-9)
    assert [record.sigma for record in bare.layers] == [None] * len(bare.layers) and len(bare.layers) >= len(GAINS)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert [type(module) for module in net] == [type(module) for module in stack()]
    assert len([note for note in bare.notes if "replaced by the identity" in note]) == 3


def test_two_readings_give_the_same_ratios(batch):
    net = stack()
    both = ratios(ask(net, batch).reading, without_normalizers(ask(net, batch)))
    assert [one.log_ratio for one in both.layers] == [one.log_ratio for one in complexity(ask(net, batch)).layers]


def test_everywhere_the_first_layer_has_no_constant(batch):
    found = complexity(ask(stack(), batch, "global"))
    assert [one.why for one in found.layers] == ["no finite bound in A, scope global"] * 3


class Mixed(nn.Module):
    """One normalizer under two names, one as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.norm = nn.LayerNorm(4)
        self.again = self.norm

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.layer_norm(self.again(torch.tanh(self.norm(self.first(x)))), (4,)))


def test_names_of_one_module_are_replaced_together_and_functions_stay():
    torch.manual_seed(0)
    found = complexity(ask(Mixed().eval(), torch.randn(3, 4)))
    assert [one.normalizers for one in found.layers] == [(3, 1), (0, 0)]
    assert found.layers[0].scale_free and not found.layers[1].scale_free
    assert found.notes[0].startswith("Normalizers that are functions")


def test_nothing_to_compare_is_said(batch):
    with pytest.raises(ReadingError, match="no normalizer that is a module"):
        complexity(ask(stack(normalized=False), batch))


def test_a_network_that_changed_is_refused(batch):
    net = stack()
    asked = ask(net, batch)
    with torch.no_grad():
        next(net.parameters()).mul_(2)
    with pytest.raises(ReadingError, match="has changed since"):
        complexity(asked)

"""Kinks with a bump: exact values, slopes and products; a gradient that leads to the steeper side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.instrument.probe.kinks import TwiceKinked
from normgauge.instrument.probe.linearize import SampleMap
from tests.instrument.probe.cases import gaussian

SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "module": nn.ReLU(),
    "module in place": nn.ReLU(inplace=True),
    "function": F.relu,
    "function in place": lambda x: F.relu(x, inplace=True),
    "torch": torch.relu,
    "torch in place": torch.relu_,
    "method": lambda x: x.relu(),
    "method in place, result dropped": lambda x: (x.relu_(), x)[1],
    "leaky": lambda x: F.leaky_relu(x, 0.2),
    "leaky, by name, in place": lambda x: F.leaky_relu(x, negative_slope=0.3, inplace=True),
    "leaky module": nn.LeakyReLU(),
    "leaky, steeper below": nn.LeakyReLU(1.5),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_values_and_products_are_torchs_own(name: str) -> None:
    unit, x, u = SPELLINGS[name], gaussian(3, 5), gaussian(3, 5, seed=1)
    leaf = x.clone().requires_grad_(True)
    plain = unit(leaf * 2)
    (pulled,) = torch.autograd.grad((plain * u).sum(), leaf)
    with TwiceKinked() as kinks:
        out = unit(leaf * 2)
    assert torch.equal(out, plain) and torch.equal(torch.autograd.grad((out * u).sum(), leaf)[0], pulled)
    assert len(kinks.inputs) == 1 and torch.equal(kinks.inputs[0].detach(), 2 * x)


@pytest.mark.parametrize("name", SPELLINGS)
def test_work_counts_the_kinks_that_are_replaced(name: str) -> None:
    assert SampleMap(lambda x: SPELLINGS[name](x * 2), gaussian(3, 5), 3).work.kinks == 1


def test_the_gradient_leads_to_where_a_steep_unit_switches_on() -> None:
    network = SampleMap(lambda x: 5 * (x - 1).relu() + (x + 3).relu(), torch.zeros(1, 1, dtype=torch.float64), 1)
    _, slope = network.at(network.start).climb(torch.ones(1, 1, dtype=torch.float64))
    assert slope is not None and slope.item() > 0
    pushed = network.at(network.start).push(torch.ones(1, 1, dtype=torch.float64))
    assert pushed.item() == 1


def test_without_a_graph_or_inside_vmap_torch_has_its_way() -> None:
    x = gaussian(3, 5)
    with TwiceKinked() as kinks:
        assert torch.equal(F.relu(x), x.clamp(min=0))
        leaf = x.clone().requires_grad_(True)
        assert torch.equal(torch.func.vmap(F.relu)(leaf), x.clamp(min=0))
    assert kinks.inputs == []


def test_a_layer_of_zeros_has_a_finite_gradient() -> None:
    network = SampleMap(lambda x: (x * 0).relu() + x, gaussian(2, 3), 2)
    _, slope = network.at(network.start).climb(gaussian(2, 3))
    assert slope is not None and slope.isfinite().all()

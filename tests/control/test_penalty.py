"""The penalty in use: targets, layers, lazy calls, hooks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgauge as ng
from normgauge.control.channel_scales import Variance
from normgauge.lab.zoo import mlp


def net() -> nn.Module:
    torch.manual_seed(0)
    return mlp((10, 16, 16, 4), norm="batch")


@pytest.mark.parametrize("by", ["total", "layer"])
def test_training_with_it_lowers_the_proved_bound(by: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(128, 10, generator=draw)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    uppers = []
    for weight in (0.0, 1.0):
        model = net()
        penalty = ng.penalty(model, x, by=by, every=1)
        training = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(150):
            training.zero_grad()
            (F.cross_entropy(model(x), y) + weight * penalty()).backward()
            training.step()
        uppers.append(ng.gauge(model.eval(), x[:8], scope="global", search=False, effort="quick").log10_folded)
    assert uppers[1] < uppers[0] - 0.3


def test_target_is_where_it_ends() -> None:
    x = torch.randn(8, 10)
    assert float(ng.penalty(net(), x, target=20.0)().detach()) == 0.0
    assert float(ng.penalty(net(), x, target=20.0, by="layer")().detach()) == 0.0
    whole = ng.penalty(net(), x)
    assert float(ng.penalty(net(), x, target=-1.0, every=1)().detach()) == pytest.approx(whole.log10() + 1.0, abs=1e-4)


def test_one_call_in_several() -> None:
    model, x = net(), torch.randn(8, 10)
    often, seldom = ng.penalty(model, x, every=1), ng.penalty(model, x, every=3)
    values = [float(seldom().detach()) for _ in range(4)]
    assert values[1] == values[2] == 0.0
    assert values[0] == pytest.approx(3 * float(often().detach()), rel=1e-4)
    assert values[3] == pytest.approx(values[0], rel=1e-3)


def test_layers_add_up_along_a_chain() -> None:
    penalty = ng.penalty(net(), torch.randn(8, 10), every=1)
    assert sum(penalty.layers().values()) == pytest.approx(penalty.log10(), abs=1e-3)
    assert set(penalty.layers()) == {"layers.0.linear", "layers.1.linear", "head"}


def test_the_model_is_left_alone() -> None:
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    penalty = ng.penalty(model, torch.zeros(4, 10), every=1)
    penalty()
    penalty.close()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state()) and model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("options", [{"by": "channel"}, {"every": 0}])
def test_options_that_are_none(options: dict[str, object]) -> None:
    with pytest.raises(ng.NormgaugeError, match="expected by"):
        ng.penalty(net(), torch.randn(2, 10), **options)


@pytest.mark.parametrize("axes", [(0, 2), (2,)])
@pytest.mark.parametrize("centred", [True, False])
def test_variance_and_its_slopes_are_torch_s(axes: tuple[int, ...], centred: bool) -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    own = Variance.apply(x, axes, centred)
    assert torch.allclose(own, x.var(axes, correction=0) if centred else x.square().mean(axes))
    assert torch.autograd.gradcheck(lambda z: Variance.apply(z, axes, centred), (x,))
    assert torch.autograd.gradgradcheck(lambda z: Variance.apply(z, axes, centred), (x,))

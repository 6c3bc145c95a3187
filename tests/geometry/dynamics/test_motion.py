import math

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import (
    ScaleFree,
    angular_update,
    gradients,
    measure,
    norm_growth_residual,
    snapshot,
    split_gradient,
    vectors,
)
from tests.geometry.dynamics.nets import backward, batch_norm_net, data


def test_the_radial_gradient_is_zero_and_the_tangential_is_all_of_it():
    net, groups = batch_norm_net()
    backward(net, *data())
    for motion in measure(net, groups, lr=0.1):
        assert float(motion.radial.abs().max()) < 1e-15
        assert torch.allclose(motion.scale_free, motion.norm * motion.tangential, rtol=1e-12)
        assert float(motion.scale_free.min()) > 1e-4


def test_split_is_an_orthogonal_sum():
    generator = torch.Generator().manual_seed(0)
    w, g = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    radial, across = split_gradient(w, g)
    unit = w / w.norm(dim=1, keepdim=True)
    assert torch.allclose(radial[:, None] * unit + across, g, rtol=1e-12)
    assert torch.allclose((across * w).sum(1), torch.zeros(5, dtype=torch.float64), atol=1e-14)


def test_scale_free_numbers_do_not_move_with_the_gauge_and_the_others_do():
    net, groups = batch_norm_net()
    x, y = data()
    backward(net, x, y)
    before = measure(net, groups, lr=0.1)[0]
    with torch.no_grad():
        net[0].weight *= torch.logspace(-2, 2, 12, dtype=torch.float64)[:, None]
    backward(net, x, y)
    after = measure(net, groups, lr=0.1)[0]
    assert torch.allclose(after.scale_free, before.scale_free, rtol=1e-10)
    assert torch.allclose(after.tangential, before.tangential * torch.logspace(2, -2, 12).double(), rtol=1e-5)
    assert torch.allclose(after.effective_lr, 0.1 / after.norm**2, rtol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_norm_grows_by_the_step_and_nothing_else(decay):
    net, groups = batch_norm_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=2.0, weight_decay=decay)
    for seed in range(5):
        backward(net, *data(seed=seed))
        before, slopes = snapshot(net), gradients(net)
        optimizer.step()
        for group in groups:
            w, g, after = vectors(group, before), vectors(group, slopes), vectors(group, snapshot(net))
            residual = norm_growth_residual(w, after, g, 2.0, decay)
            assert float(residual.abs().max()) < 1e-13
            grown = after.square().sum(1) - (1 - 2.0 * decay) ** 2 * w.square().sum(1)
            assert float(grown.min()) > 0 and float(grown.max()) > 1e-5


def test_with_eps_the_residual_is_the_radial_gradient():
    net, groups = batch_norm_net(eps=0.3)
    backward(net, *data())
    before, slopes = snapshot(net), gradients(net)
    torch.optim.SGD(net.parameters(), lr=0.7, weight_decay=0.2).step()
    w, g, after = (vectors(groups[0], tensors) for tensors in (before, slopes, snapshot(net)))
    expected = -2 * 0.7 * (1 - 0.7 * 0.2) * (w * g).sum(1)
    assert float(expected.abs().max()) > 1e-4
    assert torch.allclose(norm_growth_residual(w, after, g, 0.7, 0.2), expected, rtol=1e-9)


@pytest.mark.parametrize("turn", [1e-9, 1e-3, 1.0, 3.0])
def test_the_angle_is_right_at_every_size(turn):
    before = {"w": torch.tensor([[2.0, 0.0]], dtype=torch.float64)}
    after = {"w": 5 * torch.tensor([[math.cos(turn), math.sin(turn)]], dtype=torch.float64)}
    assert float(angular_update(ScaleFree(("w",), 1), before, after)) == pytest.approx(turn, rel=1e-12)


def test_without_a_gradient_there_is_nothing_to_measure():
    net, groups = batch_norm_net()
    with pytest.raises(InputError, match=r"call loss\.backward\(\) first"):
        measure(net, groups, lr=0.1)


def test_a_parameter_the_loss_does_not_see_has_gradient_zero():
    net, _ = batch_norm_net()
    net[0].weight.sum().backward()
    assert float(gradients(net)["3.weight"].abs().max()) == 0

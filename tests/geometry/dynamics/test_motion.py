"""What one step does to a scale-free vector, and the radial gradient that ε leaves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import (
    RadialIdentity,
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

EPS = 0.1
IMAGE = (5, 3, 6, 6)
CASES = {
    "batch-linear": (lambda: nn.Linear(4, 6, bias=False), lambda: nn.BatchNorm1d(6, EPS), (7, 4), 6),
    "batch-conv": (lambda: nn.Conv2d(3, 6, 3), lambda: nn.BatchNorm2d(6, EPS), IMAGE, 6),
    "batch-plain": (lambda: nn.Linear(4, 6), lambda: nn.BatchNorm1d(6, EPS, affine=False), (7, 4), 6),
    "layer": (lambda: nn.Linear(4, 6), lambda: nn.LayerNorm(6, EPS), (7, 4), 1),
    "layer-tokens": (lambda: nn.Linear(4, 6), lambda: nn.LayerNorm(6, EPS), (7, 3, 4), 1),
    "group": (lambda: nn.Conv2d(3, 6, 3), lambda: nn.GroupNorm(3, 6, EPS), IMAGE, 3),
    "instance": (lambda: nn.Conv2d(3, 6, 3), lambda: nn.InstanceNorm2d(6, EPS, affine=True), IMAGE, 6),
    "rms": (lambda: nn.Linear(4, 6), lambda: nn.RMSNorm(6, EPS), (7, 4), 1),
    "rms-default": (lambda: nn.Linear(4, 6), lambda: nn.RMSNorm(6), (7, 4), 1),
}


def test_the_radial_gradient_is_zero_and_the_tangential_is_all_of_it():
    net, groups = batch_norm_net()
    backward(net, *data())
    motions = measure(net, groups, lr=0.1)
    assert [motion.group for motion in motions] == groups
    for motion in motions:
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


def radial(net: nn.Module, x: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """w·∇L as predicted and as autograd has it."""
    with RadialIdentity(net, ["1"]) as identity:
        out = net(x)
        (out.sin() * torch.linspace(-1, 2, out.numel(), dtype=x.dtype).reshape(out.shape)).sum().backward()
    group = ScaleFree(tuple(name for name, _ in net.named_parameters() if name.startswith("0.")), rows)
    return identity.predicted["1"], (vectors(group, snapshot(net)) * vectors(group, gradients(net))).sum(1)


@pytest.mark.parametrize("name", CASES)
def test_the_radial_gradient_is_what_the_identity_says(name):
    linear, norm, shape, rows = CASES[name]
    torch.manual_seed(3)
    net = nn.Sequential(linear(), norm(), nn.Tanh()).double()
    if net[1].weight is not None:
        nn.init.uniform_(net[1].weight, -1.5, 1.5)
    predicted, found = radial(net, torch.randn(shape, dtype=torch.float64), rows)
    assert predicted.shape == (rows,)
    assert torch.allclose(predicted, found, rtol=1e-9, atol=1e-13)
    assert float(predicted.abs().max()) > (1e-3 if name != "rms-default" else 1e-17)


def test_batch_norm_is_the_formula_with_the_gain():
    """THEORY 11.2 word for word: ε/(σ²+ε)·γ·∂L/∂γ."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6, EPS), nn.Tanh()).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    predicted, _ = radial(net, x, 6)
    var = net[0](x).var(0, correction=0)
    assert torch.allclose(predicted, EPS / (var + EPS) * net[1].weight * net[1].weight.grad, rtol=1e-9)


def test_the_hooks_go_and_a_pass_without_gradients_is_not_heard():
    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)).double()
    with RadialIdentity(net, ["1"]) as identity, torch.no_grad():
        net(torch.randn(3, 4, dtype=torch.float64))
    assert not identity.predicted
    assert not net[1]._forward_hooks


def test_a_layer_used_twice_adds_up():
    net = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, EPS)).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    with RadialIdentity(net, ["1"]) as identity:
        net(net(x).tanh()).pow(3).sum().backward()
    group = ScaleFree(("0.weight", "0.bias"), 1)
    found = (vectors(group, snapshot(net)) * vectors(group, gradients(net))).sum(1)
    assert torch.allclose(identity.predicted["1"], found, rtol=1e-9)


def test_what_is_no_normalizer_is_named():
    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
    with pytest.raises(InputError, match="0: no normalizer of this model; it has 1"):
        RadialIdentity(net, ["0"])


def test_running_statistics_make_nothing_scale_free():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).eval()
    with RadialIdentity(net, ["1"]):
        loss = net(torch.randn(3, 4)).sum()
        with pytest.raises(InputError, match=r"call model\.train\(\)"):
            loss.backward()


@pytest.mark.parametrize("width", [5, 4], ids=["as wide as channels", "narrower"])
def test_gains_of_channels_beside_groups_of_pixels_keep_their_axis(width):
    class FilterResponse(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 2, 5).reshape(-1, 1, 1))

        def forward(self, x):
            return self.weight * (x / torch.sqrt(x.square().mean((2, 3), keepdim=True) + 1e-5))

    net = nn.Sequential(nn.Conv2d(4, 5, 3, padding=1, bias=False), FilterResponse()).double()
    x, target = torch.randn(6, 4, 5, width).double(), torch.randn(6, 5, 5, width).double()
    with RadialIdentity(net, ["1"]) as identity:
        (net(x) - target).square().sum().backward()
    radial = float((net[0].weight.detach() * net[0].weight.grad).sum())
    assert float(identity.predicted["1"].sum()) == pytest.approx(radial, rel=1e-9)

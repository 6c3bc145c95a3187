import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import RadialIdentity, ScaleFree, gradients, snapshot, vectors

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

"""Extremal networks: their closed forms against autograd, singular values and the steepest weights that exist."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo import extremal, input_constant, loss_constant, mlp, weight_constant, weight_gradient
from normgauge.theory.jacobians import jacobian, spectral_norm

GAINS, WIDTHS = (1.5, 0.7, 2.0, 3.0), (5, 7, 4, 6, 4)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slope_at(net: nn.Sequential, x: Tensor) -> float:
    return spectral_norm(jacobian(lambda v: net(v[None])[0], x))


def test_input_constant_is_the_product_and_attained() -> None:
    net = extremal(GAINS, WIDTHS)
    assert input_constant(net) == pytest.approx(6.3, rel=1e-15)
    assert slope_at(net, normal(5).abs()) == pytest.approx(6.3, rel=1e-12)
    assert slope_at(net, -normal(5).abs()) == 0


def test_batch_statistics_are_those_of_the_batch() -> None:
    x = normal(200, 5)
    net = extremal(GAINS, WIDTHS, "batch", batch=x, eps=1e-3)
    first = x @ net[0].linear.weight.T
    assert torch.allclose(net[0].norm.running_mean, first.mean(0), atol=1e-15)
    assert torch.allclose(net[0].norm.running_var, first.var(0, unbiased=False), rtol=1e-12)
    assert not net.training
    second = net[1].linear(net[0](x))
    assert torch.allclose(net[1].norm.running_var, second.var(0, unbiased=False), rtol=1e-12)


def test_input_constant_with_batch_norm_is_attained() -> None:
    net = extremal(GAINS, WIDTHS, "batch", batch=normal(200, 5) * torch.arange(1.0, 6.0), eps=1e-3)
    far = torch.full((5,), 1e6, dtype=torch.float64)  # every ReLU is on
    assert slope_at(net, far) == pytest.approx(input_constant(net), rel=1e-12)


@pytest.mark.parametrize("gain", [0.1, 1.0, 10.0])
def test_batch_norm_takes_the_gains_away(gain: float) -> None:
    x = normal(20_000, 8)
    net = extremal([gain] * 8, [8] * 9, "batch", batch=x, eps=1e-12)
    assert math.log10(input_constant(net)) == pytest.approx(0.63, abs=0.03)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_input_constant_of_sample_normalizers_is_approached(kind: str) -> None:
    eps = 0.01
    net = extremal(GAINS, WIDTHS, kind, eps=eps)
    assert input_constant(net) == pytest.approx(6.3 * eps**-2, rel=1e-12)
    ray = torch.tensor([1.0, 1.0, -2.0, -1.0, -1.0], dtype=torch.float64)
    slopes = [slope_at(net, t * ray) for t in (1e-2, 1e-5, 1e-9)]
    assert slopes[0] < slopes[1] < slopes[2] * (1 + 1e-9)
    assert slopes[2] == pytest.approx(input_constant(net), rel=1e-6)


def weight_slopes(net: nn.Sequential, layer: int, x: Tensor, weight: Tensor, loss: bool = False) -> float:
    """‖∂h/∂W_i‖ (or the ℓ1 loss's gradient against a target no output reaches) at one W_i."""

    def output(value: Tensor) -> Tensor:
        before = net[: layer - 1](x[None]) @ value.T
        part = net[layer - 1]
        h = net[layer:](part.act(part.norm(before)))[0]
        return (h + 1).abs().sum().reshape(1) if loss else h

    return spectral_norm(jacobian(output, weight))


@pytest.mark.parametrize("kind", [None, "batch", "rms"])
@pytest.mark.parametrize("layer", [1, 2, 4])
def test_weight_and_loss_constants_are_attained_and_never_exceeded(kind: str | None, layer: int) -> None:
    batch = normal(100, 5, seed=1) if kind == "batch" else None
    net = extremal(GAINS, WIDTHS, kind, batch=batch, eps=0.1)
    x = normal(5, seed=2).abs() + 3
    entering = net[: layer - 1](x[None])[0]
    uppers = weight_constant(net, layer, x), loss_constant(net, layer, x)
    # every row along h: all channels on; far out for frozen statistics, near zero where a sample divides by its own
    best = entering.expand(WIDTHS[layer], -1) * (1e-12 if kind == "rms" else 1e6)
    assert weight_slopes(net, layer, x, best) == pytest.approx(uppers[0], rel=1e-9)
    assert weight_slopes(net, layer, x, best, loss=True) == pytest.approx(uppers[1], rel=1e-9)
    for seed in range(5):
        weight = normal(WIDTHS[layer], WIDTHS[layer - 1], seed=seed)
        assert weight_slopes(net, layer, x, weight) <= uppers[0] * (1 + 1e-12)
        assert weight_slopes(net, layer, x, weight, loss=True) <= uppers[1] * (1 + 1e-12)


def test_weight_constant_takes_the_whole_norm_of_what_enters() -> None:
    net, x = extremal((2.0, 3.0), (2, 1, 1)), torch.tensor([0.0, 1.0])
    assert weight_constant(net, 1, x) == 3
    assert weight_constant(net, 2, x) == 0  # only the first entry passes, and it is zero


def test_weight_constant_with_layer_norm_is_approached() -> None:
    net = extremal((2.0, 3.0), (3, 4, 4), "layer", eps=0.01)
    x = normal(3)
    toward = torch.outer(torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64), x)
    assert weight_slopes(net, 1, x, 1e-9 * toward) == pytest.approx(weight_constant(net, 1, x), rel=1e-6)


@pytest.mark.parametrize("kind", [None, "batch"])
@pytest.mark.parametrize("layer", [1, 2, 3, 4])
def test_weight_gradient_is_autograds(kind: str | None, layer: int) -> None:
    x = normal(30, 5)
    net = extremal(GAINS, WIDTHS, kind, batch=x if kind else None)
    weight = net[layer - 1].linear.weight
    with torch.no_grad():
        weight.copy_(normal(*weight.shape, seed=3))
        weight[1] = 0.0  # a row at the kink
    u = -0.4 * net(x).sum(1)
    (slope,) = torch.autograd.grad(u.tanh().square().sum(), u, retain_graph=True)
    (truth,) = torch.autograd.grad(u.tanh().square().mean(), weight)
    found = weight_gradient(net, layer, x, slope, head=-0.4)
    assert found.shape == weight.shape
    assert torch.allclose(found, truth, rtol=1e-12, atol=1e-15)
    assert truth[: min(WIDTHS[layer:])].abs().sum() > 0


@pytest.mark.parametrize(
    ("gains", "widths", "options", "said"),
    [
        ((1.0, 2.0), (3, 3), {}, "K \\+ 1"),
        ((), (3,), {}, "K \\+ 1"),
        ((1.0,), (3, 0), {}, "K \\+ 1"),
        ((1.0, -2.0), (3, 3, 3), {}, "not negative"),
        ((math.nan,), (3, 3), {}, "not negative"),
        ((math.inf,), (3, 3), {}, "not negative"),
        ((1.0,), (3, 3), {"norm": "spectral"}, "batch, layer, rms"),
        ((1.0,), (3, 3), {"norm": "rms", "eps": 0.0}, "eps must be positive"),
        ((1.0,), (3, 2), {"norm": "layer"}, "3 or more"),
        ((1.0,), (3, 3), {"norm": "batch"}, "needs batch="),
        ((1.0,), (3, 3), {"norm": "layer", "batch": torch.zeros(4, 3)}, "needs batch="),
        ((1.0,), (3, 3), {"norm": "batch", "batch": torch.zeros(4, 2)}, r"\(m, 3\)"),
        ((1.0,), (3, 3), {"norm": "batch", "batch": torch.zeros(1, 3)}, "m > 1"),
    ],
    ids=lambda value: None,
)
def test_bad_input_is_refused(gains: tuple[float, ...], widths: tuple[int, ...], options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        extremal(gains, widths, **options)


def test_constants_refuse_what_they_do_not_know() -> None:
    net, x = extremal((1.0, 1.0), (3, 3, 3), "layer"), torch.zeros(2, 3)
    with pytest.raises(InputError, match="LayerNorm"):
        loss_constant(net, 1, x[0])
    with pytest.raises(InputError, match="mix the channels"):
        weight_gradient(net, 1, x, torch.ones(2))
    for layer in (0, 3):
        with pytest.raises(InputError, match="1 to 2"):
            weight_constant(net, layer, x[0])
    for other in (mlp((3, 3, 2)).layers, nn.Sequential()):
        with pytest.raises(InputError, match="a network of `extremal`"):
            input_constant(other)

"""The penalty does not depend on how a function's weights are scaled, and its gradient is that of its value."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import gpt, mlp

SCALE = 7.0


def settled(model: nn.Module, x: Tensor) -> nn.Module:
    """The model in float64 with statistics and gains of its own."""
    torch.manual_seed(1)
    model.double().train()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.LayerNorm | nn.RMSNorm | nn.GroupNorm):
                module.weight.uniform_(0.5, 2.0)
        for _ in range(20):
            model(x + 0.3 * torch.randn_like(x))
    return model.eval()


def batch_net() -> nn.Module:
    return mlp((12, 16, 16, 5), norm="batch")


def worked(model: nn.Module, x: Tensor, train: bool = False) -> tuple[float, dict[str, Tensor]]:
    """Value and gradients after the vectors have settled."""
    penalty = ng.penalty(model, x, every=1)
    with torch.no_grad():
        for _ in range(300):
            penalty()
    model.train(train)
    model.zero_grad()
    model(x)
    value = penalty()
    value.backward()
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    penalty.close()
    return float(value.detach()), grads


@pytest.fixture
def x() -> Tensor:
    return torch.randn(32, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def linear_before_batch(model: nn.Module) -> dict[str, float | Tensor]:
    layer = model.layers[0]
    layer.linear.weight.mul_(SCALE)
    layer.linear.bias.mul_(SCALE)
    layer.norm.running_mean.mul_(SCALE)
    layer.norm.running_var.mul_(SCALE**2)
    layer.norm.eps *= SCALE**2
    return {"layers.0.linear.weight": SCALE}


def each_channel_before_batch(model: nn.Module) -> dict[str, float | Tensor]:
    layer = model.layers[1]
    t = torch.linspace(0.2, 5.0, 16, dtype=torch.float64)
    layer.linear.weight.mul_(t[:, None])
    layer.linear.bias.mul_(t)
    layer.norm.running_mean.mul_(t)
    layer.norm.running_var.copy_(t**2 * (layer.norm.running_var + layer.norm.eps) - layer.norm.eps)
    return {"layers.1.linear.weight": t[:, None]}


def relu_pair_behind_batch(model: nn.Module) -> dict[str, float | Tensor]:
    t = torch.linspace(0.1, 9.0, 16, dtype=torch.float64)
    model.layers[0].norm.weight.mul_(t)
    model.layers[0].norm.bias.mul_(t)
    model.layers[1].linear.weight.div_(t)
    return {"layers.0.norm.weight": t, "layers.1.linear.weight": 1 / t}


@pytest.mark.parametrize("change", [linear_before_batch, each_channel_before_batch, relu_pair_behind_batch])
def test_running_statistics(x: Tensor, change: Callable[[nn.Module], dict[str, float | Tensor]]) -> None:
    model = settled(batch_net(), x)
    other = copy.deepcopy(model)
    with torch.no_grad():
        factors = change(other)
    assert torch.allclose(model(x), other(x), atol=1e-9)
    (value, grads), (again, moved) = worked(model, x), worked(other, x)
    assert abs(value - again) < 1e-6
    for name, grad in grads.items():
        t = factors.get(name, 1.0)
        assert torch.allclose(moved[name] * t, grad, rtol=1e-4, atol=1e-6 * float(grad.abs().max())), name


def test_relu_pair_of_a_plain_net(x: Tensor) -> None:
    model = mlp((12, 16, 16, 5)).double().eval()
    other = copy.deepcopy(model)
    t = torch.linspace(0.1, 9.0, 16, dtype=torch.float64)
    with torch.no_grad():
        other.layers[0].linear.weight.mul_(t[:, None])
        other.layers[0].linear.bias.mul_(t)
        other.layers[1].linear.weight.div_(t)
    (value, grads), (again, moved) = worked(model, x), worked(other, x)
    assert abs(value - again) < 1e-6
    assert torch.allclose(moved["layers.0.linear.weight"] * t[:, None], grads["layers.0.linear.weight"], atol=1e-6)
    assert torch.allclose(moved["layers.1.linear.weight"] / t, grads["layers.1.linear.weight"], atol=1e-6)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_gains_before_a_map(norm: str, x: Tensor) -> None:
    tokens = torch.randint(0, 20, (2, 8), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = gpt(vocab=20, width=16, depth=1, heads=2, context=8, norm=norm).double().eval()
    other = copy.deepcopy(model)
    t = torch.linspace(0.3, 4.0, 16, dtype=torch.float64)
    with torch.no_grad():
        other.norm.weight.mul_(t)
        if norm == "layer":
            other.norm.bias.mul_(t)
        other.head.weight.div_(t)
        for part in (other.blocks[0].attn.query, other.blocks[0].attn.key, other.blocks[0].attn.value):
            part.weight.div_(t)
        other.blocks[0].norm1.weight.mul_(t)
    assert torch.allclose(model(tokens), other(tokens), atol=1e-9)
    (value, grads), (again, moved) = worked(model, tokens), worked(other, tokens)
    assert abs(value - again) < 1e-6
    assert torch.allclose(moved["norm.weight"] * t, grads["norm.weight"], rtol=1e-4, atol=1e-6)
    assert torch.allclose(moved["head.weight"] / t, grads["head.weight"], rtol=1e-4, atol=1e-6)


def test_scale_of_queries_against_keys() -> None:
    tokens = torch.randint(0, 20, (2, 8), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = gpt(vocab=20, width=16, depth=1, heads=2, context=8).double().eval()
    penalty = ng.penalty(model, tokens, every=1)
    with torch.no_grad():
        for _ in range(300):
            penalty()
    before = penalty.log10()
    with torch.no_grad():
        model.blocks[0].attn.query.weight.mul_(SCALE)
        model.blocks[0].attn.key.weight.div_(SCALE)
    assert abs(penalty.log10() - before) < 1e-6


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_scale_that_a_normalizer_undoes_is_not_rewarded(norm: str, x: Tensor) -> None:
    model = settled(mlp((12, 16, 16, 5), norm=norm, eps=1e-12), x)
    _, grads = worked(model, x, train=True)
    layer = model.layers[1].linear
    scale = float((layer.weight.detach() * grads["layers.1.linear.weight"]).sum())
    bias = grads.get("layers.1.linear.bias", torch.zeros(16, dtype=torch.float64))
    scale += float((layer.bias.detach() * bias).sum())
    assert abs(scale) < 1e-6
    assert float(grads["layers.1.linear.weight"].norm()) > 1e-3


@pytest.mark.parametrize("norm", [None, "batch", "layer", "rms", "group"])
def test_gradient_is_that_of_the_value(norm: str | None, x: Tensor) -> None:
    model = settled(mlp((12, 16, 16, 5), norm=norm, groups=4), x)
    _, grads = worked(model, x)
    penalty = ng.penalty(model, x, every=1)

    def value(turns: int = 80) -> float:
        with torch.no_grad():
            model(x)
            for _ in range(turns):
                penalty()
            return penalty.log10()

    value(400)

    draw = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        way = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        step = 1e-5
        with torch.no_grad():
            parameter.add_(step * way)
            up = value()
            parameter.sub_(2 * step * way)
            down = value()
            parameter.add_(step * way)
        expected = float((grads[name] * way).sum()) if name in grads else 0.0
        assert abs((up - down) / (2 * step) - expected) < 1e-5 * max(1.0, abs(expected)), name


def test_value_is_the_folded_bound(x: Tensor) -> None:
    model = settled(batch_net(), x)
    reading = ng.gauge(model, x, scope="global", search=False, effort="quick")
    value, _ = worked(model, x)
    assert reading.log10_lower <= value <= reading.log10_folded + 1e-6
    assert math.isclose(value, reading.log10_folded, abs_tol=0.3)

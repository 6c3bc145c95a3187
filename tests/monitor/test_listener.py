"""σ as autograd saved it equals σ computed from the input; the weight in front is found by the graph."""

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.listener import Listener, inverse_sigma, weight_before
from normgauge.monitor.sheet import Row, Sheet, fetch_numbers
from normgauge.monitor.vectors import Normalizers, groups_of
from tests.monitor.test_layers import LlamaRMSNorm

NORMS = {
    "batch": (lambda: nn.BatchNorm2d(6), (0, 2, 3)),
    "group": (lambda: nn.GroupNorm(3, 6), None),
    "instance": (lambda: nn.InstanceNorm2d(6, affine=True), (2, 3)),
    "layer": (lambda: nn.LayerNorm(5), (3,)),
    "layer of two axes": (lambda: nn.LayerNorm((5, 5)), (2, 3)),
}


def unexpected(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("name", NORMS)
def test_saved_equals_computed(name: str) -> None:
    torch.manual_seed(0)
    build, axes = NORMS[name]
    module = build()
    given = 3 * torch.randn(4, 6, 5, 5, requires_grad=True) + 1
    values = given.detach().double()
    square = values.reshape(4, 3, -1).var(-1, correction=0) if axes is None else values.var(axes, correction=0)
    expected = torch.rsqrt(square + 1e-5).flatten()
    saved = inverse_sigma(module, given, module(given)).double().flatten()
    torch.testing.assert_close(saved, expected, rtol=1e-5, atol=0)
    computed = inverse_sigma(module, given, given.detach()).double().flatten()  # no graph to look into
    torch.testing.assert_close(computed, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("module", [nn.RMSNorm(5, eps=1e-3), nn.RMSNorm(5), LlamaRMSNorm()], ids=["eps", "none", "own"])
def test_root_mean_square(module: nn.Module) -> None:
    given = torch.randn(4, 5, requires_grad=True)
    eps = {nn.RMSNorm: getattr(module, "eps", None)}.get(type(module), 1e-6) or torch.finfo(torch.float32).eps
    found = inverse_sigma(module, given, given * 1.0)
    torch.testing.assert_close(found, torch.rsqrt(given.detach().square().mean(-1) + eps))


def test_frozen_batch_norm_uses_its_running_statistics() -> None:
    module = nn.BatchNorm1d(3).eval()
    module.running_var.copy_(torch.tensor([1.0, 4.0, 9.0]))
    given = torch.randn(8, 3, requires_grad=True)
    found = inverse_sigma(module, given, module(given))
    torch.testing.assert_close(found, torch.rsqrt(module.running_var + module.eps))


@pytest.mark.parametrize("images", [True, False])
def test_the_weight_in_front_is_found(images: bool) -> None:
    linear = nn.Conv2d(3, 4, 3) if images else nn.Linear(3, 4)
    given = torch.randn(2, 3, 5, 5) if images else torch.randn(2, 7, 3)
    out = linear(given)
    assert weight_before(out) == id(linear.weight)
    assert weight_before(out.permute(*reversed(range(out.ndim)))) == id(linear.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert weight_before(linear(given)) == id(linear.weight)
    assert weight_before(torch.relu(out)) is None
    assert weight_before(given) is None


def test_a_listener_sleeps_unless_awake_and_never_raises() -> None:
    errors: list[Exception] = []
    module = nn.LayerNorm(4)
    listener = Listener(module, errors.append)
    listener.attach([WatchedLayer("", module, "weight", "norm")])
    module(torch.randn(3, 4, requires_grad=True))
    assert not listener.spreads
    listener.awake = True
    with torch.no_grad():
        module(torch.randn(3, 4))  # a validation pass
    assert not listener.spreads
    module(torch.randn(3, 4, requires_grad=True))
    module(torch.randn(5, 4, requires_grad=True))
    assert [t.numel() for t in listener.spreads[module].inverse] == [3, 5]
    listener._parts[module] = [lambda *args: 1 / 0]  # type: ignore[list-item, return-value]
    module(torch.randn(3, 4, requires_grad=True))
    assert len(errors) == 1 and isinstance(errors[0], ZeroDivisionError)
    listener.awake = False
    module(torch.randn(3, 4, requires_grad=True))
    assert len(errors) == 1


def numbers(sheet: Sheet) -> dict[int, Row]:
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    return sheet.layers


def test_the_numbers_of_normalizers() -> None:
    batch, layer, bare = nn.BatchNorm1d(3), nn.LayerNorm(3), nn.LayerNorm(3, elementwise_affine=False)
    batch.weight.data = torch.tensor([1.0, -4.0, 2.0])
    layer.weight.data = torch.tensor([0.5, 0.5, -3.0])
    layers = {
        i: WatchedLayer(str(i), m, "weight" if m is not bare else None, "norm")
        for i, m in enumerate([batch, layer, bare])
    }
    listener = Listener(nn.Sequential(batch, layer, bare), unexpected)
    listener.attach(list(layers.values()))
    listener.awake = True
    given = torch.randn(6, 3, requires_grad=True) * torch.tensor([1.0, 10.0, 0.1])
    bare(layer(batch(given)))
    sheet = Sheet()
    normalizers = Normalizers()
    weights = {0: batch.weight.detach(), 1: layer.weight.detach()}
    scales = normalizers.read(normalizers.hear(layers, listener, weights, sheet), sheet)
    found = numbers(sheet)
    sigma = torch.sqrt(given.detach().var(0, correction=0) + 1e-5)
    assert 1 / found[0]["inverse_max"] == pytest.approx(float(sigma.min()), rel=1e-5)
    assert 1 / found[0]["inverse_min"] == pytest.approx(float(sigma.max()), rel=1e-5)
    assert math.sqrt(found[0]["square"]) == pytest.approx(float(sigma.square().mean().sqrt()), rel=1e-5)
    torch.testing.assert_close(scales[0], batch.weight.detach().abs() / sigma)
    assert found[0]["gamma_max"] == 4.0 and found[0]["gain"] == pytest.approx(float(scales[0].max()), rel=1e-6)
    assert found[1]["gain"] == pytest.approx(3 * found[1]["inverse_max"], rel=1e-6)
    assert "gamma_max" not in found[2] and found[2]["gain"] == pytest.approx(found[2]["inverse_max"], rel=1e-6)


def shaped(module: nn.Module) -> tuple[WatchedLayer, Normalizer]:
    layer = WatchedLayer("", module, "weight", "norm")
    return layer, layer.form


def test_groups_that_can_be_rescaled() -> None:
    assert groups_of(*shaped(nn.BatchNorm2d(6))) == 6
    assert groups_of(*shaped(nn.GroupNorm(2, 6))) == 2
    assert groups_of(*shaped(nn.LayerNorm(6))) == 1


def test_the_largest_input_of_a_convolution_is_kept() -> None:
    conv = nn.Conv2d(2, 3, 3, padding=1)
    listener = Listener(conv, unexpected)
    listener.attach([WatchedLayer("", conv, "weight", "conv")])
    listener.awake = True
    for shape in ((1, 2, 5, 9), (1, 2, 8, 4), (2, 6, 6)):  # the last without a batch axis
        conv(torch.randn(shape))
    assert listener.sizes[conv] == (8, 9)

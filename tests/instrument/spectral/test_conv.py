"""Convolutions: the enclosure holds the true norm for every option, by the dense way and by the circulants."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch

from normgauge.core.interval import INF
from normgauge.instrument.spectral.conv import ConvSpec, apply_adjoint, apply_conv, conv_norm
from normgauge.instrument.spectral.power import seeded_start, top_singular
from tests.instrument.spectral.conv_truth import gaussian, random_layer, same, true_log_norm

SEEDS = range(120)
DATA = os.environ.get("NORMGAUGE_DATA")
RESNET20 = {
    "layer1.0.conv1": (32, 1, 5.311269),
    "layer2.1.conv1": (16, 1, 5.984550),
    "layer3.2.conv1": (8, 1, 8.016461),
    "layer2.0.conv1": (32, 2, 4.5037),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_holds_the_true_norm(seed: int) -> None:
    weight, spec = random_layer(seed)
    truth = true_log_norm(weight, spec)
    dense, circulant = conv_norm(weight, spec, dense_limit=10**9), conv_norm(weight, spec, dense_limit=0)
    assert dense.log.contains(truth), spec
    assert circulant.log.contains(truth), spec
    assert dense.width <= 1e-6
    assert bool(circulant.reason) == (circulant.width > 1e-3)


def test_depthwise_takes_the_largest_group() -> None:
    weight = torch.stack([torch.full((1, 3, 3), value) for value in (0.1, 2.0, 0.5)])
    spec = ConvSpec((6, 6), padding=((1, 1), (1, 1)), groups=3)
    one = conv_norm(weight[1:2], same(6))
    assert conv_norm(weight, spec, dense_limit=0).log.contains(one.log.hi - one.width / 2)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_scales(scale: float) -> None:
    weight, spec = gaussian(2, 2, 3, 3), same(6)
    truth = true_log_norm(weight, spec) + math.log(scale)
    for limit in (0, 10**9):
        assert conv_norm(weight * scale, spec, dense_limit=limit).log.contains(truth)


def test_zero_and_not_finite() -> None:
    spec = same(6)
    assert conv_norm(torch.zeros(2, 2, 3, 3), spec).log.hi == -INF
    bad = torch.ones(2, 2, 3, 3)
    bad[0, 0, 0, 0] = math.nan
    found = conv_norm(bad, spec)
    assert (found.log.lo, found.log.hi) == (-INF, INF)
    assert found.reason


def _top_pair(weight, spec, start=None, steps=60, tolerance=1e-9):
    weight = weight.double()
    start = seeded_start(spec.input_shape(weight), weight) if start is None else start
    ways = (lambda x: apply_conv(weight, x[None], spec)[0], lambda y: apply_adjoint(weight, y[None], spec)[0])
    return top_singular(*ways, start, steps, tolerance)


def test_a_layers_top_pair_gives_the_gradient_and_warm_starts() -> None:
    weight, spec = gaussian(4, 3, 3, 3), same(7)
    sigma, left, right = _top_pair(weight, spec)
    assert math.log(sigma) == pytest.approx(true_log_norm(weight, spec), abs=1e-8)
    leaf = weight.clone().requires_grad_()
    (slope,) = torch.autograd.grad((left * apply_conv(leaf, right[None], spec)[0]).sum(), leaf)
    step = 1e-6 * gaussian(*weight.shape, seed=1)
    moved = math.exp(true_log_norm(weight + step, spec)) - sigma
    assert moved == pytest.approx(float((slope * step).sum()), rel=1e-3)
    again, _, _ = _top_pair(weight, spec, start=right, steps=1)
    assert again == pytest.approx(sigma, rel=1e-12)


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    conv_norm(gaussian(4, 4, 3, 3), same(12), dense_limit=0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(DATA is None, reason="NORMGAUGE_DATA is not set: no ResNet-20 weights")
@pytest.mark.parametrize("name", RESNET20)
def test_resnet20_layers(name: str) -> None:
    from safetensors.torch import load_file

    size, stride, published = RESNET20[name]
    weight = load_file(Path(str(DATA)) / "weights" / "resnet20_cifar10.safetensors")[f"{name}.weight"]
    spec = ConvSpec((size, size), (stride, stride), ((1, 1), (1, 1)))
    sigma, _, _ = _top_pair(weight, spec, steps=200)
    assert sigma == pytest.approx(published, abs=1e-4 if stride == 2 else 1e-6)
    found = conv_norm(weight, spec)
    assert found.log.contains(math.log(sigma))
    assert found.width <= 1e-3

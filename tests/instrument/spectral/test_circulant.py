"""Circulants around a convolution: both ends hold the norm and meet, the upper one with the method it names."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.instrument.spectral.circulant import steepest_groups, surround
from normgauge.instrument.spectral.conv import ConvSpec, conv_norm
from tests.instrument.spectral.conv_truth import gaussian, same, true_log_norm


def test_what_stands_around_a_layer() -> None:
    weight = gaussian(2, 2, 3)
    circular = surround(weight, ConvSpec((6,), padding=((1, 1),), padding_mode="circular"))
    assert (circular.factor, circular.twists[0].sizes) == (1.0, (6,)) and len(circular.twists) == 1
    zeros = surround(weight, same(6, axes=1))
    assert zeros.factor == 1.0 and [twist.odd for twist in zeros.twists] == [(1,), (0,)]
    copied = surround(weight, ConvSpec((6,), padding=((2, 0),), padding_mode="replicate"))
    assert copied.factor == pytest.approx(math.sqrt(3)) and copied.base.input_size == (8,)
    transposed = surround(weight, ConvSpec((3,), stride=(2,), transposed=True))
    assert not transposed.base.transposed and transposed.base.input_size == (7,) and transposed.outputs == (3,)


@pytest.mark.parametrize(("groups", "outputs", "transposed"), [(12, 12, False), (6, 12, False), (4, 8, True)])
@pytest.mark.parametrize("stride", [1, 2])
def test_groups_that_cannot_have_the_norm_are_left_out(
    groups: int, outputs: int, transposed: bool, stride: int
) -> None:
    weight = gaussian(outputs, 2, 3, 3, seed=groups + stride)
    weight[: outputs // groups] *= 4  # the first group has it
    padding = ((1, 1), (1, 1))
    spec = ConvSpec((7, 7), stride=(stride, stride), padding=padding, groups=groups, transposed=transposed)
    kept, fewer = steepest_groups(weight, spec)
    assert torch.equal(kept[: outputs // groups], weight[: outputs // groups]) and fewer.groups < groups
    assert true_log_norm(kept, fewer) == pytest.approx(true_log_norm(weight, spec), abs=1e-12)
    assert conv_norm(weight, spec, dense_limit=0).log.contains(true_log_norm(weight, spec))


@pytest.mark.parametrize("channels", [(6, 6), (4, 7), (7, 2)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [8, 9])
def test_circulants_reach_the_width(channels: tuple[int, int], stride: int, size: int) -> None:
    weight, spec = gaussian(*channels, 3, 3, seed=size), same(size, stride=stride)
    found = conv_norm(weight, spec, dense_limit=0)
    assert found.log.contains(true_log_norm(weight, spec))
    assert found.width <= 1e-3


@pytest.mark.parametrize("size", [2, 3, 10, 50])
def test_twist_is_exact_for_three_ones(size: int) -> None:
    found = conv_norm(torch.ones(1, 1, 3), same(size, axes=1), width=1e-7, dense_limit=0)
    assert found.log.contains(math.log(1.0 + 2.0 * math.cos(math.pi / (size + 1))))
    assert found.width <= 1e-7


def test_kernels_that_defeat_the_circulant_of_the_input_size() -> None:
    spec = same(5)
    defeated = 0
    for seed in range(60):
        weight = gaussian(1, 1, 3, 3, seed=seed)
        shortcut = float(torch.fft.fft2(weight, s=(5, 5)).abs().max())
        truth = true_log_norm(weight, spec)
        defeated += truth > math.log(shortcut) + 0.01
        assert conv_norm(weight, spec, dense_limit=0).log.contains(truth)
    assert defeated > 0


def test_circular_padding_is_exact() -> None:
    weight = gaussian(3, 2, 3, 3)
    spec = ConvSpec((6, 6), padding=((1, 1), (1, 1)), padding_mode="circular")
    found = conv_norm(weight, spec, dense_limit=0)
    blocks = torch.fft.fft2(weight, s=(6, 6)).permute(2, 3, 0, 1)
    assert found.log.contains(math.log(float(torch.linalg.matrix_norm(blocks, 2).max())))
    assert found.log.hi <= true_log_norm(weight, spec) + 1e-3

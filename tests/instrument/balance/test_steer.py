"""What the descent steers by: norms on fewer pixels are those of the layer but for a little."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.instrument.balance.steer import PIXELS, WIDE, SteeringPairs, on_fewer_pixels
from normgauge.instrument.rules.flow import Kernel
from normgauge.instrument.spectral.conv import ConvSpec, conv_norm

WEIGHT = torch.randn(16, 16, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_wide_convolution_is_followed_on_fewer_pixels(stride: int) -> None:
    form = Kernel(WEIGHT, ConvSpec((48, 50), (stride, stride), ((1, 1), (1, 1))))
    assert WEIGHT.numel() * math.prod(form.spec.output_size(WEIGHT)) > WIDE
    fewer = on_fewer_pixels(form, WEIGHT)
    assert fewer.spec.output_size(WEIGHT) == (PIXELS, PIXELS) and fewer.weight is WEIGHT
    steering, still = SteeringPairs(form), torch.zeros(16, dtype=torch.float64)
    for _ in range(10):
        pair = steering.top(lambda: WEIGHT, still, still)
    truth = conv_norm(WEIGHT, form.spec).log
    assert truth.hi - 0.05 < pair.log_sigma < truth.hi


def test_what_is_small_or_transposed_is_followed_as_it_is() -> None:
    small = Kernel(WEIGHT, ConvSpec((12, 12), padding=((1, 1), (1, 1))))
    transposed = Kernel(WEIGHT, ConvSpec((48, 48), transposed=True))
    assert on_fewer_pixels(small, WEIGHT) is small and on_fewer_pixels(transposed, WEIGHT) is transposed

"""Global response normalization, recognised and bounded."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge import gauge
from normgauge.instrument.rules.response import Response, global_response
from tests.instrument.rules.one_step import jacobian_norm

CHANNELS = 3


class Shared(nn.Module):
    """As in ConvNeXt V2, with channels last and without gains."""

    def forward(self, x: Tensor) -> Tensor:
        g = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        return x * (g / (g.mean(-1, keepdim=True) + 1e-2))


def data(scale: float = 1.0) -> Tensor:
    return scale * torch.randn(1, 2, 2, CHANNELS, generator=torch.Generator().manual_seed(0)).double()


def test_the_marker_computes_the_formula():
    x = data()
    torch.testing.assert_close(global_response(x, Response((1, 2), (3,), 1e-2, 1.0)), Shared()(x))
    torch.testing.assert_close(global_response(x, Response((1, 2), (3,), 1e-2, -2.0)), -2 * Shared()(x))


@pytest.mark.parametrize("scope", ["point", "ball:0.1", "global"])
def test_it_is_one_step_and_no_slope_exceeds_its_bound(scope):
    reading = gauge(Shared(), data(), scope=scope, search=False)
    assert [row.rule for row in reading.layers] == ["response.response"]
    upper = math.exp(reading.log_upper)
    assert upper <= (2 * CHANNELS + CHANNELS**1.5) * (1 + 1e-8)
    centre = data()
    for seed in range(4):
        noise = torch.randn(centre.shape, generator=torch.Generator().manual_seed(seed)).double()
        lone = centre * torch.tensor([1.0, 1e-3, 1e-3])  # one channel has nearly all of the length
        near = {"point": centre, "ball:0.1": centre + 0.099 * noise / noise.norm(), "global": lone + 1e-3 * noise}
        assert jacobian_norm(Shared(), near[scope]) <= upper


def test_a_ball_around_the_point_is_nearly_the_point():
    point, ball = (gauge(Shared(), data(), scope=s, search=False).log_capacity for s in ("point", "ball:1e-6"))
    assert point <= ball <= point + 1e-4


def test_gains_inside_the_mean_are_not_taken_for_one():
    class Other(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            g = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
            return x * (g / ((g * torch.tensor([1.0, 2.0, 3.0])).mean(-1, keepdim=True) + 1e-2))

    assert "response.response" not in [row.rule for row in gauge(Other(), data(), scope="global", search=False).layers]

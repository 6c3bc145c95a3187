import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.facts.slopes import local_slopes, six_digits_up, slopes_of


class Odd(nn.Module):
    """A layer without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


def linear(*rows: list[float]) -> nn.Linear:
    net = nn.Linear(len(rows[0]), len(rows), bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(rows))
    return net


def test_the_margin_of_a_linear_map_is_at_most_root_two_times_as_steep_as_the_map() -> None:
    found = slopes_of(linear([3.0, 0.0], [0.0, 4.0]), torch.randn(4, 2))
    assert found.gap == "" and found.normalizers == ()
    assert found.balanced == pytest.approx(4 * math.sqrt(2), rel=1e-6)
    assert found.balanced >= 5.0  # ‖(3, 0) − (0, 4)‖, the slope of the margin itself
    assert found.folded >= found.balanced * (1 - 1e-9)


def test_what_has_no_rule_is_named_and_keeps_its_readings() -> None:
    net = nn.Sequential(linear([1.0, 0.0], [0.0, 1.0]), Odd())
    found = slopes_of(net, torch.randn(4, 2))
    assert found.balanced == math.inf and "bessel_j0" in found.gap and found.reading is not None
    assert local_slopes(net, torch.randn(3, 2), [0.1]) is None


def test_a_network_that_cannot_run_becomes_a_gap_and_no_error() -> None:
    found = slopes_of(nn.Linear(3, 2), torch.randn(4, 2))
    assert found.gap.startswith("the gauge could not measure this network") and found.reading is None


def test_in_a_ball_a_layer_norm_is_as_steep_as_its_least_deviation_makes_it() -> None:
    """Around (a, −a, 0) the least deviation within r is (√2·a − r)/√3; the norm of the Jacobian there is 1 over it."""
    sizes, radii = (1.0, 5.0), (0.1, 0.5)
    net = nn.Sequential(nn.LayerNorm(3, eps=1e-12, elementwise_affine=False)).double()
    centres = torch.tensor([[a, -a, 0.0] for a in sizes]).double()
    found = local_slopes(net, centres, radii)
    assert found is not None and [slopes.shape for slopes in found] == [(2,), (2,)]
    for radius, slopes in zip(radii, found, strict=True):
        for a, slope in zip(sizes, slopes.tolist(), strict=True):
            least = (math.sqrt(2) * a - radius) / math.sqrt(3)
            assert math.sqrt(2) / least <= slope <= 1.05 * math.sqrt(2) / least


@pytest.mark.parametrize("radius", [0.41636228, 0.5, 1 / 3, 123456.789, 1e-9 / 3])
def test_six_digits_are_never_below_the_radius(radius: float) -> None:
    text = six_digits_up(radius)
    assert radius <= float(text) <= radius * (1 + 2e-5)
    assert len(f"{float(text):g}") <= 12

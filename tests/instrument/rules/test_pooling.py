from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules.flow import Commute, SamplesMixed
from tests.instrument.rules.one_step import bound, check, composed, jacobian_norm, last


def image(*shape: int) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return torch.randn(shape, dtype=torch.float64)


def peak(*shape: int) -> torch.Tensor:
    """A lone peak in the middle: it wins every window it is in."""
    x = torch.zeros(shape, dtype=torch.float64)
    x[(0, 0, *(n // 2 for n in shape[2:]))] = 1.0
    return x + 1e-3 * image(*shape)


@pytest.mark.parametrize(
    ("layer", "shape", "value"),
    [
        (nn.MaxPool2d(3, 2), (1, 1, 9, 9), 2),
        (nn.MaxPool2d(3, 1), (1, 1, 9, 9), 3),
        (nn.MaxPool2d(2, 2), (1, 1, 8, 8), 1),
        (nn.MaxPool2d(3, 2, dilation=2), (1, 1, 13, 13), 3),
        (nn.MaxPool2d(3, 2, padding=1), (1, 2, 9, 9), 2),
        (nn.MaxPool2d((3, 2), (1, 2)), (1, 1, 8, 8), math.sqrt(3)),
        (nn.MaxPool2d(3, 3, ceil_mode=True), (1, 1, 8, 8), 1),
        (nn.MaxPool1d(5, 2), (1, 1, 15), math.sqrt(3)),
        (nn.MaxPool3d(3, 2), (1, 1, 5, 5, 5), math.sqrt(8)),
        (nn.AdaptiveMaxPool2d(2), (1, 1, 5, 5), 2),
        (nn.AdaptiveMaxPool1d(3), (1, 1, 9), 1),
        (nn.AdaptiveMaxPool3d((1, None, 2)), (1, 1, 2, 2, 3), math.sqrt(2)),
        (nn.LPPool2d(2, 3, 1), (1, 1, 7, 7), 3),
        (nn.LPPool1d(4, 3, 2), (1, 1, 9), math.sqrt(2)),
    ],
    ids=str,
)
def test_windows_over_a_pixel_are_counted_and_a_lone_peak_attains_it(layer, shape, value):
    x = peak(*shape)
    upper = check(layer, x, tries=1)
    assert upper == pytest.approx(value, rel=1e-12)
    x = torch.where(x > 0.5, x, 1e-6 * x)
    steepest = max(jacobian_norm(layer, x.roll(k, -1).roll(j, -2)) for k in range(2) for j in range(2))
    assert 0.99 * upper < steepest <= upper * (1 + 1e-12)
    assert check(layer, image(*shape), "ball:0.1", tries=2) == upper


def test_the_count_is_the_formula_away_from_borders():
    for k, s, e in [(2, 1, 1), (3, 2, 1), (3, 2, 2), (5, 3, 1), (5, 3, 3), (4, 2, 3), (3, 4, 1), (4, 6, 4)]:
        upper = bound(lambda x, o=(k, s, 0, e): F.max_pool1d(x, *o), image(1, 1, 60))
        assert upper == pytest.approx(math.sqrt(math.ceil(k * math.gcd(s, e) / s)), rel=1e-12)


def test_indices_have_no_slope():
    x = image(1, 1, 6, 6)
    for function in (lambda x: F.max_pool2d(x, 2, return_indices=True), nn.MaxPool2d(2, return_indices=True)):
        parts = composed(function, x)
        values, indices = parts.trace.steps[0].outputs
        assert float(parts.flows[values.index].slope) == 0.0
        assert float(parts.flows[indices.index].slope) == math.inf
    for function in (
        lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True),
        nn.AdaptiveMaxPool2d(2, return_indices=True),
    ):
        parts = composed(function, x)
        assert float(parts.flows[parts.trace.steps[0].outputs[1].index].slope) == math.inf


def test_windows_of_padding_only_are_refused():
    transfer, _ = last(lambda x: F.max_pool1d(x, 2, 1, 1, 3), image(1, 1, 2))
    assert transfer.unknown


LINEAR = [
    (nn.AvgPool1d(3, 2, 1), (1, 2, 7)),
    (nn.AvgPool2d(2), (1, 1, 6, 6)),
    (nn.AvgPool2d(3, 2, 1), (1, 1, 6, 7)),
    (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (1, 1, 6, 6)),
    (nn.AvgPool2d((3, 2), 2, ceil_mode=True), (1, 1, 6, 7)),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 1, 6, 6)),
    (nn.AvgPool2d(3, 2, 1, divisor_override=4), (1, 1, 6, 6)),
    (nn.AvgPool2d(2, 1, divisor_override=-3), (1, 1, 4, 4)),
    (nn.AvgPool3d(2, 1), (1, 1, 3, 3, 3)),
    (nn.AdaptiveAvgPool1d(3), (1, 1, 7)),
    (nn.AdaptiveAvgPool2d((2, None)), (1, 1, 5, 4)),
    (nn.AdaptiveAvgPool2d(7), (1, 1, 3, 3)),
    (nn.AdaptiveAvgPool3d(2), (1, 1, 3, 3, 3)),
    (nn.Upsample(scale_factor=2), (1, 2, 4, 4)),
    (nn.Upsample(size=(7, 3), mode="nearest"), (1, 1, 4, 4)),
    (nn.Upsample(scale_factor=1.7, mode="bilinear"), (1, 1, 5, 4)),
    (nn.Upsample(scale_factor=2, mode="bicubic"), (1, 1, 4, 4)),
    (nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True), (1, 1, 2, 3, 3)),
    (nn.Upsample(scale_factor=3, mode="linear"), (1, 1, 5)),
    (nn.UpsamplingBilinear2d(scale_factor=2), (1, 1, 4, 4)),
    (nn.UpsamplingNearest2d(scale_factor=3), (1, 1, 3, 3)),
    (lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True), (1, 1, 8, 7)),
    (lambda x: F.interpolate(x, scale_factor=0.6, mode="bilinear", recompute_scale_factor=True), (1, 1, 8, 7)),
    (lambda x: F.interpolate(x, scale_factor=0.45, mode="area"), (1, 1, 8, 7)),
    (lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"), (1, 1, 5, 5)),
    (lambda x: F.avg_pool2d(x, 3, 1, 1), (1, 1, 5, 5)),
    (lambda x: F.avg_pool1d(x, 3, 2), (1, 7)),
    (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LINEAR, ids=map(str, range(len(LINEAR))))
def test_linear_layers_are_exact(layer, shape):
    for scope in ("global", "ball:0.1"):
        check(layer, image(*shape), scope, exact=True, linear=True)
    gain = last(layer, image(*shape))[0].gains[0]
    assert float(gain.log[0]) - gain.lo < 1e-8


def test_values_of_the_table():
    assert bound(nn.AdaptiveAvgPool2d(1), image(1, 3, 7, 5)) == pytest.approx(1 / math.sqrt(35))
    assert bound(nn.AvgPool2d(2), image(1, 3, 8, 8)) == pytest.approx(0.5)
    assert bound(nn.AvgPool2d(3, 2, 1), image(1, 1, 12, 12)) == pytest.approx(0.530101, abs=5e-7)
    assert bound(nn.Upsample(scale_factor=2), image(1, 1, 8, 8)) == pytest.approx(2.0)
    assert bound(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), image(1, 1, 8, 8)) == pytest.approx(
        2.086, abs=1e-3
    )


def test_a_nonnegative_image_stays_nonnegative():
    x = image(1, 2, 6, 6)
    _, flow = last(lambda x: F.avg_pool2d(x.sigmoid(), 3, 2, 1), x)
    assert float(flow.low) == 0.0 and 0.9 < float(flow.high) <= 1.0 + 1e-8


def test_chunks_do_not_change_the_answer(monkeypatch):
    layer, x = nn.Upsample(scale_factor=2, mode="bilinear"), image(1, 1, 6, 5)
    whole = bound(layer, x)
    monkeypatch.setattr("normgauge.instrument.rules.pooling.CHUNK", 100)
    assert bound(layer, x) == whole


def test_fold_counts_overlaps():
    x = image(1, 8, 9)
    for options, shape in [
        ({"kernel_size": 2, "stride": 1}, (4, 4)),
        ({"kernel_size": 2, "stride": 3, "dilation": 2}, (9, 9)),
    ]:
        check(lambda x, o=options, s=shape: F.fold(x, s, **o), x, exact=True, linear=True)
        check(nn.Fold(shape, **options), x[0], exact=True, linear=True)
    assert bound(nn.Fold((4, 4), 2), x) == pytest.approx(2.0)
    assert bound(nn.Fold((5, 5), (2, 1), padding=1, stride=2), image(1, 4, 12)) == pytest.approx(1.0)


def test_samples_stay_apart_unless_they_lie_on_a_pooled_axis():
    x = image(3, 2, 6, 6)
    for layer in (nn.MaxPool2d(3, 1), nn.AvgPool2d(3, 1), nn.Upsample(scale_factor=2), nn.AdaptiveMaxPool2d(2)):
        assert composed(layer, x, "ball:0.1", samples=3).log_upper.shape == (3,)
        with pytest.raises(SamplesMixed):
            composed(lambda x, layer=layer: layer(x.transpose(0, 2)), x, "ball:0.1", samples=3)


def test_channel_weights_pass_on_the_channel_axis_only():
    for layer in (nn.AvgPool2d(2), nn.MaxPool2d(2), nn.Upsample(scale_factor=2)):
        assert last(layer, image(1, 3, 6, 6))[0].gains[0].form == Commute((-2, -1))


@pytest.mark.parametrize("power", [1, 3, 2.5])
def test_odd_powers_are_unknown(power):
    transfer, _ = last(nn.LPPool2d(power, 2), image(1, 1, 4, 4).abs())
    assert transfer.unknown
    assert last(nn.LPPool2d(2, 3, 2, ceil_mode=True), image(1, 1, 6, 6))[0].unknown


def test_no_rule_means_unknown():
    x = image(1, 1, 6, 6)
    grid = torch.zeros(1, 2, 2, 2).double()
    for function in (lambda x: F.grid_sample(x, grid, align_corners=False), nn.FractionalMaxPool2d(2, output_size=2)):
        transfer, flow = last(function, x)
        assert transfer.unknown and float(flow.slope) == math.inf

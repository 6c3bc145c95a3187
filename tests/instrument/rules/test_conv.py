from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules.flow import Kernel, SamplesMixed
from normgauge.instrument.spectral.conv import conv_norm
from tests.instrument.rules.one_step import affine_norm, bound, check, composed, jacobian_norm, last

torch.manual_seed(0)
LAYERS = [
    (nn.Conv1d(2, 3, 3, padding=1), (1, 2, 7)),
    (nn.Conv2d(2, 3, 3, padding=1), (1, 2, 5, 5)),
    (nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (1, 2, 6, 5)),
    (nn.Conv2d(2, 2, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1)), (1, 2, 6, 6)),
    (nn.Conv2d(1, 2, 4, padding="same", dilation=(1, 2)), (1, 1, 6, 7)),
    (nn.Conv2d(1, 2, 3, padding="valid"), (1, 1, 6, 5)),
    (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (1, 2, 5, 4)),
    (nn.Conv2d(2, 2, 3, padding=(2, 1), padding_mode="reflect", stride=2), (1, 2, 5, 4)),
    (nn.Conv2d(2, 2, 3, padding="same", padding_mode="replicate"), (1, 2, 5, 4)),
    (nn.Conv2d(2, 2, 1, stride=2, bias=False), (1, 2, 5, 4)),
    (nn.Conv3d(1, 2, 2, padding=1), (1, 1, 3, 3, 4)),
    (nn.ConvTranspose1d(2, 3, 4, stride=2, padding=1), (1, 2, 5)),
    (nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1, groups=2), (1, 2, 4, 3)),
    (nn.ConvTranspose2d(2, 3, 3, stride=2, dilation=2), (1, 2, 3, 3)),
    (nn.ConvTranspose3d(1, 2, 2, stride=2), (1, 1, 2, 2, 3)),
    (nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5)),  # unbatched
    (nn.Conv2d(2, 3, 3, padding=1), (2, 2, 4, 4)),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: str(layer[0]))
@pytest.mark.parametrize("scope", ["global", "ball:0.1"])
def test_the_norm_is_that_of_the_dense_jacobian(layer, scope):
    module, shape = layer
    module = module.double()
    check(module, torch.randn(shape, dtype=torch.float64), scope, exact=True, linear=True)


def test_functional_forms_agree_with_the_modules():
    x, weight, bias = torch.randn(1, 2, 6, 6).double(), torch.randn(3, 2, 3, 3).double(), torch.randn(3).double()
    check(lambda x: F.conv2d(x, weight, bias, padding="same", dilation=2), x, exact=True, linear=True)
    check(lambda x: torch.conv2d(x, weight, None, (2, 1), (1, 0)), x, exact=True, linear=True)
    kernel = torch.randn(2, 3, 3, 3).double()
    check(lambda x: F.conv_transpose2d(x, kernel, None, 2, 1, 1, 1, 2), x[..., :3, :3], exact=True, linear=True)
    check(
        lambda x: F.conv_transpose2d(x, kernel[:, :2], stride=2, groups=2, output_padding=1),
        x[..., :3, :3],
        exact=True,
        linear=True,
    )
    line = torch.randn(2, 1, 3).double()
    check(lambda x: F.conv1d(x, line, groups=2), x[0, :, :, 0][None], exact=True, linear=True)
    check(lambda x: F.conv_transpose1d(x, line), x[0, :, :, 0][None], exact=True, linear=True)
    cube = torch.randn(2, 2, 2, 2, 2).double()
    check(lambda x: F.conv3d(x, cube), torch.randn(1, 2, 3, 3, 2).double(), exact=True, linear=True)
    check(lambda x: F.conv_transpose3d(x, cube), torch.randn(1, 2, 2, 2, 2).double(), exact=True, linear=True)


def test_output_size_is_read_off_the_output():
    layer = nn.ConvTranspose2d(2, 2, 3, stride=3).double()
    x = torch.randn(1, 2, 3, 3).double()
    check(lambda x: layer(x, output_size=(10, 11)), x, exact=True, linear=True)


def test_a_zero_padded_kernel_may_exceed_the_circular_norm_of_its_own_size():
    sign = torch.tensor([1.0, -1.0, 1.0]).double()
    kernel = torch.outer(sign, sign)[None, None]
    upper = check(lambda x: F.conv2d(x, kernel, padding=1), torch.randn(1, 1, 5, 5).double(), exact=True, linear=True)
    assert upper == pytest.approx((1 + 2 * math.cos(math.pi / 6)) ** 2)
    assert upper > 1.05 * float(torch.fft.fft2(kernel[0, 0], s=(5, 5)).abs().max())


def with_weight(module, weight):
    copy = deepcopy(module)
    with torch.no_grad():
        copy.weight.copy_(weight)
    return copy


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_the_input_gain_bounds_the_constant_in_the_weights():
    for module, shape in LAYERS:
        module = module.double()
        x = torch.randn(shape, dtype=torch.float64)
        transfer, _ = last(module, x)

        slope = affine_norm(lambda weight, m=module, x=x: with_weight(m, weight)(x), module.weight.detach())
        assert slope <= math.exp(transfer.input_gain) * float(x.norm()) * (1 + 1e-12)


def test_input_gain_counts_windows():
    x = torch.randn(1, 1, 9, 9).double()
    for options, count in [
        ({"padding": 1}, 9),
        ({"padding": 1, "stride": 2}, 4),
        ({"padding": 1, "dilation": 2}, 9),
        ({"stride": 3}, 1),
    ]:
        transfer, _ = last(lambda x, o=options: F.conv2d(x, torch.ones(1, 1, 3, 3).double(), **o), x)
        assert math.exp(2 * transfer.input_gain) == pytest.approx(count)


def test_samples_side_by_side_share_the_constant():
    layer = nn.Conv2d(2, 3, 3, padding=1).double()
    x = torch.randn(4, 2, 5, 5).double()
    parts = composed(layer, x, "ball:0.1", samples=4)
    assert parts.log_upper.shape == (4,)
    assert torch.equal(parts.log_upper, composed(layer, x).log_upper.expand(4))
    with pytest.raises(SamplesMixed):
        composed(lambda x: layer(x.transpose(0, 2)[:2].transpose(0, 1)), x, "ball:0.1", samples=4)


def test_facts_for_the_table_and_the_cache():
    layer = nn.Conv2d(2, 3, 3, padding=1).double()
    x = torch.randn(1, 2, 5, 5).double()
    transfer, _ = last(layer, x)
    form = transfer.gains[0].form
    assert transfer.weight is not None and torch.equal(transfer.weight, layer.weight)
    assert isinstance(form, Kernel) and form.axis == 1
    assert transfer.spectral == conv_norm(layer.weight, form.spec).log
    parts = composed(lambda x: layer(x) + layer(2 * x), x)
    assert sum(key[0] == "conv" for key in parts.ctx.cache) == 1


def test_a_kernel_that_depends_on_the_input_is_unknown():
    x = torch.randn(1, 2, 5, 5).double()
    transfer, flow = last(lambda x: F.conv2d(x, x.transpose(0, 1)[:, :1].expand(2, 2, 5, 5)), x)
    assert transfer.unknown and float(flow.slope) == math.inf


class Standardized(nn.Conv2d):
    """Keeps ``forward`` and changes what it calls."""

    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, 3 * weight, bias)


def test_a_layer_that_does_not_use_its_weight_plainly_is_measured_by_what_it_does():
    layer, x = Standardized(2, 3, 3).double(), torch.randn(1, 2, 5, 5).double()
    assert jacobian_norm(layer, x) <= bound(layer, x) <= 1.01 * jacobian_norm(layer, x)


def test_a_large_activation_map_in_place_behind_the_layer_changes_nothing():
    layer, x = nn.Conv2d(2, 3, 3, padding=1).double(), torch.randn(2, 2, 5, 5).double()
    assert bound(lambda x: torch.relu_(layer(x)), x) == pytest.approx(bound(layer, x))


def test_a_bound_one_percent_lower_would_be_below_a_jacobian():
    layer = nn.Conv2d(2, 3, 3, padding=1).double()
    x = torch.randn(1, 2, 5, 5).double()
    assert 0.99 * bound(layer, x) < jacobian_norm(layer, x) <= bound(layer, x)

"""The same for convolutions, against the dense matrix of the layer as it runs."""

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.spectral.conv import dense_blocks
from normgauge.monitor.enclosure import Enclosures, TrackedConv, is_pointwise, spec_of
from normgauge.monitor.layers import WatchedLayer

LAYERS = {
    "padded": (lambda: nn.Conv2d(3, 4, 3, padding=1), (6, 6)),
    "strided": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (7, 6)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (6, 6)),
    "dilated": (lambda: nn.Conv2d(2, 3, 3, dilation=2, padding="same"), (7, 7)),
    "circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (5, 5)),
    "reflect": (lambda: nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), (5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1), (4, 4)),
    "line": (lambda: nn.Conv1d(3, 5, 5, padding=2), (9,)),
    "volume": (lambda: nn.Conv3d(2, 2, 2), (3, 3, 3)),
    "valid": (lambda: nn.Conv2d(2, 2, 3, padding="valid"), (5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_ends_hold_while_the_kernel_walks(name: str) -> None:
    torch.manual_seed(2)
    build, size = LAYERS[name]
    module = build()
    spec = spec_of(module, size)
    enclosures, layer = Enclosures(), WatchedLayer("conv", module, "weight", "conv")
    enclosures.follow(0, layer, module.weight.detach(), None)
    assert 0 not in enclosures
    enclosures.follow(0, layer, module.weight.detach(), size)
    for step in range(24):
        weight = module.weight.detach()
        raw = {key: float(value) for key, value in enclosures[0].read(weight, None).items()}
        lower, upper = enclosures[0].ends(raw)
        true = float(torch.linalg.matrix_norm(dense_blocks(weight.double(), spec), 2).max())
        assert lower <= true <= upper
        if step == 12:
            enclosures[0].refresh(weight)  # the cheap bound
            loose = {key: float(value) for key, value in enclosures[0].read(weight, None).items()}
            assert true <= enclosures[0].ends(loose)[1] <= 1.1 * math.sqrt(math.prod(weight.shape[2:])) * 2 * true
            enclosures[0].refresh(weight)
            tight = {key: float(value) for key, value in enclosures[0].read(weight, None).items()}
            assert enclosures[0].ends(tight)[1] <= 1.03 * true
        module.weight.data += 0.01 * torch.randn_like(weight)


@pytest.mark.parametrize("per_channel", [True, False])
def test_folded_follows_the_rescaled_layer(per_channel: bool) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(2, 3, 3, padding=1)
    scale = torch.tensor([0.2, 4.0, 1.0]) if per_channel else torch.tensor(2.5)
    tracked = TrackedConv(module.weight.detach(), spec_of(module, (5, 5)))
    for _ in range(400):  # two directions lie close together at the top
        found = float(tracked.read(module.weight.detach(), scale)["folded"])
    scaled = module.weight.detach().double() * (scale[:, None, None, None] if per_channel else scale)
    true = float(torch.linalg.matrix_norm(dense_blocks(scaled, tracked.spec), 2).max())
    assert found == pytest.approx(true, rel=1e-3)


def test_a_pointwise_convolution_is_its_matrix() -> None:
    assert is_pointwise(nn.Conv2d(3, 4, 1, stride=2))
    assert not is_pointwise(nn.Conv2d(3, 4, 1, padding=1))
    assert not is_pointwise(nn.Conv2d(4, 4, 1, groups=2))
    assert not is_pointwise(nn.Conv2d(3, 4, 3))
    module = nn.Conv2d(3, 4, 1)
    enclosures = Enclosures()
    enclosures.follow(0, WatchedLayer("conv", module, "weight", "conv"), module.weight.detach(), None)
    assert 0 in enclosures and enclosures[0].is_cheap
    enclosures[0].refresh(module.weight.detach())
    raw = {key: float(value) for key, value in enclosures[0].read(module.weight.detach(), None).items()}
    true = float(torch.linalg.matrix_norm(module.weight.detach().flatten(1).double(), 2))
    assert enclosures[0].ends(raw)[1] == pytest.approx(true, rel=0.06)


def test_dead_directions_begin_anew() -> None:
    module = nn.Conv2d(1, 1, 3, padding=1)
    nn.init.zeros_(module.weight)
    enclosures = Enclosures()
    enclosures.follow(0, WatchedLayer("conv", module, "weight", "conv"), module.weight.detach(), (4, 4))
    for _ in range(3):
        raw = {key: float(value) for key, value in enclosures[0].read(module.weight.detach(), None).items()}
        assert enclosures[0].ends(raw)[0] == 0.0
    nn.init.ones_(module.weight)
    for _ in range(5):
        raw = {key: float(value) for key, value in enclosures[0].read(module.weight.detach(), None).items()}
        lower, upper = enclosures[0].ends(raw)
    assert 0.5 < lower <= upper < math.inf


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_never_rounds_a_bound_down(dtype: torch.dtype) -> None:
    """A group of one row has the norm of its row, and nothing to spare over its Frobenius norm."""
    for seed in range(60):
        torch.manual_seed(seed)
        module = nn.Conv2d(10, 2, 1, groups=2).to(dtype)
        module.weight.data[1] = 0
        weight = module.weight.detach()
        enclosures = Enclosures()
        enclosures.follow(0, WatchedLayer("conv", module, "weight", "conv"), weight, (3, 3))
        raw = {key: float(value) for key, value in enclosures[0].read(weight, None).items()}
        lower, upper = enclosures[0].ends(raw)
        assert lower <= float(weight[0].double().norm()) <= upper


def test_a_larger_input_is_followed_anew() -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(2, 3, 3, padding=1)
    layer, weight = WatchedLayer("conv", module, "weight", "conv"), module.weight.detach()
    enclosures = Enclosures()
    for size in ((3, 3), (12, 12)):
        enclosures.follow(0, layer, weight, size)
        enclosures[0].refresh(weight)
        enclosures[0].refresh(weight)
        raw = {key: float(value) for key, value in enclosures[0].read(weight, None).items()}
        true = float(torch.linalg.matrix_norm(dense_blocks(weight.double(), spec_of(module, size)), 2).max())
        lower, upper = enclosures[0].ends(raw)
        assert lower <= true <= upper <= 1.03 * true

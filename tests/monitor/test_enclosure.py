"""The cheap enclosure of a matrix or convolution holds at every reading, whatever the numbers."""

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.spectral.conv import dense_blocks
from normgauge.instrument.spectral.dense import gram
from normgauge.instrument.spectral.power import seeded_start
from normgauge.monitor.enclosure import (
    CHUNK,
    Enclosures,
    Tracked,
    TrackedConv,
    _on_device,
    first_direction,
    frobenius_distance,
    is_pointwise,
    proved_norm,
    root_of_squares,
    spec_of,
)
from normgauge.monitor.layers import WatchedLayer


def enclosed(tracked: Tracked, weight: torch.Tensor) -> tuple[float, float]:
    raw = {name: float(value) for name, value in tracked.read(weight, None).items()}
    return tracked.ends(raw)


def truth(weight: torch.Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.double(), 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7, 7), (40, 8), (8, 40), (1, 5), (5, 1), (64, 48)], ids=str)
def test_ends_hold_while_the_weight_walks(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    torch.manual_seed(3)
    weight = torch.randn(shape).to(dtype)
    tracked = Tracked(weight)
    tracked.refresh(weight)
    for step in range(40):
        weight = (weight.float() + 0.03 * torch.randn(shape)).to(dtype)
        lower, upper = enclosed(tracked, weight)
        assert lower <= truth(weight) <= upper
        if step == 20:
            tracked.refresh(weight)
            assert enclosed(tracked, weight)[1] <= 1.06 * truth(weight)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-4, 1e6, 1e18])
def test_ends_hold_at_odd_scales(scale: float) -> None:
    torch.manual_seed(1)
    first = torch.randn(30, 20) * scale
    tracked = Tracked(first)
    tracked.refresh(first)
    second = first + 0.1 * scale * torch.randn(30, 20)
    lower, upper = enclosed(tracked, second)
    assert lower <= truth(second) <= upper


def test_a_weight_that_is_no_number_says_nothing() -> None:
    weight = torch.randn(6, 6)
    tracked = Tracked(weight)
    tracked.refresh(weight)
    broken = weight.clone()
    broken[2, 3] = math.nan
    assert enclosed(tracked, broken) == (0.0, math.inf)
    assert enclosed(tracked, torch.full((6, 6), 3e38)) == (0.0, math.inf)


def test_zero_has_norm_zero_and_recovers() -> None:
    weight = torch.zeros(5, 4)
    tracked = Tracked(weight)
    tracked.refresh(weight)
    lower, upper = enclosed(tracked, weight)
    assert lower == 0.0 and upper < 1e-15
    tracked.restart()
    grown = torch.randn(5, 4)
    assert enclosed(tracked, grown)[0] > 0.1 * truth(grown)


def test_before_any_proof_the_frobenius_norm_bounds() -> None:
    weight = torch.randn(9, 6)
    lower, upper = enclosed(Tracked(weight), weight)
    assert lower <= truth(weight) <= upper <= 1.001 * float(weight.norm())


def test_readings_turn_the_direction_towards_the_top() -> None:
    torch.manual_seed(0)
    weight = torch.randn(50, 50)
    weight[0] *= 3
    tracked = Tracked(weight)
    cold = float((weight @ tracked.right).norm())
    first = enclosed(tracked, weight)[0]
    weight[0] *= -1
    weight[1] *= 4  # the top is another row now
    for _ in range(40):
        last = enclosed(tracked, weight)[0]
    assert cold < 0.5 * first
    assert 0.99 * truth(weight) <= last


def test_folded_is_the_norm_with_the_rows_rescaled() -> None:
    torch.manual_seed(0)
    weight, scale = torch.randn(20, 12), torch.rand(20) * 5
    tracked = Tracked(weight)
    for _ in range(60):
        found = float(tracked.read(weight, scale)["folded"])
    assert found == pytest.approx(truth(scale[:, None] * weight), rel=1e-3)


@pytest.mark.parametrize("shape", [(30, 30), (12, 50), (50, 12)], ids=str)
def test_the_proof_is_close_and_above(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    upper, direction = proved_norm(matrix, seeded_start((shape[1],), matrix))
    assert truth(matrix) <= upper <= 1.06 * truth(matrix)
    assert float((matrix @ direction).norm()) >= 0.9 * truth(matrix)


def test_a_mutated_proof_would_be_seen() -> None:
    """The walk's own bound is tight enough that a proof one per cent too low breaks it."""
    weight = torch.diag(torch.tensor([5.0, 1.0, 1.0]))
    tracked = Tracked(weight)
    tracked.refresh(weight)
    tracked.proved = 0.99 * truth(weight)
    assert enclosed(tracked, weight)[1] < truth(weight)


def test_long_sums_go_in_pieces() -> None:
    torch.manual_seed(0)
    long = torch.randn(CHUNK + 77)
    room = CHUNK * torch.finfo(torch.float32).eps / 2  # what ``ends`` allows for
    assert float(root_of_squares(long)) == pytest.approx(float(long.double().norm()), rel=room)
    assert root_of_squares(long).dtype == torch.float64
    assert float(frobenius_distance(long, torch.zeros_like(long))) == pytest.approx(
        float(long.double().norm()), rel=room
    )


def test_what_a_device_proves_is_what_the_host_proves() -> None:
    """The path without decisions, run here on the CPU."""
    torch.manual_seed(0)
    matrix = torch.randn(40, 30, dtype=torch.float64)
    product, error = gram(matrix)
    start = first_direction((30,), matrix)
    fallback = torch.linalg.vector_norm(matrix)
    upper, direction = _on_device(product, error, start, fallback)
    assert truth(matrix) <= float(upper) <= 1.03 * truth(matrix)
    assert float((matrix @ direction).norm()) >= 0.99 * truth(matrix)
    broken, _ = _on_device(product * math.nan, error, start, fallback)
    assert math.isnan(float(broken)) or float(broken) == float(fallback)


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

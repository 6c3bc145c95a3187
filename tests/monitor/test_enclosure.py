"""The cheap enclosure of a matrix holds at every reading, whatever the numbers."""

import math

import pytest
import torch

from normgauge.instrument.spectral.dense import gram
from normgauge.instrument.spectral.power import seeded_start
from normgauge.monitor.enclosure import (
    CHUNK,
    Tracked,
    _on_device,
    first_direction,
    frobenius_distance,
    proved_norm,
    root_of_squares,
)


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

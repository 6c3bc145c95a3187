"""A convolution as a linear map: torch's own matrix, its adjoint, what padding and rounding do, and refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from normgauge.core.errors import InputError
from normgauge.instrument.spectral.conv_operator import (
    ConvSpec,
    apply_adjoint,
    apply_conv,
    check_weight,
    conv_rounding,
    padding_constant,
    per_axis,
)
from tests.instrument.spectral.conv_truth import gaussian, random_layer, true_matrix

SEEDS = range(120)


@pytest.mark.parametrize("seed", SEEDS)
def test_apply_and_adjoint_are_the_layer(seed: int) -> None:
    weight, spec = random_layer(seed)
    matrix = true_matrix(weight, spec)
    x, y = gaussian(2, *spec.input_shape(weight)), gaussian(2, *spec.output_shape(weight))
    torch.testing.assert_close(apply_conv(weight, x, spec).flatten(1), x.flatten(1) @ matrix)
    torch.testing.assert_close(apply_adjoint(weight, y, spec).flatten(1), y.flatten(1) @ matrix.T)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
@pytest.mark.parametrize("padding", [((0, 2), (1, 1)), ((2, 2), (0, 0))])
def test_the_norm_of_the_padding_alone(mode: str, padding: tuple[tuple[int, int], ...]) -> None:
    spec = ConvSpec((4, 3), padding=padding, padding_mode=mode)
    amounts = [side for pair in reversed(padding) for side in pair]
    matrix = F.pad(torch.eye(12).double().reshape(12, 1, 4, 3), amounts, mode=mode).reshape(12, -1)
    truth = float(torch.linalg.matrix_norm(matrix, 2))
    assert truth <= padding_constant(spec) * (1 + 1e-14) and padding_constant(spec) == pytest.approx(truth)
    assert padding_constant(ConvSpec((4, 3), padding=padding)) == 1.0


@pytest.mark.parametrize("seed", [3, 5, 11, 17])
def test_rounding_stays_under_its_bound(seed: int) -> None:
    """Against sums of exact fractions; seeds with small layers, of every kind of padding between them."""
    weight, spec = random_layer(seed)
    x = gaussian(1, *spec.input_shape(weight), seed=seed)
    found, matrix = apply_conv(weight, x, spec).flatten().tolist(), true_matrix(weight, spec).T.tolist()
    exact = [sum(Fraction(a) * Fraction(b) for a, b in zip(row, x.flatten().tolist(), strict=True)) for row in matrix]
    gap = math.sqrt(sum(float(Fraction(y) - z) ** 2 for y, z in zip(found, exact, strict=True)))
    assert 0 < gap <= conv_rounding(weight, spec) * float(x.norm())


def test_output_sizes_are_torchs() -> None:
    for seed in SEEDS:
        weight, spec = random_layer(seed)
        out = apply_conv(weight, gaussian(1, *spec.input_shape(weight)), spec)
        assert tuple(out.shape[1:]) == spec.output_shape(weight)


def test_one_number_stands_for_every_axis() -> None:
    assert per_axis(2, 3) == (2, 2, 2) == per_axis((2,), 3) and per_axis([1, 2], 2) == (1, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input_size": ()}, "expected 1 to 3 spatial axes"),
        ({"input_size": (4, 4), "stride": (1,)}, r"expected 2 entries in stride"),
        ({"input_size": (4,), "transposed": True, "padding_mode": "reflect"}, "expected padding_mode='zeros'"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(given: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ConvSpec(**given)


@pytest.mark.parametrize(
    ("weight", "spec", "said"),
    [
        (torch.ones(1, 1, 5), ConvSpec((3,)), "does not fit"),
        (torch.ones(1, 1, 5), ConvSpec((3, 3)), "expected a weight of 4 axes"),
        (torch.ones(3, 1, 1), ConvSpec((3,), groups=2), "divisible by groups=2"),
    ],
)
def test_a_weight_that_does_not_fit_is_refused(weight: torch.Tensor, spec: ConvSpec, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_weight(weight, spec)

"""Twisted circulants, built densely: their blocks have the same singular values, and the layer is a crop."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from normgauge.instrument.spectral import symbol as symbol_module
from normgauge.instrument.spectral.conv_operator import ConvSpec
from normgauge.instrument.spectral.symbol import (
    Twist,
    circulant_sizes,
    frequencies,
    gram_polynomial,
    pair_counts,
    sparse_circulant,
    symbol,
)
from tests.instrument.spectral.conv_truth import gaussian, true_log_norm

CPU = torch.device("cpu")
LAYERS = [
    (gaussian(2, 3, 3), ConvSpec((5,), padding=((1, 1),))),
    (gaussian(3, 2, 2), ConvSpec((6,), (2,), ((0, 1),), (2,))),
    (gaussian(2, 1, 2, 3), ConvSpec((3, 4), (1, 2), ((1, 0), (1, 1)))),
    (gaussian(4, 1, 3), ConvSpec((4,), (3,), ((2, 1),), groups=2)),
]


def dense_circulant(weight: Tensor, spec: ConvSpec, twist: Twist) -> Tensor:
    """Every output of the circulant, entry by entry: wrapping around an odd axis changes the sign."""
    coarse = [n // s for n, s in zip(twist.sizes, spec.stride, strict=True)]
    per_out, per_in = weight.shape[0] // spec.groups, weight.shape[1]
    matrix = torch.zeros(weight.shape[0], *coarse, per_in * spec.groups, *twist.sizes, dtype=torch.float64)
    for out in range(weight.shape[0]):
        for place in itertools.product(*map(range, coarse)):
            for tap in itertools.product(*map(range, weight.shape[2:])):
                sign, cell = 1.0, []
                for i, t, s, d, (left, _), n, odd in zip(
                    place, tap, spec.stride, spec.dilation, spec.padding, twist.sizes, twist.odd, strict=True
                ):
                    turns, at = divmod(i * s + t * d - left, n)
                    sign *= (-1.0) ** (odd * turns)
                    cell.append(at)
                first = out // per_out * per_in
                matrix[(out, *place, slice(first, first + per_in), *cell)] += sign * weight[(out, slice(None), *tap)]
    return matrix.reshape(weight.shape[0] * math.prod(coarse), -1)


@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize("odd", [0, 1])
def test_the_blocks_have_the_circulants_singular_values(layer: int, odd: int) -> None:
    weight, spec = LAYERS[layer]
    twist = Twist(circulant_sizes(spec.reach(weight), spec, spec.output_size(weight)), (odd,) * spec.axes)
    waves = frequencies(twist, spec.stride, CPU)
    found = symbol(weight, spec, waves)
    sizes = torch.linalg.svdvals(found.blocks)
    each = pair_counts(spec.stride, waves).long()[:, None, None].expand(sizes.shape)
    every = sizes.flatten().repeat_interleave(each.flatten()).sort().values
    wanted = torch.linalg.svdvals(dense_circulant(weight, spec, twist)).sort().values
    count = min(len(every), len(wanted))
    torch.testing.assert_close(every[-count:], wanted[-count:], rtol=1e-9, atol=1e-9)
    assert float(every[: len(every) - count].sum()) == pytest.approx(0.0, abs=1e-9)
    assert float(sizes.max()) >= math.exp(true_log_norm(weight, spec)) * (1 - 1e-12)
    assert 0 < found.error < 1e-10


def test_sizes_are_the_smallest_multiples_of_the_stride_that_leave_room() -> None:
    spec = ConvSpec((5,), (2,), ((1, 1),))
    assert circulant_sizes((2,), spec, (3,)) == (6,)
    assert circulant_sizes((2,), ConvSpec((5,), padding=((1, 1),)), (5,)) == (6,)
    assert circulant_sizes((2,), ConvSpec((5,), padding=((1, 1),), padding_mode="circular"), (5,)) == (5,)


def test_one_frequency_of_each_pair_is_walked() -> None:
    for sizes, odd in itertools.product(((6,), (7,), (4, 5)), (0, 1)):
        twist = Twist(sizes, (odd,) * len(sizes))
        waves = frequencies(twist, (1,) * len(sizes), CPU)
        assert int(pair_counts((1,) * len(sizes), waves).sum()) == math.prod(sizes)


@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize("right", [True, False])
def test_one_polynomial_gives_the_gram_matrix_of_every_block(layer: int, right: bool) -> None:
    weight, spec = LAYERS[layer]
    if right and max(spec.stride) > 1:
        pytest.skip("the right side of a strided layer has no such polynomial")
    twist = Twist(circulant_sizes(spec.reach(weight), spec, spec.output_size(weight)), (1,) * spec.axes)
    waves = frequencies(twist, spec.stride, CPU)
    blocks = symbol(weight, spec, waves).blocks.flatten(0, 1)
    wanted = blocks.mH @ blocks if right else blocks @ blocks.mH
    whole = gram_polynomial(weight, spec, right=right)
    off = torch.linalg.matrix_norm(whole.at(waves) - wanted, ord=2)
    assert float(off.max()) <= whole.error < 1e-10


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_values_at_the_nodes_give_the_gram_matrix_everywhere(
    seed: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbol_module, "WORTH", 0.0)
    axes, groups = 1 + seed % 3, 1 + seed // 3 % 2
    kernel = [(2 if axes == 3 else 3) + (seed + axis) % 3 for axis in range(axes)]
    weight = gaussian(3 * groups, 2, *kernel, seed=seed)
    spec = ConvSpec((9,) * axes, padding=((2, 1),) * axes, dilation=tuple(1 + (seed + a) % 2 for a in range(axes)))
    spec = replace(spec, groups=groups)
    whole = gram_polynomial(weight, spec, right=right)
    assert whole.dilation  # values, not coefficients
    anywhere = 6.3 * torch.rand(40, 1, axes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    blocks = symbol(weight, spec, anywhere).blocks.flatten(0, 1)
    wanted = blocks.mH @ blocks if right else blocks @ blocks.mH
    off = float(torch.linalg.matrix_norm(whole.at(anywhere) - wanted, ord=2).max())
    assert off <= whole.error < 1e-8 * float(torch.linalg.matrix_norm(wanted, ord=2).max())


def test_values_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, spec = gaussian(4, 3, 3, 3), ConvSpec((6, 6), padding=((1, 1), (1, 1)))
    monkeypatch.setattr(symbol_module, "WORTH", 0.0)
    at_once = gram_polynomial(weight, spec, right=True)
    monkeypatch.setattr(symbol_module, "HELD", 1)
    in_pieces = gram_polynomial(weight, spec, right=True)
    torch.testing.assert_close(in_pieces.even, at_once.even, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(in_pieces.odd, at_once.odd, rtol=1e-13, atol=1e-13)


def circulant_norm(weight: Tensor, spec: ConvSpec, sizes: tuple[int, ...]) -> float:
    waves = frequencies(Twist(sizes, (1,) * spec.axes), spec.stride, CPU)
    return float(torch.linalg.matrix_norm(symbol(weight, spec, waves).blocks, 2).max())


@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_fewer_frequencies_bound_all_of_them(layer: int, share: float) -> None:
    weight, spec = LAYERS[layer]
    many = tuple(60 * s for s in spec.stride)
    needed = 0
    for seed in range(20):
        weight = gaussian(*weight.shape, seed=seed)
        sizes, factor = sparse_circulant(spec.reach(weight), spec.stride, many, share)
        assert 1.0 < factor <= 1 + share + 1e-9 and all(n % s == 0 for n, s in zip(sizes, spec.stride, strict=True))
        here, everywhere = circulant_norm(weight, spec, sizes), circulant_norm(weight, spec, many)
        assert everywhere <= factor * here
        needed += everywhere > here * (1 + 1e-9)
    assert (needed > 0) == (layer != 3)  # without the factor some would be below; windows apart are all alike


def test_a_circulant_that_is_small_stays_as_it_is() -> None:
    assert sparse_circulant((2, 0), (1, 3), (5, 9), 0.01) == ((5, 3), pytest.approx(1.0, abs=1e-11))

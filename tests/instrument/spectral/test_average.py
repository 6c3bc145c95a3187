"""Averages over twists: small matrices against the waves written out as vectors, and bounds against the truth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.instrument.spectral.average import (
    Pixels,
    WaveSet,
    averaged_upper,
    deflated_upper,
    ritz_upper,
    wave_gram,
    wave_overlaps,
    wave_set,
)
from normgauge.instrument.spectral.conv_operator import ConvSpec, apply_adjoint, apply_conv
from normgauge.instrument.spectral.power import krylov, seeded_start
from normgauge.instrument.spectral.symbol import Twist
from normgauge.instrument.spectral.waves import Waves, gram_pieces, waves_above
from tests.instrument.spectral.conv_truth import gaussian, same, true_log_norm

SPECS = [
    (gaussian(4, 3, 3, 3), same(6)),
    (gaussian(6, 2, 3), ConvSpec((9,), padding=((1, 1),), groups=2)),
]


def gathered(case: int, share: float = 0.6, most: int = 1000) -> tuple[WaveSet, Pixels, list[Waves]]:
    weight, spec = SPECS[case]
    sizes = tuple(n + 1 for n in spec.input_size)
    level = share * math.exp(2 * true_log_norm(weight, spec))
    parts = [waves_above(gram_pieces(weight, spec, Twist(sizes, (odd,) * spec.axes)), level) for odd in (0, 1)]
    assert all(part is not None and len(part.values) for part in parts)
    pixels = Pixels(spec.input_shape(weight), (1,) * spec.axes, spec.groups, math.prod(sizes))
    return wave_set([part for part in parts if part is not None], pixels, most), pixels, parts


def as_vectors(waves: WaveSet, pixels: Pixels) -> Tensor:
    """Every scaled wave written out on the layer's pixels: (count, dimension)."""
    rows = []
    per_group = pixels.shape[0] // pixels.groups
    for j in range(len(waves.amplitudes)):
        image = torch.zeros(pixels.shape, dtype=torch.complex128)
        for a in range(waves.amplitudes.shape[1]):
            plane = torch.ones((), dtype=torch.complex128)
            for line in waves.phases:
                plane = plane[..., None] * line[j, a]
            first = int(waves.groups[j]) * per_group
            image[first : first + per_group] += waves.amplitudes[j, a].reshape(-1, *[1] * plane.ndim) * plane
        rows.append(image.flatten())
    return torch.stack(rows)


@pytest.mark.parametrize("case", range(len(SPECS)))
def test_products_of_waves_are_those_of_their_vectors(case: int) -> None:
    waves, pixels, _ = gathered(case)
    vectors, others = as_vectors(waves, pixels), gaussian(3, math.prod(pixels.shape))
    torch.testing.assert_close(wave_gram(waves), vectors.conj() @ vectors.T)
    torch.testing.assert_close(wave_overlaps(waves, others, pixels), vectors.conj() @ others.T.to(vectors.dtype))


@pytest.mark.parametrize("case", range(len(SPECS)))
@pytest.mark.parametrize("most", [1000, 6], ids=["all", "few"])
def test_the_average_and_its_deflation_bound_the_layer(case: int, most: int) -> None:
    weight, spec = SPECS[case]
    waves, pixels, parts = gathered(case, most=most)
    truth, product = math.exp(2 * true_log_norm(weight, spec)), wave_gram(waves)
    averaged = averaged_upper(waves, product)
    assert truth <= averaged
    if most == 1000:
        assert averaged <= max(part.top for part in parts) * (1 + 1e-9)

    def normal(x: Tensor) -> Tensor:
        image = apply_conv(weight, x.reshape(1, *pixels.shape), spec)
        return apply_adjoint(weight, image, spec).reshape(-1)

    space = krylov(normal, seeded_start((math.prod(pixels.shape),), weight), 40, 1e-8)
    tops = space.leading(4)
    images = torch.stack([normal(top) for top in tops])
    assert truth <= deflated_upper(waves, product, pixels, tops, images, 1e-12) <= averaged * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_a_subspace_and_a_bound_beside_it_bound_the_whole(seed: int) -> None:
    root = gaussian(8, 8, seed=seed)
    matrix = root @ root.T
    basis = torch.linalg.qr(gaussian(8, 8, seed=seed + 100)).Q.T
    inside, outside = basis[:3], basis[3:]
    rest = float(torch.linalg.eigvalsh(outside @ matrix @ outside.T)[-1])
    found = ritz_upper(inside, inside @ matrix, rest)
    assert found >= float(torch.linalg.eigvalsh(matrix)[-1]) * (1 - 1e-12)
    values, vectors = torch.linalg.eigh(matrix)
    exact = ritz_upper(vectors[:, -2:].T, vectors[:, -2:].T @ matrix, float(values[-3]))
    assert exact == pytest.approx(float(values[-1]))

"""The short way that large convolutions take, forced on small ones whose norm is known: it bounds, and it ends."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from torch import Tensor

from normgauge.core.errors import InputError
from normgauge.instrument.spectral import circulant
from normgauge.instrument.spectral import symbol as symbol_module
from normgauge.instrument.spectral.conv import ConvSpec, conv_norm
from normgauge.instrument.spectral.symbol import Twist, frequencies, symbol
from tests.instrument.spectral.conv_truth import gaussian, true_log_norm

PADDED = ConvSpec((5, 5), padding=((1, 1), (1, 1)))
FEW = torch.zeros(6, 2, 3, 3, dtype=torch.float64)
FEW[5] = 1.0
DEGENERATE = {
    "all filters alike": (torch.ones(6, 6, 3, 3, dtype=torch.float64), PADDED),
    "rank one": (torch.einsum("i,j,kl->ijkl", gaussian(6), gaussian(6), gaussian(3, 3)), PADDED),
    "one pixel": (torch.eye(5, dtype=torch.float64)[..., None, None] * torch.eye(3, dtype=torch.float64), PADDED),
    "groups of zeros": (FEW, ConvSpec((5, 5), padding=((1, 1), (1, 1)), groups=3)),
    "one channel": (gaussian(1, 1, 3, 3), PADDED),
    "tiny": (1e-160 * gaussian(4, 4, 3, 3), PADDED),
}


@pytest.fixture(autouse=True)
def every_layer_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circulant, "LARGE", 0.0)
    monkeypatch.setattr(symbol_module, "WORTH", 0.0)


def random_layer(seed: int) -> tuple[Tensor, ConvSpec]:
    """Any stride, padding, dilation, groups and padding mode, transposed or not."""
    rng = Random(seed)
    axes, groups, transposed = rng.choice([1, 2, 2, 3]), rng.choice([1, 1, 2, 3]), rng.random() < 0.25
    per_in, per_out = rng.randint(1, 4), rng.randint(1, 4)
    size = tuple(rng.randint(3, 6 if axes < 3 else 4) for _ in range(axes))
    kernel, stride = (tuple(rng.randint(1, 3) for _ in range(axes)) for _ in range(2))
    dilation = tuple(rng.randint(1, 2) for _ in range(axes))
    padding = tuple((rng.randint(0, 2), rng.randint(0, 2)) for _ in range(axes))
    padding = tuple((left, left) for left, _ in padding) if transposed else padding
    mode = "zeros" if transposed else rng.choice(["zeros", "zeros", "circular", "reflect", "replicate"])
    shape = (groups * per_in, per_out) if transposed else (groups * per_out, per_in)
    weight = gaussian(*shape, *kernel, seed=seed) * 10 ** rng.uniform(-3, 3)
    return weight, ConvSpec(size, stride, padding, dilation, groups, transposed, (), mode)


def check(weight: Tensor, spec: ConvSpec) -> None:
    truth = true_log_norm(weight, spec)
    both, upper = (conv_norm(weight, spec, dense_limit=0, below=below).log for below in (True, False))
    assert both.lo - 1e-12 <= truth <= both.hi + 1e-12
    assert truth <= upper.hi + 1e-12
    rough = conv_norm(weight, spec, circulant.ROUGH, dense_limit=0, below=False).log
    assert truth <= rough.hi + 1e-12 and rough.hi <= upper.hi + circulant.ROUGH + 0.001


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_layers(name: str) -> None:
    check(*DEGENERATE[name])


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_layers_of_every_layout(first: int) -> None:
    checked = 0
    for seed in range(first, first + 20):
        weight, spec = random_layer(seed)
        try:
            true_log_norm(weight, spec)
        except (InputError, RuntimeError):  # kernels that do not fit, reflections wider than the image
            continue
        check(weight, spec)
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize("first", range(200, 400, 40))
def test_wide_images_asked_for_their_upper_end_alone(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circulant, "LARGE", 3e8)
    monkeypatch.setattr(circulant, "LARGE_IMAGE", 0.0)
    checked = 0
    for seed in range(first, first + 40):
        weight, spec = random_layer(seed)
        try:
            truth = true_log_norm(weight, spec)
        except (InputError, RuntimeError):
            continue
        found = conv_norm(weight, spec, circulant.COARSE, dense_limit=0, below=False)
        assert truth <= found.log.hi + 1e-12
        around = circulant.surround(weight, spec)
        every = [circulant_norm(weight, around.base, twist.sizes, twist.odd) for twist in around.twists[:1]]
        assert found.log.hi <= math.log(every[0] * around.factor) + circulant.COARSE
        checked += found.method == "twisted circulant"
    assert checked >= 10


def circulant_norm(weight: Tensor, base: ConvSpec, sizes: tuple[int, ...], odd: tuple[int, ...]) -> float:
    """By the singular values of every block."""
    waves = frequencies(Twist(sizes, odd), base.stride, weight.device)
    return float(torch.linalg.matrix_norm(symbol(weight, base, waves).blocks, 2).max())

"""The waves above a level are all there are, by the singular values of every block."""

from __future__ import annotations

import pytest
import torch

from normgauge.instrument.spectral import waves
from normgauge.instrument.spectral.conv_operator import ConvSpec
from normgauge.instrument.spectral.symbol import Twist, frequencies, symbol
from normgauge.instrument.spectral.waves import circulant_top, gram_pieces, is_right, waves_above
from tests.instrument.spectral.conv_truth import gaussian

LAYERS = [
    (gaussian(4, 3, 3, 3), ConvSpec((5, 5), padding=((1, 1), (1, 1)))),
    (gaussian(3, 5, 2), ConvSpec((9,), (2,))),
    (gaussian(6, 2, 3), ConvSpec((8,), padding=((1, 1),), groups=3)),
]


def all_squares(weight: torch.Tensor, spec: ConvSpec, twist: Twist) -> torch.Tensor:
    blocks = symbol(weight, spec, frequencies(twist, spec.stride, weight.device)).blocks
    return torch.linalg.svdvals(blocks).square().flatten()


@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize("chunk", [4_000_000, 20], ids=["at once", "in pieces"])
def test_every_wave_above_the_level_is_found(monkeypatch: pytest.MonkeyPatch, layer: int, chunk: int) -> None:
    monkeypatch.setattr(waves, "CHUNK_ENTRIES", chunk)
    weight, spec = LAYERS[layer]
    twist = Twist(tuple(n + 1 for n in spec.input_size), (1,) * spec.axes)
    truth = all_squares(weight, spec, twist)
    for share in (0.5, 0.9, 1.1):
        level = share * float(truth.max())
        found = waves_above(gram_pieces(weight, spec, twist), level)
        assert found is not None and level <= found.level <= level * (1 + 1e-9)
        above = truth[truth > level].sort().values
        torch.testing.assert_close(found.values.sort().values, above, rtol=1e-9, atol=0.0)
        assert bool((found.values.sort().values >= above).all()) and found.top >= float(truth.max()) * (share < 1)
        assert len(found.vectors) == len(found.groups) == len(found.angles) == len(above)


@pytest.mark.parametrize("least", [1e-3, 1e3])
def test_the_top_is_proved_and_near(least: float) -> None:
    weight, spec = LAYERS[0]
    twist = Twist((6, 6), (0, 0))
    highest = float(all_squares(weight, spec, twist).max())
    found = circulant_top(gram_pieces(weight, spec, twist), least)
    assert max(highest, least) <= found <= max(highest * 1.05, least)


def test_too_much_work_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "EIGEN_WORK", 0.0)
    weight, spec = LAYERS[0]
    assert waves_above(gram_pieces(weight, spec, Twist((6, 6), (0, 0))), 1.0) is None


def test_waves_live_on_the_shorter_side() -> None:
    assert is_right(gaussian(4, 3, 1), ConvSpec((5,))) and not is_right(gaussian(4, 3, 1), ConvSpec((5,), (2,)))
    assert not is_right(gaussian(4, 3, 1), ConvSpec((5,), groups=2))

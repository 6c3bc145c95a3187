"""Scales through operations that are easy to misread: nothing found is wrong, what is not understood is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.geometry.symmetry import symmetries
from tests.geometry.symmetry.right import checked, draw


class Between(nn.Module):
    """A function between two linear layers; gets the hidden values, and the module for its extra weights."""

    def __init__(self, does: Callable[[Any, Tensor], Tensor], norm: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.does = nn.Linear(6, 5), nn.Linear(5, 3), does
        self.norm = nn.BatchNorm1d(5) if norm else nn.Identity()
        self.extra = nn.Parameter(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.does(self, self.norm(self.first(x))))


def written(m: Any, h: Tensor) -> Tensor:
    h = h.clone()
    h[:, 0] = h[:, 1] * 2
    return F.leaky_relu(h)


def viewed(m: Any, h: Tensor) -> Tensor:
    h = h.clone()
    part = h[:, :2]
    h.mul_(m.extra)
    return F.leaky_relu(torch.cat([part, h[:, 2:]], 1))


def put(m: Any, h: Tensor) -> Tensor:
    return F.leaky_relu(h.index_put((torch.arange(len(h)), torch.zeros(len(h), dtype=torch.long)), h[:, 1]))


def branching(m: Any, h: Tensor) -> Tensor:
    return F.leaky_relu(h) if h.sum() > 0 else F.gelu(h)


def by_number(m: Any, h: Tensor) -> Tensor:
    return F.leaky_relu(h) * float(h.detach().abs().max())


# name: (function, whether a BatchNorm comes first, directions found)
FOUND: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool, int]] = {
    "clamp at 0": (lambda m, h: h.clamp(min=0) + 0.1 * h, False, 5),
    "clamp elsewhere": (lambda m, h: h.clamp(min=0.1), False, 0),
    "clamp_min elsewhere": (lambda m, h: torch.clamp_min(h, -5.0), True, 5),
    "a small number added": (lambda m, h: F.leaky_relu(h + 1e-4), False, 0),
    "steep leaky": (lambda m, h: F.leaky_relu(h, 3.0), False, 5),
    "where by sign": (lambda m, h: torch.where(h > 0, h, 0.3 * h), False, 5),
    "where by size": (lambda m, h: torch.where(h > 0.3, h, 0.3 * h), False, 0),
    "maximum of two": (lambda m, h: torch.maximum(h, 0.2 * h), False, 5),
    "maximum with a number": (lambda m, h: torch.maximum(h, torch.tensor(0.2, dtype=h.dtype)), False, 0),
    "masked": (lambda m, h: h.masked_fill(h < 0, 0.0) + 0.1 * h, False, 5),
    "masked with a number": (lambda m, h: h.masked_fill(h < 0, 0.5) + 0.1 * h, False, 0),
    "twice the weight": (lambda m, h: F.leaky_relu(h * (m.extra + m.extra)), False, 10),
    "the square of a weight": (lambda m, h: F.leaky_relu(h * (m.extra * m.extra)), False, 10),
    "a weight added to itself": (lambda m, h: F.leaky_relu(h + (m.extra + m.extra)), False, 5),
    "a weight added and exponentiated": (lambda m, h: F.leaky_relu(h + m.extra) * m.extra.exp(), False, 0),
    "padded with ones": (lambda m, h: F.leaky_relu(F.pad(h, (1, 0), value=1.0)[:, 1:] + 0 * h), False, 0),
    "sorted": (lambda m, h: F.leaky_relu(h.sort(-1).values), False, 0),
    "chosen by its size": (lambda m, h: h.gather(1, h.argmax(1, keepdim=True)) + h, False, 0),
    "whole numbers": (lambda m, h: F.leaky_relu(h * (h * 4).long().sign().double()), False, 0),
    "a Fourier transform": (lambda m, h: torch.fft.irfft(torch.fft.rfft(h), 5).relu() + h, False, 0),
    "written into a part": (written, False, 0),
    "a view of what was written": (viewed, False, 3),
    "put": (put, False, 0),
    "a branch": (branching, False, 0),
    "a number read out": (by_number, False, 0),
    "the softmax of scores": (lambda m, h: h.softmax(-1), False, 0),
    "a cumulative sum": (lambda m, h: F.leaky_relu(h.cumsum(-1)), False, 1),
    "a long power": (lambda m, h: F.leaky_relu(h).pow(3), False, 5),
    "a number to the power": (lambda m, h: 2**h, False, 0),
    "divided by a weight": (lambda m, h: F.leaky_relu(h) / m.extra, False, 10),
}
BATCHES = [torch.randn(40, 6, generator=torch.Generator().manual_seed(s)) for s in range(4)]


@pytest.mark.parametrize("name", FOUND)
def test_odd_functions_between_two_layers(name):
    does, norm, expected = FOUND[name]
    said, _ = checked(draw(Between(does, norm)), BATCHES)
    assert not said.rejected, said.rejected
    scales = sum(g.count for g in said.groups if "scale" in g.what)
    assert scales == expected


NAMED = {
    "sorted": "sort", "a number read out": "_local_scalar_dense", "put": "index_put",
    "written into a part": "copy into part of a tensor", "a Fourier transform": "_fft_r2c",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_understood_is_named(name):
    does, norm, _ = FOUND[name]
    said = symmetries(draw(Between(does, norm)), BATCHES[0], mode="train")
    assert NAMED[name] in said.unknown
    assert NAMED[name] in str(said)


class Words(nn.Module):
    """Rows of a table looked up by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Parameter(torch.zeros(9, 6)), nn.Parameter(torch.zeros(20, 6))
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.table[ids] + self.places[: ids.shape[1]]
        return self.head(F.gelu(self.norm(h)))


def test_a_table_looked_up_by_hand_has_one_scale_for_words_the_batch_lacks_too():
    model = draw(Words())
    ids = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    said = symmetries(model, ids, mode="train")
    (scale,) = said.of("scale")
    assert set(scale.parameters) == {"table", "places"} and scale.count == 1
    longer = torch.randint(0, 9, (4, 20), generator=torch.Generator().manual_seed(0))
    checked_again, _ = checked(model, [longer])
    assert {s.parameters for s in checked_again.of("scale")} == {scale.parameters}


def test_volumes_and_transposed_kernels_with_groups():
    volumes = [torch.randn(40, 2, 2, 2, 2, generator=torch.Generator().manual_seed(s)) for s in range(4)]
    model = nn.Sequential(
        nn.ConvTranspose3d(2, 4, 2, groups=2), nn.BatchNorm3d(4, momentum=None), nn.LeakyReLU(), nn.AvgPool3d(2),
        nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip
    said, right = checked(draw(model), volumes)
    assert said.dimension == right.nullity and not said.unknown


def test_statistics_that_are_not_kept_and_momentum_that_is_none():
    model = nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.LeakyReLU(), nn.Linear(5, 4),
        nn.BatchNorm1d(4, momentum=None), nn.LeakyReLU(), nn.Linear(4, 3),
    )  # fmt: skip
    said, right = checked(draw(model), BATCHES)
    assert said.dimension == right.nullity


def test_instances_with_running_statistics_in_eval_mode():
    model = nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True, track_running_stats=True), nn.LeakyReLU(), nn.Flatten(),
        nn.Linear(9, 2),
    )  # fmt: skip
    said = symmetries(draw(model), torch.randn(8, 2, 4, generator=torch.Generator().manual_seed(0)), mode="eval")
    assert not said.rejected and said.groups and all(g.exact < 1e-9 for g in said.groups)

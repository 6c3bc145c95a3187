"""Copying steps: copies, rows and samples counted by brute force."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.instrument.rules.flow import SamplesMixed
from normgauge.instrument.rules.shape import most_copies, rows_met, sample_axis
from tests.cases import weight
from tests.instrument.rules.one_step import bound, check, last

INDEX = torch.tensor([[0, 0, 2], [1, 1, 1]])


def written(x: Tensor) -> Tensor:
    y = x.repeat(2, 1)
    y[0, :2] = x[1, 2:]
    y[3].fill_(7.0)
    return y


COPIES = {
    "padding": (lambda x: F.pad(x[None], (2, 2), mode="replicate"), 3),
    "circular": (lambda x: F.pad(x[None], (3, 1), mode="circular"), 2),
    "constant": (lambda x: F.pad(x, (1, 1), value=5.0), 1),
    "repeat": (lambda x: x.repeat(3, 2), 6),
    "index": (lambda x: x[[0, 0, 1, 0]], 3),
    "gather": (lambda x: x.gather(1, INDEX), 3),
    "windows": (lambda x: x.unfold(1, 3, 1), 2),
    "halves": (lambda x: torch.cat([x.chunk(2, 1)[1], x], 1), 2),
    "like another": (lambda x: x.flatten().reshape_as(x.tanh()), 1),
    "triangle": (lambda x: x.tril(), 1),
}


@pytest.mark.parametrize("name", COPIES)
def test_the_constant_is_the_root_of_the_copies(name):
    function, copies = COPIES[name]
    upper = check(function, weight(2, 4), exact=True, linear=True)
    assert upper == pytest.approx(math.sqrt(copies), rel=1e-8)


def test_writes_in_place_stay_under_their_bound():
    assert check(written, weight(2, 4), linear=True) < math.sqrt(2 * 2 + 1) + 1e-6


def test_disjoint_branches_add_in_squares_and_others_do_not():
    assert bound(lambda x: torch.cat([3 * x, 4 * x]), weight(2, 3)) == pytest.approx(5.0)
    both = lambda x: (2 * x).reshape_as(x.tanh()) + (3 * x).flatten().reshape_as(x)  # noqa: E731
    assert bound(both, weight(2, 3)) == pytest.approx(5.0)


def test_copies_and_rows_are_counted():
    label = torch.tensor([[1.0, 2.0, 5.0], [4.0, 4.0, 0.0]])  # of a tensor with rows of three: 1 2 3, 4 5 6
    assert most_copies(label) == 2 and most_copies(torch.zeros(2)) == 0
    assert rows_met(label, 3) == 2 and rows_met(label[1:], 3) == 1 and rows_met(label, 6) == 1


@pytest.mark.parametrize(("move", "axis"), [(lambda t: t.permute(1, 0, 2), 1), (lambda t: t.reshape(4, 3), 0)])
def test_the_samples_are_found_where_they_went(move, axis):
    label = torch.arange(1.0, 13.0).reshape(2, 2, 3)
    assert sample_axis(move(label), torch.Size((2, 2, 3)), 0, 2) == axis
    assert sample_axis(torch.zeros(3), torch.Size((2, 2, 3)), 0, 2) is None
    with pytest.raises(SamplesMixed, match="does not keep samples apart"):
        sample_axis(label.flatten()[torch.randperm(12, generator=torch.Generator().manual_seed(0))], label.shape, 0, 2)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x[:, x.argmax(1)], "depend on the data"),
        (lambda x: x.index_put((torch.tensor([0, 0]),), x, accumulate=True), "writes that add up"),
        (lambda x: x.T.as_strided((2, 4), (1, 2)), "strides over memory"),
    ],
)
def test_what_does_more_than_copy_is_unknown(function, said):
    assert said in last(function, weight(2, 4))[0].unknown


def test_a_choice_by_the_data_has_no_bound():
    transfer, _ = last(lambda x: torch.where(x > 0, x, 0.1 * x), weight(2, 4))
    assert "may be discontinuous" in transfer.no_bound and float(transfer.gains[0].log) == math.inf

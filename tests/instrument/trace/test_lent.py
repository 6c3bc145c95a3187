from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.device import NETS, net
from normgauge.core.errors import InputError
from normgauge.instrument.measure import readings
from normgauge.instrument.session import opened
from normgauge.instrument.trace import lent
from normgauge.instrument.trace.lent import Lent, NoWrites, WrittenTo, lends
from tests.conftest import balanced_alone

SCOPES = ("point", "ball:0.1", "global")


@pytest.fixture
def everything_is_lent(monkeypatch):
    monkeypatch.setattr(lent, "LEAST", 1)
    monkeypatch.setattr(lent, "MOST_COPIED", 0)


@pytest.mark.parametrize("name", NETS)
def test_lent_weights_give_the_very_numbers_that_copies_do(name, everything_is_lent, monkeypatch):
    model, x = net(name)
    with opened(model, x) as session:
        given = [type(p) for p in session.model.parameters()]
    assert Lent in given
    with balanced_alone():  # how far a random start goes depends on the work counted, and casts are work
        there = readings(model, x, SCOPES, search=False)
        monkeypatch.setattr(lent, "MOST_COPIED", 2**40)
        here = readings(model, x, SCOPES, search=False)
    plain = [{**reading.to_json(), "seconds": None, "digest": None} for reading in (*here, *there)]
    assert plain[:3] == plain[3:]


def test_a_lent_weight_reads_as_its_copy_and_its_views_are_lent():
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    given, wide = nn.Parameter(Lent(weight, torch.float64)), weight.double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    out = F.linear(x, given)
    assert type(out) is torch.Tensor and torch.equal(out, F.linear(x, wide))
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.ones(3, 6, dtype=torch.float64) @ wide)
    assert torch.equal(F.embedding(torch.tensor([1, 5]), given), wide[[1, 5]])
    assert all(isinstance(view, Lent) for view in (given.detach(), given.T, given[1:3], given.reshape(-1), given[None]))
    assert [part.shape[0] for part in given.split(4)] == [4, 2]
    assert given.tolist() == wide.tolist() and given.detach().numpy().tolist() == wide.tolist()
    assert torch.equal(given.clone(), wide) and torch.equal(given.float(), weight) and given.cpu() is given
    assert torch.equal(copy.deepcopy(given), wide) and isinstance(given, nn.Parameter)
    assert repr(given.detach()) == "Lent((6, 4), torch.float32 as torch.float64)"


def test_nothing_writes_to_a_lent_weight():
    weight = torch.ones(3)
    given = Lent(weight, torch.float64)
    for write in (lambda: given.mul_(2), lambda: given[1:].zero_(), lambda: given.data.add_(1), given.data_ptr):
        with pytest.raises(WrittenTo):
            write()
    own = torch.zeros(3, dtype=torch.float64)
    own += given
    with NoWrites(frozenset([weight.untyped_storage().data_ptr()])) as guard:
        own.add_(weight)
        assert not guard.refused
        with pytest.raises(WrittenTo):
            weight[1:].mul_(2)
    assert guard.refused and weight.tolist() == [1, 1, 1] and own.tolist() == [2, 2, 2]


class Shrinking(nn.Linear):
    """Writes to its own weight in every forward."""

    def forward(self, x):
        self.weight.data.mul_(0.5)
        return super().forward(x)


def test_a_program_that_writes_to_its_weights_gets_copies_and_the_model_is_as_it_was(everything_is_lent):
    model = nn.Sequential(Shrinking(3, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        with opened(model, torch.randn(2, 3)) as session:
            assert not any(isinstance(p, Lent) for p in session.model.parameters())
    except InputError:
        pass  # no two runs of it are alike
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_only_models_with_gigabytes_of_weights_lend_them():
    with torch.device("meta"):
        large = nn.Linear(20_000, 10_000)
    assert not lends(large)  # nothing to copy there
    assert not lends(nn.Linear(300, 300))
    size = 20_000
    assert lends(nn.ParameterList([nn.Parameter(torch.empty(size, size // 2))]))

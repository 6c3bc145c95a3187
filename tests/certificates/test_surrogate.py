from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from normgauge.certificates import surrogate
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.rows.disagreement import disagreement_rows
from normgauge.certificates.surrogate import reinitialized_copy, train_half
from normgauge.core.certificate import Row, RowKind
from normgauge.core.errors import InputError
from tests.certificates.rows.made import case_of, points, small, trained

TRAIN = points(600, 0)


UNLABELED = DataSample.of(points(500, 1)[0], "unlabeled", labelled=False)


def one(*args: object, **options: object) -> Row:
    (row,) = disagreement_rows(*args, **options)  # type: ignore[arg-type]
    return row


class Says(nn.Module):
    """The class of the first column, or the other one: a network whose errors are known."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([-self.sign * x[:, 0], self.sign * x[:, 0]], 1)


class OwnWeight(nn.Module):
    """A parameter that no reset_parameters knows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale * self.linear(x)
        return out


class OwnStatistics(nn.Module):
    """A running mean that stays when the weights are drawn anew."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x - self.seen)
        return out


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (OwnWeight(), "scale"),
        (OwnStatistics(), "seen"),
        (nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 2))), "parametrizations.weight.original0"),
    ],
    ids=["parameter", "buffer", "weight norm"],
)
def test_what_stays_as_trained_is_refused_by_name(model: nn.Module, what: str) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    row = one(case_of(model, TRAIN, unlabeled=UNLABELED))
    assert row.kind is RowKind.NOT_APPLICABLE
    assert what in row.reason
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_fresh_weights_forget_the_trained_ones() -> None:
    one_net, other = trained(TRAIN, seed=0), trained(points(600, 9), seed=5)
    pair = reinitialized_copy(one_net, 3), reinitialized_copy(other, 3)
    states = [net.state_dict() for net in pair]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0] if "batches" not in name)
    assert not torch.equal(states[0]["head.weight"], one_net.state_dict()["head.weight"])


def test_the_random_state_and_the_network_are_left_alone() -> None:
    model = trained(TRAIN)
    case = case_of(model, TRAIN, epochs=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    train_half(case)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model.training


def test_the_halves_are_disjoint_and_cover_d(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr(surrogate, "train", lambda model, data, **_: seen.append(data.inputs))
    case = case_of(small(), TRAIN, epochs=1)
    other = train_half(case)
    learnt, rest = (
        {tuple(row) for row in inputs.tolist()} for inputs in (seen[0], other.unseen.take(range(len(other.unseen))))
    )
    assert len(learnt) == len(rest) == 300
    assert learnt | rest == {tuple(row) for row in TRAIN[0].tolist()}
    again = train_half(case_of(small(), TRAIN, epochs=1, seed=1))
    assert {tuple(row) for row in again.unseen.take(range(300)).tolist()} != rest, "the halves are random"


def test_too_few_samples_and_uncopyable_networks_are_refused() -> None:
    few = (TRAIN[0][:3], TRAIN[1][:3])
    row = one(case_of(small(), few, unlabeled=UNLABELED))
    assert "3 samples" in row.reason
    stuck = Says(1.0)
    stuck.kept = torch.zeros(1, requires_grad=True) * 2  # not a leaf: no deep copy
    with pytest.raises(InputError, match="cannot be copied"):
        reinitialized_copy(stuck, 0)

"""Every row is there for every network, typed, with its reason where it does not apply."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.scores import SCORES, score_rows, score_values
from normgauge.certificates.scores.norms import weight_changes
from normgauge.core.certificate import Consumed, Row, RowKind
from normgauge.core.errors import InputError
from tests.certificates.scores.made import case, conv_net, images, sample, scored, trained, two_layers

KEYS = [score.key for score in SCORES]


class Attention(nn.Module):
    """A layer that no score of maps in a row fits."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(36, 3)

    def forward(self, x):
        x = x.squeeze(1)
        return self.head(self.mix(x, x, x, need_weights=False)[0].flatten(1))


class Odd(nn.Module):
    """A function without any parameter."""

    def forward(self, x):
        return x.flatten(1)[:, :3]


@pytest.mark.parametrize(
    "net",
    [conv_net(None), conv_net("batch"), conv_net("group"), Attention(), Odd()],
    ids=["plain", "batch", "group", "attention", "odd"],
)
def test_every_row_is_there_and_says_what_it_is(net):
    rows = scored(net.eval(), images(30), more={"unlabeled": images(40, seed=7)})
    assert list(rows) == KEYS
    for row in rows.values():
        assert row.family == "score" and row.confidence is None and row.source and row.formula
        assert "larger predicts worse" in row.quantity
        assert row.kind in (RowKind.SCORE, RowKind.NOT_APPLICABLE)
        assert bool(row.reason) is (row.kind is RowKind.NOT_APPLICABLE)
        assert (row.value is not None and bool(row.terms)) is (row.kind is RowKind.SCORE)
        assert Row.from_json(json.loads(json.dumps(row.to_json(), allow_nan=False))) == row


def test_what_a_network_lacks_is_named():
    rows = scored(trained(conv_net("group"), images()), images())
    assert "GroupNorm" in rows["path-norm"].reason
    assert "initial=" in rows["fro-dist"].reason
    assert "unlabeled=" in rows["cell-sensitivity"].reason
    assert "reading" in rows["balanced-capacity-margin"].reason
    assert "lipschitz_term" in rows["theorem20-lipschitz"].reason
    rows = scored(Attention().eval(), images(30))
    assert "in_proj_weight" in rows["log-prod-spec-true"].reason
    assert "not classified rightly" in rows["inverse-margin"].reason
    assert scored(Odd(), images(9))["l2"].reason == "the network has no parameters"


def test_initial_weights_of_another_network_are_refused_in_the_row():
    net, data = two_layers(), sample()
    assert "do not fit" in scored(net, data, initial={"x": torch.zeros(1)})["fro-dist"].reason
    with pytest.raises(InputError, match="other names or shapes"):
        weight_changes({"0.weight": torch.zeros(2, 2)}, {"weight": torch.zeros(2, 2)})
    assert scored(net, data, initial=copy.deepcopy(net.state_dict()))["fro-dist"].value == 0.0
    assert "ranks nothing" in scored(net, _right(data), initial=net.state_dict())["log-spec-init-main"].reason


def _right(data: DataSample) -> DataSample:
    """Only what the network of two layers classifies with a margin."""
    x = data.inputs
    return data.part(torch.where(data.labels == 0, 6 * x[:, 0] - 5 * x[:, 1], 5 * x[:, 1] - 6 * x[:, 0]) > 0.1)


def test_layers_that_are_zero_have_no_logarithm():
    net = two_layers()
    with torch.no_grad():
        net[0].weight.zero_()
    rows = scored(net, sample())
    assert "zero" in rows["log-prod-spec"].reason and "zero" in rows["fro-over-spec"].reason


def test_word_numbers_have_no_slopes():
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.table(x).mean(1))

    torch.manual_seed(0)
    words = torch.randint(0, 5, (20, 3))
    rows = scored(Words().eval(), DataSample(words, words[:, 0] % 2))
    assert "whole numbers" in rows["input-gradient"].reason
    assert "whole numbers" in rows["noise-sensitivity"].reason
    assert rows["l2"].kind is RowKind.SCORE and "Embedding" in rows["path-norm"].reason


def test_the_model_and_the_random_state_are_left_as_they_are():
    data = images(40)
    net = trained(conv_net("batch"), data)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    gradients = [p.grad.clone() for p in net.parameters()]
    random = torch.get_rng_state()
    rows = scored(net, data, more={"unlabeled": images(40, seed=3)})
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in before.items())
    assert not net.training
    assert all(torch.equal(g, p.grad) for g, p in zip(gradients, net.parameters(), strict=True))
    again = scored(net, data, more={"unlabeled": images(40, seed=3)})
    assert [r.value for r in rows.values()] == [r.value for r in again.values()]


def test_cell_sensitivity_says_that_it_used_unlabeled_data():
    data = images(700)
    rows = scored(trained(conv_net(None), data, 5), data, more={"unlabeled": images(40, seed=3)})
    assert rows["cell-sensitivity"].consumed == (Consumed.UNLABELED,)


def test_progress_is_told():
    told: list[float] = []
    list(score_rows(case(two_layers(), sample(), progress=lambda _, share: told.append(share))))
    assert told == sorted(told) and told[-1] == 1.0


def test_the_plain_numbers_are_the_values_of_the_rows():
    net, data, fresh = two_layers(), sample(), sample(30, seed=4)
    rows = scored(net, data, more={"unlabeled": fresh}, initial=net.state_dict())
    found = score_values(net, (data.inputs, data.labels), unlabeled=fresh.inputs, initial=net.state_dict())
    assert found == {key: row.value for key, row in rows.items() if row.value is not None}
    assert "cell-sensitivity" in found and "theorem20-lipschitz" not in found
    assert "cell-sensitivity" not in score_values(net, data)

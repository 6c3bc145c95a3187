from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules import embedding
from normgauge.instrument.rules.embedding import embedding_facts
from tests.instrument.rules.one_step import composed


def test_an_index_made_from_the_input_has_no_constant():
    table = nn.Embedding(4, 3).double()
    x = torch.randn(2, 4).double()
    for function in (lambda x: table(x.argmax(-1)), lambda x: F.embedding(x.argmax(-1), table.weight)):
        parts = composed(function, x)
        assert float(parts.log_upper) == math.inf
        transfer = parts.transfers[parts.trace.output.index]
        assert transfer.no_bound and not transfer.unknown


def test_a_table_made_from_the_input_is_unknown():
    x = torch.randn(2, 4).double()
    parts = composed(lambda x: F.embedding(torch.tensor([0, 1]), x), x)
    assert parts.transfers[parts.trace.output.index].unknown


def test_facts_of_a_small_and_a_large_table(monkeypatch):
    torch.manual_seed(0)
    weight = torch.randn(40, 5)
    true = float(torch.cdist(weight.double(), weight.double()).max())
    small = embedding_facts(weight)
    assert small["exact"] and small["max_distance"][0] <= true <= small["max_distance"][1]
    assert small["max_distance"][1] == pytest.approx(true, rel=1e-6)
    monkeypatch.setattr(embedding, "PAIRS_LIMIT", 10)
    large = embedding_facts(weight)
    assert not large["exact"] and large["max_distance"][0] <= true <= large["max_distance"][1] < 3 * true
    spectral = float(torch.linalg.matrix_norm(weight.double(), 2))
    assert small["log_spectral"].lo <= math.log(spectral) <= small["log_spectral"].hi
    assert 0.99 * math.exp(small["log_spectral"].hi) < spectral

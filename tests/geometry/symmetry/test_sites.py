"""Where weights are read."""

from __future__ import annotations

import json

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normgauge as ng
from normgauge.geometry.symmetry.sites import (
    from_softmax,
    product_weight,
    reading_counts,
    scalar_factor,
    sites_of,
    used_again,
)
from tests.geometry.symmetry.right import checked, draw, labelled

VECTORS = [torch.randn(60, 6, generator=torch.Generator().manual_seed(s)) for s in range(4)]


class Tied(nn.Module):
    """A matrix used twice, with no activation behind its second use: mixings exist that suit both uses."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.twice, self.head = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.twice(F.leaky_relu(self.twice(F.leaky_relu(self.stem(x))))))


def test_what_is_not_looked_for_is_named():
    said, right = checked(draw(Tied()), VECTORS)
    assert said.dimension < right.nullity
    (text,) = said.not_looked_for
    assert text.endswith(("twice.bias, twice.weight", "twice.weight, twice.bias"))
    assert json.loads(json.dumps(said.to_json()))["not_looked_for"] == [text]
    assert f"not looked for: {text}" in " ".join(str(said).split())


def test_nothing_is_named_where_every_weight_is_used_once():
    plain = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.LeakyReLU(), nn.Linear(5, 3))
    assert ng.symmetries(draw(plain), VECTORS[0], mode="train").not_looked_for == ()
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    assert ng.symmetries(attention, torch.randn(3, 5, 4), mode="train").not_looked_for == ()


class Reader(nn.Module):
    """One weight of every kind: multiplied, added, looked up, read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.gain = nn.Embedding(9, 6), nn.Linear(6, 5), nn.Parameter(torch.zeros(5))
        self.kernel, self.place = nn.Conv1d(5, 3, 2), nn.Parameter(torch.zeros(4, 5))

    def forward(self, ids: Tensor) -> Tensor:
        h = (self.first(self.table(ids)) + self.place) * self.gain / 2.0
        return self.kernel((h + self.gain).mT).softmax(-1)


def test_what_reads_a_weight_and_what_it_is():
    labels = labelled(draw(Reader()), torch.arange(8).reshape(2, 4))
    nodes = labels.graph.nodes
    products = {found[0]: found[1].shape for node in nodes if (found := product_weight(labels, node)) is not None}
    assert products == {"table.weight": (9, 6), "first.weight": (6, 5), "kernel.weight": (5, 2, 3)}
    assert {s.name for node in nodes for s in sites_of(labels, node)} == {
        "table.weight", "first.bias", "place", "gain", "kernel.bias",
    }  # fmt: skip
    counts = reading_counts(labels)
    assert counts["gain"] == 2 and all(counts[name] == 1 for name in ("place", "first.weight", "kernel.bias"))
    assert used_again(labels) == ["gain"]
    factors = [scalar_factor(node, node.args[0]) for node in nodes if node.op in ("mul", "div")]
    assert factors == [None, 2.0]  # by a weight, by a number
    assert from_softmax(labels.graph.output) and not from_softmax(nodes[0].outputs[0])

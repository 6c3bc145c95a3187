"""Layers decades above their siblings: named, unless something behind them takes the scale back."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.advice import Fix
from normgauge.lab.zoo import vit
from tests.advice.nets import net


def test_the_numbers_of_a_sentence_are_those_of_the_network(batch):
    model = net(None)
    with torch.no_grad():
        model.layers[1].linear.weight.mul_(1000)
    (remark,) = ng.advise(model, batch, facts=False).problems
    assert (remark.kind, remark.layer) == ("outlier weight", "layers.1.linear")
    truth = math.log10(torch.linalg.matrix_norm(model.layers[1].linear.weight.detach().double(), 2))
    assert remark.numbers["log10_norm"] == pytest.approx(truth, abs=1e-3)
    assert remark.fix == Fix(("layers.1.linear",), "batch")


class Plain(nn.Module):
    """A stem, a residual block without normalizers, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.up, self.down, self.head = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.stem(x))
        return self.head(h + self.down(torch.relu(self.up(h))))


class BehindTheSum(Plain):
    """The same with a normalizer behind the sum, which takes the scale of the stream away."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.stem(x))
        return self.head(self.norm(h + self.down(torch.relu(self.up(h)))))


@pytest.mark.parametrize(
    ("made", "layer", "place"),
    [
        (BehindTheSum, "down", "before it meets another branch"),
        (Plain, "stem", "before the network branches"),
        (Plain, "head", "up to the output"),
    ],
)
def test_where_no_normalizer_stands_is_told_and_no_more(vectors, made, layer, place):
    torch.manual_seed(3)
    problems = ng.advise(scaled(made(), **{layer: 3000.0}), vectors, facts=False).problems
    (told,) = [r.sentence for r in problems if r.kind == "outlier weight"]
    assert f"siblings have, and no normalizer stands behind it {place}. Look at" in told


@pytest.fixture
def vectors() -> Tensor:
    return torch.randn(12, 8, generator=torch.Generator().manual_seed(0))


class PreNorm(nn.Module):
    """A stem, a residual block of three layers with a normalizer in front, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.second, self.third, self.head = (nn.Linear(8, 8) for _ in range(5))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.stem(x))
        inner = torch.relu(self.second(torch.relu(self.first(self.norm(h)))))
        return self.head(h + self.third(inner))


@pytest.mark.parametrize(
    ("factors", "named"),
    [
        ({"third": 3000.0}, ["third"]),
        ({"stem": 3000.0, "third": 3000.0, "head": 1 / 3000}, []),
    ],
    ids=["branch", "stream"],
)
def test_a_stream_written_larger_is_no_problem_and_a_branch_that_drowns_it_is(vectors, factors, named):
    torch.manual_seed(3)
    model = scaled(PreNorm(), **factors)
    problems = ng.advise(model, vectors, facts=False).problems
    assert [r.layer for r in problems if r.kind == "outlier weight"] == named


@pytest.mark.parametrize(("key", "named"), [(1.0, ["blocks.0.attn.query"]), (1e-3, [])], ids=["alone", "undone"])
def test_queries_against_keys(key, named):
    torch.manual_seed(0)
    model = vit(8, 2, 1, 16, 2, 4)
    attn = model.blocks[0].attn
    scaled(attn, query=1e3, key=key)
    problems = ng.advise(model, torch.randn(8, 1, 8, 8), facts=False).problems
    assert [r.layer for r in problems if r.kind == "outlier weight"] == named


def scaled(model: nn.Module, **factors: float) -> nn.Module:
    with torch.no_grad():
        for name, factor in factors.items():
            layer = model.get_submodule(name)
            layer.weight.mul_(factor)
    return model


@pytest.mark.parametrize(
    ("factors", "named"),
    [
        ({}, []),
        ({"down": 3000.0}, ["down"]),
        ({"stem": 3000.0}, ["stem"]),
        ({"head": 3000.0}, ["head"]),
        ({"up": 3000.0, "down": 1 / 3000}, []),  # the next layer takes it back
        ({"stem": 3000.0, "up": 1 / 3000, "down": 3000.0, "head": 1 / 3000}, []),  # the stream is written larger
    ],
    ids=["healthy", "branch", "stem", "head", "pair", "stream"],
)
def test_an_outlying_layer_is_named_unless_the_function_is_the_same(vectors, factors, named):
    torch.manual_seed(3)
    model = scaled(Plain(), **factors)
    problems = ng.advise(model, vectors, facts=False).problems
    assert [r.layer for r in problems if r.kind == "outlier weight"] == named

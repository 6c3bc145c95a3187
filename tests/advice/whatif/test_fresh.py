"""Fresh normalizers: the groups chosen, the shapes they fit, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.advice.whatif.fresh import fresh_normalizer, group_count
from normgauge.core.errors import ReadingError
from tests.advice.whatif.nets import ask


@pytest.mark.parametrize("kind", ["batch", "layer", "group", "instance", "rms"])
def test_images_take_every_kind(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(16, 3)).eval()
    whole = ask(net, torch.randn(4, 2, 6, 6))
    asked = whole.with_norm("0", kind, groups=3 if kind == "group" else None).reading
    assert asked.log_upper != pytest.approx(whole.reading.log_upper, abs=1e-6)
    assert any(layer.name.startswith("0.norm") for layer in asked.layers)


def test_tokens_and_other_shapes():
    torch.manual_seed(0)
    tokens = ask(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(3, 5, 4))
    assert tokens.with_norm("0", "rms").reading.layer("0.norm").kind == "RMSNorm"
    with pytest.raises(ReadingError, match="lie on the last axis; use kind layer or rms"):
        tokens.with_norm("0", "batch")
    line = ask(nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(16, 2)), torch.randn(3, 2, 6))
    assert line.with_norm("0", "batch").reading.layer("0.norm").kind == "BatchNorm1d"
    with pytest.raises(ReadingError, match="kind rms needs vectors, tokens or images"):
        line.with_norm("0", "rms")
    whole = line.with_norm("1", "layer").reading  # behind the Flatten
    assert whole.layer("1.norm").kind == "LayerNorm"


def test_groups_are_chosen_so_that_three_entries_are_left():
    assert [group_count(c, None) for c in (64, 8, 12, 7, 2)] == [8, 2, 4, 1, 1]
    assert group_count(12, 6) == 6


def test_a_fresh_batch_normalizer_makes_the_batch_standard():
    data = 5 * torch.randn(64, 3, 2, 2) + 7
    out = fresh_normalizer("batch", data, None, nn.Conv2d(3, 3, 1)).eval()(data)
    torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(out.var((0, 2, 3), correction=0), torch.ones(3), atol=1e-4, rtol=0)

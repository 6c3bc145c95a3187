"""A search finds the places where a normalizer divides by its ε, also where they lie away from zero."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument import slopes


class Placed(nn.Module):
    """Tokens with places added to them, as embeddings have, before the first of two normalizers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.places = nn.Parameter(torch.randn(5, 16))
        self.first, self.second = nn.LayerNorm(16, eps=1e-10), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.second(torch.relu(self.up(self.first(x + self.places)))))


def test_a_normalizer_that_can_divide_by_nothing_is_met_there(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 5, 16)
    found = ng.gauge(Placed(), x, scope="global", effort="quick")
    monkeypatch.setattr(slopes, "collapsed_inputs", lambda parts: None)
    blind = ng.gauge(Placed(), x, scope="global", effort="quick")
    assert found.log10_lower <= found.log10_upper
    assert found.log10_lower > max(4.5, blind.log10_lower + 1)  # 1/√ε is 10^5


def test_no_gradient_is_left_in_the_model() -> None:
    model = Placed()
    ng.gauge(model, torch.randn(2, 5, 16), scope="global", effort="quick")
    assert all(parameter.grad is None for parameter in model.parameters())

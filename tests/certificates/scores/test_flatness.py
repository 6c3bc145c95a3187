from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.certificates.scores.flatness import Search, score_noise, score_pac_bayes, score_pac_bayes_aware
from normgauge.core.errors import InputError


def test_pac_bayes_terms_add_up_to_the_published_formula():
    w = {"a": torch.tensor([[3.0, 4.0]], dtype=torch.float64)}
    terms = score_pac_bayes(w, 0.5, 100)
    assert sum(terms.values()) == pytest.approx(25 / (4 * 0.25) + math.log(200) + 10)
    moved = {"a": torch.tensor([[1.0, 0.0]], dtype=torch.float64)}
    terms = score_pac_bayes_aware(w, moved, 0.5, 100)
    over = 1e-6 + 1.25 * 25 / 2
    expected = (math.log(over / (1e-6 + 0.25)) + math.log(over / 1e-6)) / 4
    assert sum(terms.values()) == pytest.approx(expected + math.log(200) + 10)


def test_a_net_that_bears_more_noise_scores_lower():
    torch.manual_seed(0)
    x = torch.tensor([[1.0], [-1.0]]).repeat(50, 1)
    y = torch.tensor([0, 1]).repeat(50)
    net = nn.Linear(1, 2, bias=False)
    borne = []
    for size in (0.1, 1.0):
        with torch.no_grad():
            net.weight.copy_(torch.tensor([[size], [-size]]))
        borne.append(score_noise(net, x, y, search=Search(12, 40)))
        assert score_noise(net, x, y, aware=True, search=Search(12, 40)) == pytest.approx(
            score_noise(nn.Sequential(net), x, y, aware=True, search=Search(12, 40))
        )
    assert borne[1] == pytest.approx(10 * borne[0], rel=0.02)  # the noise that flips a sign grows with the weight


def test_noise_that_changes_nothing_or_everything_is_no_score():
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1) + 0 * self.weight

    x, y = torch.ones(10, 1), torch.zeros(10, dtype=torch.long)
    with pytest.raises(InputError, match="takes less than"):
        score_noise(Deaf(), x, y)
    net = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1e-12], [0.0]]))
    with pytest.raises(InputError, match="already takes"):
        score_noise(net, x, y)

import math

import numpy as np
import pytest
import torch
from torch import nn

from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.space import (
    STEEPNESS,
    fixed_loss,
    linear_margins,
    margins_of,
    ramps,
    spread_of,
)


def test_ramps_bound_the_error_for_every_gamma() -> None:
    margins = torch.tensor([-1.0, 0.0, 0.01, 0.5, 3.0], dtype=torch.float64)
    found = ramps(margins, 2.0)
    assert len(found) == len(STEEPNESS)
    for choice in found:
        assert choice.loss >= 0.4  # two of five are wrong or tied
        assert choice.gamma is not None and choice.gamma * choice.steepness == pytest.approx(2.0)
    assert ramps(margins, math.inf) == ()
    assert len(ramps(margins, 0.0)) == len(STEEPNESS)


def test_a_given_loss_is_rounded_up_to_the_grid() -> None:
    (choice,) = fixed_loss(2.0, 5.0, 4.0)
    assert choice.loss == 0.5 and choice.gamma is None
    assert 1.25 <= choice.steepness < 1.25 * 2**0.25
    assert fixed_loss(2.0, 1e9, 4.0) == ()


def test_linear_margins_are_distances() -> None:
    head = nn.Linear(3, 4)
    points = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(50) % 4
    found = linear_margins(head, DataSample(points, labels))
    weight, bias = head.weight.detach().double(), head.bias.detach().double()
    for x, y, margin in zip(points.double(), labels.tolist(), found.tolist(), strict=True):
        scores = weight @ x + bias
        assert (margin > 0) == (int(scores.argmax()) == y)
        # walking that far towards the nearest boundary reaches it
        j = min(
            (k for k in range(4) if k != y),
            key=lambda k: float((scores[y] - scores[k]) / (weight[y] - weight[k]).norm()),
        )
        step = (weight[j] - weight[y]) / (weight[j] - weight[y]).norm()
        moved = weight @ (x + margin * step) + bias
        assert float(moved[y] - moved[j]) == pytest.approx(0.0, abs=1e-9)


def test_classes_with_the_same_weights_share_no_boundary() -> None:
    head = nn.Linear(2, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([1.0, 0.0]))
    assert linear_margins(head, DataSample(torch.zeros(2, 2), torch.tensor([0, 1]))).tolist() == [math.inf, -math.inf]


def test_margins_count_ties_as_errors() -> None:
    margins = margins_of(torch.tensor([[1.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 0]))
    assert margins.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(4))
def test_the_true_term_is_rarely_above(seed: int) -> None:
    """Points on a line with three cells; the true mean change is known from a fine grid of the source."""
    rng = np.random.default_rng(seed)
    m, delta, steep, trials = 60, 0.2, 3.0, 300
    atoms = np.sort(rng.random(40)) * np.array([1.0] * 20 + [2.0] * 20)
    p = rng.dirichlet(np.ones(40) * 0.4)
    cell = np.digitize(atoms, [0.3, 0.9])
    change = np.minimum(1, steep * np.abs(atoms[:, None] - atoms))
    same = (cell[:, None] == cell) * p
    psi = (change * same).sum(1) / same.sum(1).clip(1e-300)
    broken = 0
    for trial in range(trials):
        picks = rng.choice(40, size=m, p=p)
        points = DataSample(torch.tensor(atoms[picks])[:, None], torch.zeros(m, dtype=torch.long))
        found = spread_of(points, torch.tensor(cell[picks]), seed=trial)
        true = psi[picks].mean()
        broken += true > found.upper(steep, delta)
    assert broken <= delta * trials


def test_the_bare_mean_is_often_too_small() -> None:
    """Without its slack the estimate is broken about half of the time: the slack is what makes it a bound."""
    rng = np.random.default_rng(0)
    broken = 0
    for trial in range(300):
        x = rng.random(20)
        found = spread_of(DataSample(torch.tensor(x)[:, None], None), torch.zeros(20, dtype=torch.long), seed=trial)
        true = np.mean((x**2 + (1 - x) ** 2) / 2)  # E|x − s| for x uniform
        broken += true > found.mean()
    assert 90 < broken < 210

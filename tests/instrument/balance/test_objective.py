"""What the descent follows: near what is proved, edge by edge, with the gradient of its own value."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normgauge.core.rounding import HOUSE
from normgauge.instrument.balance.edges import leading_shares
from normgauge.instrument.balance.objective import Objective, _share_of_arm
from normgauge.instrument.measure import gauge
from normgauge.instrument.rules.flow import Matrix
from tests.instrument.balance.graphs import GRAPHS, Around, composed, weighting_of


def weights(count: int, seed: int, size: float = 0.5) -> Tensor:
    return size * torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gains(objective: Objective, theta: Tensor, *, frobenius: bool) -> dict[tuple[int, int], Tensor]:
    """The gain of every edge at given weights."""
    logs = objective.log_weights(theta)
    pairs = objective.stacked_pairs(logs, frobenius)
    return {
        (out.index, k): torch.from_numpy(edge(logs, frobenius, pairs)[0] if callable(edge) else edge)
        for step in objective.parts.trace.steps
        for out in step.outputs
        for k, edge in enumerate(objective._edges(step, out))
    }


@pytest.mark.parametrize("scope", ["point", "global"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_gain_is_near_what_is_proved(name: str, scope: str) -> None:
    with composed(name, scope) as parts:
        weighting = weighting_of(parts)
        theta = weights(weighting.free, 3)
        proved, objective = weighting.gains(theta), Objective(weighting)
        steered, over = (gains(objective, theta, frobenius=how) for how in (False, True))
        assert proved.keys() == steered.keys()
        for key, gain in proved.items():
            form = parts.transfers[key[0]].gains[key[1]].form
            linear = not torch.equal(steered[key], over[key])
            close = 5e-3 if linear else 2 * HOUSE
            assert torch.allclose(steered[key], gain, rtol=0.0, atol=close), (key, form)
            if linear and isinstance(form, Matrix):
                assert float(over[key][0]) >= float(gain[0]) - 2e-3  # ‖·‖_F ≥ ‖·‖₂


@pytest.mark.parametrize("scope", ["point", "global"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_gradient_is_that_of_the_value(name: str, scope: str) -> None:
    with composed(name, scope) as parts:
        weighting = weighting_of(parts)
        if not weighting.free:
            pytest.skip("no weight is free here")
        objective = Objective(weighting)
        theta, along = weights(weighting.free, 1, 0.3), weights(weighting.free, 5, 1.0)
        _, gradient = objective(theta, frobenius=True)
        ahead, behind = (objective(theta + h * along, frobenius=True)[0] for h in (1e-6, -1e-6))
    assert float(gradient @ along) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("name", ["pair", "residual", "convolutions", "transposed"])
def test_where_the_vectors_have_settled_the_gradient_is_that_of_the_spectral_norms(name: str) -> None:
    with composed(name, "global") as parts:
        weighting = weighting_of(parts)
        theta, along = weights(weighting.free, 1, 0.3), weights(weighting.free, 5, 0.1)

        def settled(at: Tensor) -> tuple[float, Tensor]:
            objective = Objective(weighting)
            return [objective(at, frobenius=False) for _ in range(200)][-1]

        _, gradient = settled(theta)
        ahead, behind = (settled(theta + h * along)[0] for h in (1e-2, -1e-2))
    assert float(gradient @ along) == pytest.approx((ahead - behind) / 2e-2, rel=0.05, abs=2e-3)


def test_channels_that_are_equally_large_share_the_gradient() -> None:
    shares = leading_shares(np.array([[1.0, 3.0, 3.0, 2.0], [0.0, -1.0, -2.0, -1.0]]))
    assert shares.tolist() == [[0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]]


def test_where_the_descent_ends_does_not_depend_on_the_gauge_it_began_in() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    plain = gauge(model, x, scope="global", search=False)
    factors = torch.logspace(-2, 2, 8, dtype=torch.float64)
    with torch.no_grad():  # across the ReLU: nothing the network computes changes
        model[2].weight.mul_(factors[:, None])
        model[2].bias.mul_(factors)
        model[4].weight.div_(factors)
    turned = gauge(model, x, scope="global", search=False)
    assert turned.log_folded > plain.log_folded + 1.0
    assert turned.log_upper == pytest.approx(plain.log_upper, abs=0.01)


def test_a_branch_that_carries_nothing_has_no_share_and_no_warning() -> None:
    torch.manual_seed(0)
    model = Around(lambda m, x: m.a(x) + (0.0 * m.b(x).relu() + 0.0 * m.b(x).tanh()))
    reading = gauge(model, torch.randn(3, 4), scope="global", search=False)  # a warning of numpy would be an error here
    gain = float(torch.linalg.matrix_norm(model.a.weight.detach().double(), 2).log())
    assert gain <= reading.log_upper <= gain + 2e-3
    assert _share_of_arm(np.full(2, -np.inf), np.array([-np.inf, 0.0]), disjoint=False).tolist() == [0.0, 0.0]
    assert _share_of_arm(np.zeros(1), np.log([2.0]), disjoint=True) == pytest.approx([0.25])

"""Weighted gains against brute force: D_out J D_in⁻¹ as a dense matrix, for any weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.instrument.balance.objective import Objective
from normgauge.instrument.balance.weighted import scale_weight, weighted_slopes
from normgauge.instrument.compose import Composition
from normgauge.instrument.session import opened
from normgauge.instrument.trace.again import run_step
from tests.instrument.balance.graphs import GRAPHS, composed, weighting_of


def random_weights(free: int, seed: int, spread: float = 1.0) -> Tensor:
    return spread * torch.randn(free, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def diagonal(shape: torch.Size, logs: Tensor | None, axis: int) -> Tensor:
    """The weights of a value as the diagonal of a matrix over its entries."""
    if logs is None:
        return torch.ones(math.prod(shape), dtype=torch.float64)
    view = [-1 if i == axis else 1 for i in range(len(shape))]
    return logs.exp().reshape(view).expand(shape).reshape(-1)


def dense_gain(parts: Composition, step, out, k: int, weights: dict, sample: int) -> float:
    """‖D_out J D_in⁻¹‖ of one step in one of its inputs, at one sample, from its dense Jacobian."""

    def moved(x: Tensor) -> Tensor:
        return run_step(step, lambda value: x if value is step.inputs[k] else value.tensor)[out.position]

    given = step.inputs[k].tensor
    jacobian = torch.autograd.functional.jacobian(moved, given).reshape(out.tensor.numel(), given.numel())
    sides = [diagonal(v.tensor.shape, *weights.get(v.index, (None, 0))) for v in (out, step.inputs[k])]
    scaled = (sides[0][:, None] * jacobian / sides[1]).reshape(len(out.tensor), -1, len(given), given[0].numel())
    return float(torch.linalg.matrix_norm(scaled[sample, :, sample], 2))


@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - {"layer norm"}))  # which folds its centring into the map
def test_no_weighted_gain_is_below_the_dense_truth(name: str) -> None:
    ratios = []
    with composed(name) as parts:
        weighting = weighting_of(parts)
        for seed, spread in ((1, 1.0), (2, 3.0)):
            theta = random_weights(weighting.free, seed, spread)
            logs, gains = weighting.log_weights(theta), weighting.gains(theta)
            weights = {index: (logs[index], channels.axis) for index, channels in weighting.ties.values.items()}
            ratios += [
                dense_gain(parts, step, out, k, weights, sample) / math.exp(float(gains[(out.index, k)][sample]))
                for step in parts.trace.steps
                for out in step.outputs
                for k in range(len(step.inputs))
                for sample in range(3)
            ]
    assert len(ratios) >= 18 and max(ratios) <= 1 + 1e-9
    assert max(ratios) > 0.999  # linear maps are met


@pytest.mark.parametrize("name", GRAPHS)
def test_every_choice_of_weights_bounds_the_whole_map(name: str) -> None:
    make, shape = GRAPHS[name]
    torch.manual_seed(len(name))
    model, x = make().double().eval(), torch.randn(3, *shape, dtype=torch.float64)
    truth = [torch.linalg.matrix_norm(torch.autograd.functional.jacobian(model, r[None]).reshape(-1, r.numel()), 2)
             for r in x]  # fmt: skip
    with composed(name) as parts:
        weighting = weighting_of(parts)
        for seed in range(3):
            gains = weighting.gains(random_weights(weighting.free, seed, 2.0))
            found = weighted_slopes(parts, gains).exp()
            assert all(float(bound) >= float(norm) * (1 - 1e-9) for bound, norm in zip(found, truth, strict=True))


@pytest.mark.parametrize("name", ["pair", "residual", "batch norm", "convolutions"])
def test_the_log_of_the_bound_is_convex_in_the_log_weights(name: str) -> None:
    with composed(name, "global") as parts:
        weighting = weighting_of(parts)

        def proved(theta: Tensor) -> float:
            return float(weighted_slopes(parts, weighting.gains(theta))[0])

        one, two = random_weights(weighting.free, 1), random_weights(weighting.free, 2)
        for bound in (proved, lambda theta: Objective(weighting)(theta, frobenius=True)[0]):
            ends = [bound(one), bound(two)]
            for share in (0.25, 0.5, 0.75):
                between = bound(share * one + (1 - share) * two)
                assert between <= share * ends[0] + (1 - share) * ends[1] + 2e-3  # the norms are enclosed to 1e-3


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(4, 6),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Conv1d(4, 4, 2, stride=2, groups=4),
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.ConvTranspose1d(4, 3, 2, stride=2),
    ],
    ids=str,
)
def test_a_scaled_weight_is_the_scaled_map(layer: nn.Module) -> None:
    layer = layer.double().requires_grad_(False)
    x = torch.randn(2, 4, *[5] * (layer.weight.ndim - 2), dtype=torch.float64)
    with opened(layer, x) as session:
        parts = session.composed(Scope.parse("global"))
    (step,) = parts.trace.steps
    form = parts.transfers[step.outputs[0].index].gains[0].form
    channels = layer(x).shape[1]
    log_out, log_in = random_weights(channels, 4), random_weights(4, 5)
    scaled = scale_weight(form.weight, form, log_out, log_in)
    twin, plain = (layer.__class__.__new__(layer.__class__) for _ in range(2))
    for copy, weight in ((twin, scaled.reshape(layer.weight.shape)), (plain, layer.weight)):
        copy.__dict__.update(layer.__dict__)
        copy.__dict__["_parameters"] = {"weight": nn.Parameter(weight, requires_grad=False), "bias": None}
    view = (1, -1, *[1] * (x.ndim - 2))
    assert torch.allclose(twin(x), log_out.exp().reshape(view) * plain(x / log_in.exp().reshape(view)))


def test_weights_that_share_one_factor_shift_the_gains_by_it() -> None:
    with composed("pair", "global") as parts:
        weighting = weighting_of(parts)
        first, _, last = ((step.outputs[0].index, 0) for step in parts.trace.steps)
        plain, shifted = (weighting.gains(torch.full((5,), c, dtype=torch.float64)) for c in (0.0, 1.5))
        assert float(shifted[first][0] - plain[first][0]) == pytest.approx(1.5)
        assert float(shifted[last][0] - plain[last][0]) == pytest.approx(-1.5)
        assert weighting.work() == 4 * 5 + 5 * 3


def test_a_normalizer_whose_scales_are_folded_costs_nothing() -> None:
    with composed("batch norm", "global") as parts:
        weighting = weighting_of(parts)
        gains = weighting.gains(random_weights(weighting.free, 6, 2.0))
        assert parts.trace.steps[1].kind == "BatchNorm1d"
        assert float(gains[(parts.trace.steps[1].outputs[0].index, 0)][0]) == pytest.approx(0.0, abs=1e-9)

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from normgauge.instrument.probe import jacobian
from tests.instrument.probe.cases import NETWORKS, build, dense_norms, jacobian_norms


@pytest.mark.parametrize("name", NETWORKS)
def test_norms_meet_the_dense_truth_from_below(name: str) -> None:
    network, x = build(name)
    truth, found = dense_norms(network, x), jacobian_norms(network, x, len(x), steps=100)
    assert found.dtype == torch.float64
    assert (found <= truth).all()
    assert (found >= truth * (1 - 1e-4)).all()


@pytest.mark.parametrize("name", ["layer", "attention", "group", "differentiable once"])
def test_iteration_agrees_with_the_rows(name: str) -> None:
    network, x = build(name)
    rows = jacobian_norms(network, x, len(x), exact_outputs=1000)
    assert torch.allclose(jacobian_norms(network, x, len(x), exact_outputs=0, steps=100), rows, rtol=1e-5)


def test_few_steps_stay_below() -> None:
    network, x = build("conv only, many outputs")
    found = [jacobian_norms(network, x, len(x), steps=steps) for steps in (0, 2, 8, 60)]
    assert all((early <= late * (1 + 1e-6)).all() for early, late in pairwise(found))
    assert (found[-1] <= dense_norms(network, x)).all()


def test_a_number_one_percent_too_large_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = build("layer")
    honest = jacobian.row_norms
    monkeypatch.setattr(jacobian, "row_norms", lambda flat: honest(flat) * (1.01 if flat.shape[1] == 12 else 1.0))
    with pytest.raises(AssertionError):
        assert (jacobian_norms(network, x, len(x)) <= dense_norms(network, x)).all()


def test_a_whole_tensor_as_one_point() -> None:
    norm = nn.BatchNorm1d(4, track_running_stats=False).double()
    x = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    truth = torch.linalg.matrix_norm(torch.autograd.functional.jacobian(norm, x).reshape(36, 36), 2)
    (found,) = jacobian_norms(norm, x, 1, steps=200)
    assert truth * (1 - 1e-5) <= found <= truth


@pytest.mark.parametrize("exact", [0, 32])
def test_a_diverged_sample_is_zero_and_spares_the_others(exact: int) -> None:
    network, x = build("layer")
    truth = dense_norms(network, x)
    x[2] = float("nan")
    found = jacobian_norms(network, x, len(x), exact_outputs=exact, steps=100)
    assert found[2] == 0
    assert torch.allclose(found[[0, 1, 3, 4, 5]], truth[[0, 1, 3, 4, 5]], rtol=1e-4)


def test_a_constant_network_has_slope_zero() -> None:
    x = torch.ones(3, 4, dtype=torch.float64)
    for exact in (0, 32):
        assert jacobian_norms(lambda x: torch.ones(3, 2, dtype=x.dtype), x, 3, exact_outputs=exact).eq(0).all()

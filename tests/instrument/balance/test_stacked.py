"""Matrices of one shape, followed together, give what each gives alone."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.instrument.balance.objective import frobenius_pair
from normgauge.instrument.balance.stacked import SteeringStack
from normgauge.instrument.balance.steer import SteeringPairs
from normgauge.instrument.rules.flow import Matrix


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_each_map_has_the_norms_and_masses_it_has_alone() -> None:
    weights, log_out, log_in = drawn(5, 12, 7), drawn(5, 12), drawn(5, 7)
    weights[3] = 0.0
    weights[4] *= 1e-30
    stack, alone = SteeringStack(weights), [SteeringPairs(Matrix(weight)) for weight in weights]
    for _ in range(3):
        together = stack.top(log_out, log_in)
        for k, weight in enumerate(weights):
            log, left, right = alone[k].top(lambda weight=weight: weight, log_out[k], log_in[k])
            assert abs(float(together[0][k]) - log) < 1e-5
            torch.testing.assert_close(together[1][k], left, atol=1e-4, rtol=0.0)
            torch.testing.assert_close(together[2][k], right, atol=1e-4, rtol=0.0)
    logs, rows, columns = stack.frobenius(log_out, log_in)
    for k, weight in enumerate(weights):
        log, row, column = frobenius_pair(weight.square()[None], Matrix(weight), log_out[k], log_in[k])
        assert abs(float(logs[k]) - log) < 1e-12
        torch.testing.assert_close(rows[k], row)
        torch.testing.assert_close(columns[k], column)


def test_what_it_steers_to_is_the_spectral_norm() -> None:
    weights, log_out, log_in = drawn(4, 6, 9), drawn(4, 6), drawn(4, 9)
    stack = SteeringStack(weights)
    found = [stack.top(log_out, log_in) for _ in range(30)][-1]
    scaled = log_out.exp()[:, :, None] * weights * (-log_in).exp()[:, None]
    left, sigma, right = torch.linalg.svd(scaled)
    torch.testing.assert_close(found[0].exp(), sigma[:, 0], rtol=1e-5, atol=0.0)
    assert float((found[1] - left[:, :, 0].square()).abs().max()) < 0.02
    assert float((found[2] - right[:, 0].square()).abs().max()) < 0.02

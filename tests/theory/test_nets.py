"""Networks and small tools of the checks are what they say."""

from __future__ import annotations

import pytest
import torch

from normgauge.theory.checks.attention import rotations
from normgauge.theory.checks.layers import circ, dense
from normgauge.theory.draw import Draw
from normgauge.theory.nets import BatchNormNet, equal_channels, frozen_stack


def test_small_tools_have_known_values():
    matrix = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    assert torch.equal(dense(lambda x: x @ matrix.T, 3), matrix)
    assert circ(torch.ones(1, 1, 3, 3, dtype=torch.float64), 6) == pytest.approx(9)
    turn = rotations(3, 4)
    assert torch.allclose(turn @ turn.mT, torch.eye(4, dtype=torch.float64).expand(3, 4, 4), atol=1e-6)


def test_networks_in_another_scale_are_the_same_function():
    draw = Draw(0, "stack")
    stack = frozen_stack(draw, 3)
    other = stack.rescaled([10.0, 0.5, 3.0])
    x = draw.normal(stack.weights[0].shape[1])
    assert torch.allclose(other(x), stack(x), rtol=1e-12)
    assert torch.allclose(other.weights[1], stack.weights[1] / 2)
    assert all(torch.allclose(a, b) for a, b in zip(other.folded, stack.folded, strict=True))
    net = BatchNormNet.drawn(Draw(0, "net"), 4, 6)
    scaled = net.rescaled([torch.full((6,), 100.0, dtype=torch.float64)] * 4)
    x = torch.ones(6, dtype=torch.float64)
    assert torch.allclose(net(x), scaled(x), rtol=1e-10, atol=0)
    assert scaled.log_weights - net.log_weights == pytest.approx(8)
    assert scaled.log_folded == pytest.approx(net.log_folded)


def test_a_stack_splits_at_every_layer():
    draw = Draw(1, "stack")
    stack = frozen_stack(draw, 3, on=True)
    x = draw.normal(stack.weights[0].shape[1])
    for k, weight in enumerate(stack.weights):
        assert torch.equal(stack.after(k)(weight @ stack.entering(k, x)), stack(x))
    assert (stack(x) > 0).all()
    flat, slope = equal_channels(draw, 2, 3, same=True)
    assert torch.equal(flat.variances[0], flat.variances[1]) and slope > 0

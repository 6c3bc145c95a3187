"""The instances of many checks: their derivatives and flows are right by independent means."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.theory import losses
from normgauge.theory.draw import Draw


@pytest.fixture
def draw() -> Draw:
    return Draw(3, "losses")


@pytest.mark.parametrize("dim", [0, 1], ids=["batch", "layer"])
def test_standardize_is_what_torch_does(draw: Draw, dim: int) -> None:
    z = draw.normal(6, 4)
    truth = F.batch_norm(z, None, None, training=True, eps=0.3) if dim == 0 else F.layer_norm(z, (4,), eps=0.3)
    torch.testing.assert_close(losses.standardized(z, 0.3, dim), truth)


def test_gradient_and_hessian_of_a_quadratic(draw: Draw) -> None:
    a, w = draw.normal(4, 4), draw.normal(4)
    matrix = a + a.T

    def loss(w: Tensor) -> Tensor:
        return 0.5 * w @ matrix @ w

    torch.testing.assert_close(losses.grad_of(loss, w), matrix @ w)
    torch.testing.assert_close(losses.hessian_of(loss, w), matrix)


def test_hessian_behind_batch_norm_agrees_with_differences(draw: Draw) -> None:
    neuron, w = losses.random_unit(draw)
    step = 1e-5 * draw.normal(len(w))
    ahead, behind = (losses.grad_of(neuron.loss, w + s * step) for s in (1, -1))
    torch.testing.assert_close(losses.hessian_of(neuron.loss, w) @ step, (ahead - behind) / 2, rtol=1e-6, atol=1e-12)


def test_flow_solves_the_linear_case(draw: Draw) -> None:
    values, start = draw.uniform(3, low=0.5, high=2.0), draw.normal(3)
    end = losses.gradient_flow(lambda w: 0.5 * (values * w.square()).sum(), start, 1.5, 100)
    torch.testing.assert_close(end, start * (-1.5 * values).exp(), rtol=1e-7, atol=0)


def test_descent_keeps_every_point(draw: Draw) -> None:
    start = draw.normal(2)
    path = losses.gradient_descent(lambda w: 0.5 * w.square().sum(), start, 0.5, 3)
    torch.testing.assert_close(path, torch.stack([start * 0.5**k for k in range(4)]))


def test_wandering_steps_are_orthogonal_and_of_the_length_asked_for(draw: Draw) -> None:
    path = losses.noise_walk(draw, draw.normal(5), 2.0, 10, rate=0.1)
    moved = path[1:] - path[:-1]
    torch.testing.assert_close((moved * path[:-1]).sum(1), torch.zeros(10).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(moved.norm(dim=1), 0.1 * 2.0 / path[:-1].norm(dim=1))


def test_wandering_with_momentum_and_decay_is_that_of_torch(draw: Draw) -> None:
    start = draw.normal(5)
    path = losses.noise_walk(Draw(1, "a"), start, 2.0, 4, rate=0.1, decay=0.2, momentum=0.9)
    noise, point = Draw(1, "a"), start.clone().requires_grad_()
    optimizer = torch.optim.SGD([point], lr=0.1, momentum=0.9, weight_decay=0.2)
    for _ in range(4):
        w, raw = point.detach(), noise.normal(5)
        raw = raw - w * ((w @ raw) / (w @ w))
        point.grad = raw * (2.0 / (w.norm() * raw.norm()))
        optimizer.step()
    torch.testing.assert_close(path[-1], point.detach())


def test_small_angles_are_exact() -> None:
    a, b = torch.tensor([1.0, 0.0]).double(), torch.tensor([1.0, 1e-9]).double()
    assert math.isclose(losses.vector_angle(a, b), 1e-9, rel_tol=1e-6)
    assert math.isclose(losses.vector_angle(a, -a), math.pi)


def test_split_undoes_flatten(draw: Draw) -> None:
    parts = [draw.normal(2, 3), draw.normal(4), draw.normal(1, 1)]
    for piece, part in zip(losses.split_vector(losses.flattened(*parts), parts), parts, strict=True):
        torch.testing.assert_close(piece, part)


def test_nullity_counts_what_the_outputs_do_not_see(draw: Draw) -> None:
    matrix = draw.normal(2, 5)
    assert losses.nullity(lambda w: matrix @ w, draw.normal(5)) == 3


def test_a_solved_unit_has_no_loss_and_its_covariance_is_biased(draw: Draw) -> None:
    neuron, w = losses.random_unit(draw)
    assert float(neuron.solved(w).loss(w)) == 0.0
    torch.testing.assert_close(neuron.covariance, torch.cov(neuron.x.T, correction=0))


@pytest.mark.parametrize("dim", [0, 1], ids=["batch", "layer"])
def test_layer_gradients_agree_with_differences(draw: Draw, dim: int) -> None:
    net = losses.random_layer(draw, dim=dim, eps=0.01)
    weight, bias = net.gradients("weight", "bias")
    flat, step = losses.flattened(net.weight, net.bias), 1e-6 * draw.normal(net.weight.numel() + net.bias.numel())
    ahead, behind = (float(net.vary(flat + s * step).loss()) for s in (1, -1))
    assert math.isclose((ahead - behind) / 2, float(losses.flattened(weight, bias) @ step), rel_tol=1e-6)

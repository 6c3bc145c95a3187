"""A network as rows to rows: products with its Jacobian against the dense one."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.instrument.probe.linearize import SampleMap, row_norms, unit_rows
from tests.instrument.probe.cases import build, dense_norms, gaussian, jacobian_norms


def test_samples_on_another_axis_and_several_rows_a_sample() -> None:
    network, x = build("layer", 8)
    truth = dense_norms(network, x)
    assert torch.allclose(jacobian_norms(lambda x: network(x).T, x, 8, output_axis=1), truth, rtol=1e-6)
    pairs = jacobian_norms(network, x, 4)  # two rows a sample: block diagonal
    assert torch.allclose(pairs, truth.reshape(4, 2).amax(1), rtol=1e-6)


def test_an_output_that_cannot_be_split_is_one_point() -> None:
    network, x = build("layer", 6)
    found = jacobian_norms(lambda x: network(x).sum(0), x, 6)
    whole = torch.autograd.functional.jacobian(lambda x: network(x).sum(0), x).reshape(5, -1)
    assert found.shape == (1,)
    assert torch.isclose(found[0], torch.linalg.matrix_norm(whole, 2), rtol=1e-6)


def test_parameters_get_no_gradient_and_the_global_generator_stays() -> None:
    network, x = build("rms, many outputs")
    state = torch.get_rng_state()
    jacobian_norms(network, x, len(x))
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in network.parameters())
    assert not x.requires_grad


def test_float32_outputs_are_granted_more_rounding() -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    assert torch.allclose(jacobian_norms(lambda x: x.float(), x, 2), torch.tensor(0.999, dtype=torch.float64))


@pytest.mark.parametrize(
    ("x", "samples", "words"),
    [
        (torch.ones(4, 2), 4, "float64"),
        (torch.ones(4, 2, dtype=torch.float64), 3, "3"),
        (torch.ones(4, 2, dtype=torch.float64), 0, "at least 1"),
        (torch.ones(0, 2, dtype=torch.float64), 1, "shape"),
    ],
)
def test_bad_batches_are_refused(x: torch.Tensor, samples: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        jacobian_norms(lambda x: x, x, samples)


def test_an_output_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(InputError, match="dict"):
        SampleMap(lambda x: {"logits": x}, torch.ones(2, 2, dtype=torch.float64), 2)


@pytest.mark.parametrize("name", ["layer", "attention", "batch 2d", "plain relu in place first"])
def test_products_are_those_with_the_dense_jacobian(name: str) -> None:
    network, x = build(name)
    dense = [torch.autograd.functional.jacobian(lambda r: network(r.clone()), row[None]) for row in x]
    matrices = torch.stack([j.reshape(-1, x[0].numel()) for j in dense])
    here = SampleMap(network, x, len(x)).at(x.flatten(1))
    left, right = gaussian(len(x), matrices.shape[1]), gaussian(len(x), matrices.shape[2], seed=1)
    assert torch.allclose(here.pull(left), torch.einsum("bo,boi->bi", left, matrices))
    assert torch.allclose(here.push(right), torch.einsum("boi,bi->bo", matrices, right))
    assert torch.allclose(here.value, network(x.clone()).flatten(1))


def test_where_there_is_no_second_derivative_a_difference_stands_in() -> None:
    network, x = build("differentiable once")
    dense = torch.stack([torch.autograd.functional.jacobian(network, row) for row in x])
    right = gaussian(*x.shape)
    here = SampleMap(network, x, len(x)).at(x)
    assert torch.allclose(here.push(right), torch.einsum("boi,bi->bo", dense, right), rtol=1e-3, atol=1e-4)
    assert here.climb(gaussian(len(x), 50))[1] is None


def test_the_climb_follows_the_gradient_of_the_log_of_the_slope() -> None:
    network, x = build("layer")
    left, along = gaussian(6, 5), 1e-6 * gaussian(6, 12, seed=1)
    rows = SampleMap(network, x, 6)
    pulled, slope = rows.at(x).climb(left)
    ahead, behind = (row_norms(rows.at(x + h * along).pull(left)).log() for h in (1, -1))
    assert torch.equal(pulled, rows.at(x).pull(left))
    assert slope is not None and torch.allclose((slope * along).sum(1), (ahead - behind) / 2, rtol=1e-4, atol=1e-12)


def test_rows_of_length_zero_or_without_one_become_zero() -> None:
    flat = torch.tensor([[3.0, 4.0], [0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0]], dtype=torch.float64)
    assert unit_rows(flat).tolist() == [[0.6, 0.8], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_step_is_a_millionth_of_the_sample_and_no_longer_than_allowed() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e8, 4e8]], dtype=torch.float64)
    rows = SampleMap(lambda x: x, x, 3, reach=1e-3)
    assert rows.steps(x).tolist() == pytest.approx([5e-6, 1e-6, 1e-3])


def test_a_network_that_autograd_does_not_follow_says_so() -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    here = SampleMap(lambda x: (2 * x).detach(), x, 2).at(x)
    assert not here.tracked and here.pull(torch.ones(2, 3)).eq(0).all()


@pytest.mark.parametrize("exponent", [-320, -300, -158, 0, 158, 300])
def test_lengths_of_rows_whose_squares_are_lost(exponent: int) -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [math.inf, 1.0]], dtype=torch.float64)
    found = row_norms(rows * 10.0**exponent)
    assert found[0].item() == pytest.approx(5 * 10.0**exponent, rel=1e-12 if exponent > -300 else 1e-2)
    assert found[1].item() == 0 and math.isinf(found[2].item())

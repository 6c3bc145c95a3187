"""Convolutions that can be differentiated twice cheaply: the same map, the same derivatives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.instrument.probe.convolution import Convolved, TwiceConvolved
from normgauge.instrument.probe.linearize import SampleMap
from tests.instrument.probe.cases import gaussian

LAYERS = {
    "plain": (nn.Conv2d(4, 6, 3), (4, 7, 6)),
    "strided, leaving a rest": (nn.Conv2d(4, 6, 3, stride=2, padding=1), (4, 8, 7)),
    "stride beyond the kernel": (nn.Conv2d(4, 6, 2, stride=5), (4, 11, 9)),
    "dilated": (nn.Conv2d(4, 6, 3, dilation=(2, 3), padding=(2, 0)), (4, 9, 8)),
    "depthwise": (nn.Conv2d(4, 4, 7, padding=3, groups=4), (4, 8, 8)),
    "groups, no bias": (nn.Conv2d(4, 6, (3, 1), groups=2, bias=False), (4, 7, 6)),
    "along a line": (nn.Conv1d(3, 5, 4, stride=3), (3, 12)),
    "in space": (nn.Conv3d(2, 3, 2, stride=(1, 2, 2), padding=1), (2, 4, 5, 6)),
    "same padding": (nn.Conv2d(4, 6, 3, padding="same"), (4, 7, 6)),
    "round the edge": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (4, 7, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_value_and_both_products_are_those_of_the_convolution(name: str) -> None:
    layer, shape = LAYERS[name]
    layer = layer.double()
    x = gaussian(2, *shape)
    rows = SampleMap(lambda x: layer(x).tanh(), x, 2)
    here, plain = rows.at(rows.start), rows.at(rows.start, once=True)
    left, right = gaussian(2, rows.outputs, seed=1), gaussian(*rows.start.shape, seed=2)
    assert torch.allclose(here.value, plain.value, rtol=1e-13, atol=1e-14)
    assert torch.allclose(here.pull(left), plain.pull(left), rtol=1e-11, atol=1e-12)
    assert torch.allclose(here.push(right), plain.push(right), rtol=1e-11, atol=1e-12)
    slope, truth = here.climb(left)[1], plain.climb(left)[1]
    assert slope is not None and truth is not None and torch.allclose(slope, truth, rtol=1e-9, atol=1e-11)


def kinds(output: Tensor) -> set[str]:
    """The names of the operations a tensor was made by."""
    found, stack = set(), [output.grad_fn]
    while stack:
        if (node := stack.pop()) is not None:
            found.add(node.name())
            stack.extend(before for before, _ in node.next_functions)
    return found


def test_a_fixed_weight_is_taken_over_and_one_that_depends_on_the_input_is_not() -> None:
    x = gaussian(1, 2, 5, 5).requires_grad_(True)
    weight = gaussian(3, 2, 3, 3)
    with TwiceConvolved():
        fixed, own = F.conv2d(x, weight), F.conv2d(x, weight * x.mean())
        nothing = F.conv2d(x.detach(), weight)
    assert "ConvolvedBackward" in kinds(fixed) and "ConvolutionBackward0" not in kinds(fixed)
    assert "ConvolutionBackward0" in kinds(own) and not nothing.requires_grad


def test_an_input_that_depends_on_its_own_weight_keeps_its_whole_derivative() -> None:
    x = gaussian(1, 2, 5, 5)
    weight = gaussian(3, 2, 3, 3)

    def network(x: Tensor) -> Tensor:
        return F.conv2d(x, weight * x.mean())

    rows = SampleMap(network, x, 1)
    dense = torch.autograd.functional.jacobian(network, x).reshape(rows.outputs, -1)
    left = gaussian(1, rows.outputs, seed=1)
    assert torch.allclose(rows.at(rows.start).pull(left), left @ dense)


def test_a_single_image_without_a_batch() -> None:
    x, weight = gaussian(2, 6, 5).requires_grad_(True), gaussian(3, 2, 3, 2)
    out = Convolved.apply(x, weight, None, ([2, 1], [1, 0], [1, 1]), 1)
    truth = F.conv2d(x, weight, None, (2, 1), (1, 0))
    left = gaussian(*truth.shape, seed=1)
    pulled, want = (torch.autograd.grad((y * left).sum(), x)[0] for y in (out, truth))
    assert torch.equal(out, truth) and torch.allclose(pulled, want)

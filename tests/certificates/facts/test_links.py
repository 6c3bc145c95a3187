from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.facts.chain import read_chain
from normgauge.certificates.facts.sample import DataSample


def sample(*shape: int, count: int = 20, seed: int = 1) -> DataSample:
    torch.manual_seed(seed)
    return DataSample(torch.randn(count, *shape), torch.zeros(count, dtype=torch.long))


def lively(net: nn.Module, seed: int = 0) -> nn.Module:
    """In eval mode, its parameters and statistics at random."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) * 0.4)
        for name, b in net.named_buffers():
            if b.is_floating_point():
                b.copy_(torch.rand_like(b) + 0.3 if "var" in name else torch.randn_like(b))
    return net.eval()


def truth(affine: nn.Module, shape: tuple[int, ...], *, constant: bool, last: bool) -> Tensor:
    """The matrix of an affine module, by unit vectors, in float64."""
    affine = copy.deepcopy(affine).double()
    n = math.prod(shape)
    with torch.no_grad():
        zero = affine(torch.zeros(1, *shape).double()).flatten(1)
        matrix = (affine(torch.eye(n).double().reshape(n, *shape)).flatten(1) - zero).T
    if not constant:
        return matrix
    whole = torch.cat([matrix, zero.T], 1)
    return whole if last else torch.cat([whole, torch.eye(n + 1)[-1:].double()])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_without_bias_are_exact(stride: int, groups: int) -> None:
    conv = nn.Conv2d(2, 4, 3, stride=stride, padding=1, groups=groups, bias=False)
    net = lively(
        nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(4 * (5 if stride == 1 else 3) ** 2, 2, bias=False))
    )
    chain = read_chain(net, sample(2, 5, 5))
    matrix = truth(conv, (2, 5, 5), constant=False, last=False)
    link = chain.links[0]
    assert not chain.constant
    assert math.exp(link.log_frobenius) == pytest.approx(float(matrix.norm()), rel=1e-6)
    top = float(torch.linalg.matrix_norm(matrix, 2))
    assert top * (1 - 1e-9) <= math.exp(link.log_spectral) <= top * 1.002

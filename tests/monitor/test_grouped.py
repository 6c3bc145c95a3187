"""The kernels for devices: run by Triton's interpreter on a CPU where Triton is installed, else on a device."""

import math
import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from normgauge.monitor.grouped import Compared, GroupedMaps, Table, can_compare

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = ((5, 7), (130, 9), (3, 200), (64, 64), (1, 1))


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6])
def test_products_of_all_shapes(rows: int, dtype: torch.dtype) -> None:
    weights = [drawn(*shape, seed=k, dtype=dtype) for k, shape in enumerate(SHAPES)]
    maps = GroupedMaps(weights, Table(weights))
    given = drawn(len(SHAPES), rows, maps.inputs, seed=9).to(maps.dtype)
    back = drawn(len(SHAPES), rows, maps.outputs, seed=8).to(maps.dtype)
    made, returned = maps.forward(given), maps.adjoint(back)
    for k, (high, wide) in enumerate(SHAPES):
        wide_weight = weights[k].to(maps.dtype)
        torch.testing.assert_close(made[k, :, :high], given[k, :, :wide] @ wide_weight.T)
        torch.testing.assert_close(returned[k, :, :wide], back[k, :, :high] @ wide_weight)
        assert not made[k, :, high:].any() and not returned[k, :, wide:].any()
        assert math.isclose(float(maps.sizes()[k]), float(weights[k].double().norm()), rel_tol=1e-6)
        assert int(maps.inside[k].sum()) == wide


@pytest.mark.parametrize("kept", [False, True])
def test_weights_beside_their_gradients(kept: bool) -> None:
    tall = drawn(130, 24, seed=1)
    weights = [drawn(7), tall[::8], drawn(3, 2, 5, seed=2)]
    gradients = [drawn(7, seed=3), drawn(130, 24, seed=4)[::8], None]
    assert can_compare(weights, gradients)
    compared = Compared(weights)
    before = [w.clone() for w in weights]
    if kept:
        compared.keep()
        for weight in weights:
            weight.mul_(1.5)
    compared.compare(gradients, kept=kept)
    sums = torch.stack([part.sum(0) for part in compared.sums.split(compared.blocks)]).cpu()
    for part, (weight, slope, old) in enumerate(zip(weights, gradients, before, strict=True)):
        step = old - weight if kept else torch.zeros_like(weight)
        slope = torch.zeros_like(weight) if slope is None else slope
        wanted = [(weight * weight).sum(), (slope * slope).sum(), (slope * old).sum(), (step * step).sum()]
        torch.testing.assert_close(sums[part].float(), torch.stack(wanted).cpu())
        if kept:
            torch.testing.assert_close(compared.steps[part], step)


def test_what_one_kernel_cannot_read() -> None:
    assert not can_compare([drawn(4, 4).T[1:]], [None])
    assert not can_compare([drawn(4), drawn(4).double()], [None, None])
    assert not can_compare([drawn(0)], [None])

"""What a CUDA graph needs of a penalty: nothing is read back to the host, and its vectors stay where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import normgauge as ng
from normgauge.lab.zoo import gpt, mlp


class HostTraffic(TorchDispatchMode):
    """Names the operations that would stop a capture: numbers read back, sizes that depend on values, uploads."""

    stopping = ("_local_scalar_dense", "nonzero", "is_nonzero", "lift_fresh", "equal", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in self.stopping:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def nets() -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3))
    return {
        "batch": (mlp((6, 8, 8, 3), norm="batch"), torch.randn(5, 6)),
        "conv": (conv, torch.randn(2, 3, 6, 6)),
        "bounded": (ng.bounded(mlp((6, 8, 8, 3), norm="layer")), torch.randn(5, 6)),
        "gpt": (gpt(vocab=12, width=16, depth=2, heads=2, context=6), torch.randint(0, 12, (2, 6))),
    }


@pytest.mark.parametrize("name", nets())
@pytest.mark.parametrize("by", ["total", "layer"])
def test_step_can_be_captured(name: str, by: str) -> None:
    model, x = nets()[name]
    penalty = ng.penalty(model, x, by=by, target=-1.0, every=1)
    model(x)
    penalty().backward()  # the first call finds the vectors
    before = [group._warm[1].data_ptr() for group in penalty._capacity.groups]
    with HostTraffic() as traffic:
        loss = model(x).square().mean() + penalty()
        loss.backward()
    assert traffic.seen == []
    assert [group._warm[1].data_ptr() for group in penalty._capacity.groups] == before

"""Residual streams: one that grows is seen though a normalizer ends it, and so is a branch that adds nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normgauge.advice import advise


class Block(nn.Module):
    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
        with torch.no_grad():
            self.outer.weight.mul_(gain)
            self.outer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(self.norm(x))))


def network(gains: list[float]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), *(Block(16, gain) for gain in gains), nn.LayerNorm(16), nn.Linear(16, 3))


def kinds(model: nn.Module) -> dict[str, str]:
    found = advise(model, torch.randn(32, 8), facts=False)
    return {remark.kind: remark.sentence for remark in found.remarks}


def test_a_stream_that_grows_behind_normalizers_is_seen():
    said = kinds(network([10.0, 100.0, 1000.0, 20_000.0]))
    assert "grows" in said["growing stream"] and "over 4 sums" in said["growing stream"]


@pytest.mark.parametrize("gain", [0.0, 1.0, 10.0])
def test_usual_streams_are_not(gain):
    said = kinds(network([gain] * 4))  # 0: branches that begin so on purpose
    assert not {"growing stream", "dead branch"} & set(said)


def test_a_branch_that_died_is_named():
    said = kinds(network([1.0, 1.0, 0.0, 1.0]))
    assert said["dead branch"].startswith("3.outer is 0 for every sample")


def test_a_mask_of_zeros_is_no_branch():
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = network([1.0, 1.0])

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x + torch.zeros_like(x))

    assert "dead branch" not in kinds(Masked())

"""Checks of normalizers, however they are written, and starts that are usual."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import vit


def test_a_gain_of_zero_in_a_branch_is_a_usual_start():
    torch.manual_seed(0)
    model = vit(8, 2, 1, 16, 2, 4).eval()
    images = torch.randn(8, 1, 8, 8)
    with torch.no_grad():
        for block in model.blocks:
            block.norm2.weight.zero_()
    assert ng.advise(model, images, facts=False).problems == ()
    with torch.no_grad():
        model.norm.weight.zero_()  # on the trunk nothing passes
    assert ("dead normalizer", "norm") in [(r.kind, r.layer) for r in ng.advise(model, images, facts=False).problems]


def test_written_out_and_functional_normalizers_are_looked_at_too():
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 12), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
            h = torch.nn.functional.group_norm(h, 12)
            return self.last(torch.nn.functional.layer_norm(h, (12,)) + torch.nn.functional.rms_norm(h, (12,)))

    torch.manual_seed(0)
    model = Written()
    problems = ng.advise(model, torch.randn(16, 8), facts=False).problems
    assert ("one element", "group_norm") in [(r.kind, r.layer) for r in problems]
    with torch.no_grad():
        model.first.weight.mul_(1e-6)
        model.first.bias.zero_()
    said = [(r.kind, r.layer) for r in ng.advise(model, torch.randn(16, 8), facts=False).problems]
    assert ("epsilon decides", "root_mean_square") in said

"""The directions found are all there are: as many as the nullity of the Jacobian in the weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.geometry.symmetry import symmetries


class Residual(nn.Module):
    """A stream with one branch; the normalizer before it."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.stem, self.inner, self.outer, self.head = (
            nn.Linear(8, 6),
            nn.Linear(6, 7),
            nn.Linear(7, 6),
            nn.Linear(6, 3),
        )
        self.first, self.last = norm(6), norm(6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = h + self.outer(F.leaky_relu(self.inner(self.first(h))))
        return self.head(self.last(h))


class Shared(nn.Module):
    """One matrix applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again, self.norm, self.head = (
            nn.Linear(8, 6),
            nn.Linear(6, 6),
            nn.BatchNorm1d(6),
            nn.Linear(6, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        h = F.leaky_relu(self.stem(x))
        for _ in range(2):
            h = F.leaky_relu(self.again(h))
        return self.head(self.norm(h))


def normed(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


weight_norm = nn.utils.parametrizations.weight_norm
NETS = {
    "batch": lambda: normed(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.LeakyReLU(), nn.Linear(7, 3)),
    "layer": lambda: normed(nn.Linear(5, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3)),
    "layer twice": lambda: normed(
        nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 4), nn.LayerNorm(4), nn.Linear(4, 2)
    ),
    "two matrices": lambda: normed(nn.Linear(5, 4), nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 2)),
    "weight norm": lambda: normed(
        weight_norm(nn.Linear(8, 5)), nn.BatchNorm1d(5), nn.LeakyReLU(), weight_norm(nn.Linear(5, 3)), nn.LeakyReLU(),
        nn.Linear(3, 2),
    ),
    "no affine": lambda: normed(
        nn.Linear(8, 5), nn.LayerNorm(5, elementwise_affine=False), nn.LeakyReLU(), nn.Linear(5, 6, bias=False),
        nn.BatchNorm1d(6, affine=False), nn.Tanh(), nn.Linear(6, 2),
    ),
    "residual layer": lambda: Residual(nn.LayerNorm),
    "residual batch": lambda: Residual(nn.BatchNorm1d),
    "residual rms": lambda: Residual(nn.RMSNorm),
    "shared": Shared,
    "plain": lambda: normed(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)),
    "images": lambda: normed(
        nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, groups=2), nn.GroupNorm(3, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2),
    ),
    "attention": lambda: nn.TransformerEncoderLayer(6, 2, 7, batch_first=True, dropout=0.0),
}  # fmt: skip
SHAPES = {"images": (60, 3, 8, 8), "attention": (60, 4, 6), "weight norm": (120, 8)}


def drawn(name: str) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    model = NETS[name]()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(0.5 * torch.randn_like(p) if p[0].numel() > 1 or "bias" in key else 1 + 0.2 * torch.randn_like(p))
    width = next(p for p in model.parameters() if p.ndim > 1).shape[1]
    shape = SHAPES.get(name, (120, width))
    return model.train(), [torch.randn(*shape, dtype=torch.float64) for _ in range(3)]


def nullity(model: nn.Module, batches: list[Tensor]) -> int:
    """Weights less the rank of the Jacobian of all outputs, in float64 with ε next to nothing."""
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if isinstance(module.__dict__.get("eps"), float):
            module.__dict__["eps"] = 1e-30
        if isinstance(module, nn.RMSNorm):
            module.eps = 1e-30
    weights = list(model.parameters())
    rows = []
    for x in batches:
        outputs = model(x).reshape(-1)
        keep = torch.randperm(len(outputs), generator=torch.Generator().manual_seed(0))[:300]
        for i in keep.tolist():
            found = torch.autograd.grad(outputs[i], weights, retain_graph=True)
            rows.append(torch.cat([g.reshape(-1) for g in found]))
    jacobian = torch.stack(rows)
    size = jacobian.norm(dim=0)
    values = torch.linalg.svdvals(jacobian / torch.where(size > 1e-9 * size.max(), size, size.max()))
    rank = int((values > 1e-10 * values[0]).sum())
    assert rank == len(values) or values[rank] < 1e-3 * values[rank - 1], "no gap between rank and rounding"
    return jacobian.shape[1] - rank


@pytest.mark.parametrize("name", NETS)
def test_as_many_directions_as_the_jacobian_has_null_ones(name):
    model, batches = drawn(name)
    found = symmetries(model, batches[0].float(), mode="train")
    assert not found.rejected and not found.unknown
    assert all(group.exact < 1e-9 for group in found.groups)
    assert found.dimension == nullity(model, batches)

"""Networks of every kind that radii are certified for, and a batch for each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.instrument.local.nets import Residual


def settled(model: nn.Module, x: Tensor) -> nn.Module:
    """The model in eval mode, its BatchNorm statistics those of the batch."""
    model.double().train()
    with torch.no_grad():
        for _ in range(20):
            model(x.double())
    return model.float().eval()


def built(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    flat, images = torch.randn(8, 12), torch.randn(5, 2, 6, 6)
    models: dict[str, tuple[nn.Module, Tensor]] = {
        "linear": (nn.Linear(12, 4), flat),
        "relu": (nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4)), flat),
        "layernorm": (nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 4)), flat),
        "rmsnorm": (nn.Sequential(nn.Linear(12, 24), nn.RMSNorm(24), nn.SiLU(), nn.Linear(24, 4)), flat),
        "residual": (
            nn.Sequential(
                nn.Linear(12, 16), Residual(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh())),
                nn.Linear(16, 3),
            ),
            flat,
        ),
        "conv": (
            nn.Sequential(
                nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3),
                nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
            ),
            images,
        ),
        "probabilities": (nn.Sequential(nn.Linear(12, 4), nn.Softmax(1)), flat),
    }  # fmt: skip
    model, x = models[name]
    return settled(model, x), x


NAMES = ("linear", "relu", "layernorm", "rmsnorm", "residual", "conv", "probabilities")

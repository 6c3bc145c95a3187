"""Small networks with the forms of step that channel weights pass through, and their compositions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.instrument.balance.ties import tie_weights
from normgauge.instrument.balance.weighted import Weighting
from normgauge.instrument.compose import Composition
from normgauge.instrument.session import opened


class Around(nn.Module):
    """Two linear maps, a normalizer and a function that joins them."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def normed(norm: nn.Module) -> nn.Module:
    """The normalizer with scales and statistics that differ from channel to channel."""
    for name, tensor in (*norm.named_parameters(), *norm.named_buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.4, 2.0) if name != "bias" else nn.init.normal_(tensor)
    return norm


def joined_twice(m: Around, x: Tensor) -> Tensor:
    """One layer that reaches the output twice, scaled differently: no weights of it make both ends one."""
    scale, h = torch.tensor([5.0, 0.2, 2.0, 0.5], dtype=x.dtype), m.a(x)
    return h * scale + (h / scale).relu()


GRAPHS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "pair": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "residual": (lambda: Around(lambda m, x: m.b(m.a(x) + m.b(m.a(x).relu()))), (4,)),
    "from the input": (lambda: Around(lambda m, x: x + m.b(m.a(x).tanh())), (4,)),
    "moved": (lambda: Around(lambda m, x: m.b(torch.cat([m.a(x).flip(1)[:, :2], m.b(x)[:, 1:3]], 1))), (4,)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 5), normed(nn.BatchNorm1d(5)), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(4, 5), normed(nn.LayerNorm(5)), nn.Linear(5, 3)), (4,)),
    "rms norm": (lambda: nn.Sequential(nn.Linear(4, 5), normed(nn.RMSNorm(5)), nn.Linear(5, 3)), (4,)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, groups=2), normed(nn.BatchNorm2d(4)), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 2)
        ),
        (2, 6, 6),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.ConvTranspose1d(4, 2, 3, stride=2, groups=2)),
        (2, 6),
    ),
    "softmax": (lambda: Around(lambda m, x: m.b(m.a(x).softmax(1))), (4,)),
    "twice": (lambda: Around(joined_twice), (4,)),
    "mean over places": (lambda: Around(lambda m, x: m.b(m.a(x).relu().mean(1))), (3, 4)),
}


@contextmanager
def composed(name: str, scope: str = "point") -> Iterator[Composition]:
    """The composition of a named network at three samples."""
    make, shape = GRAPHS[name]
    torch.manual_seed(len(name))
    with opened(make().double().eval(), torch.randn(3, *shape, dtype=torch.float64)) as session:
        yield session.composed(Scope.parse(scope))


def weighting_of(parts: Composition) -> Weighting:
    """The graph with its ties."""
    return Weighting(parts, tie_weights(parts))

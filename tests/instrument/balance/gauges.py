"""One small network with any normalizer, and the rescalings that leave its function alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda _: nn.Identity(),
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
    "rms": lambda n: nn.RMSNorm(n, eps=1e-5),
    "group": lambda n: nn.GroupNorm(4, n),
}


class GaugeNet(nn.Module):
    """A map into a normalizer, a ReLU pair, a residual block, a map into a normalizer again, a head."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(10, 16), NORMS[norm](16)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 12)
        self.up, self.down = nn.Linear(12, 16), nn.Linear(16, 12)
        self.mix, self.last = nn.Linear(12, 16), NORMS[norm](16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 10) to (N, 5)."""
        h = F.relu(self.norm(self.stem(x)))
        h = self.second(F.relu(self.first(h)))
        h = h + self.down(F.relu(self.up(h)))
        return self.head(F.relu(self.last(self.mix(h))))


class TokenNet(nn.Module):
    """LayerNorm before attention over four tokens, LayerNorm behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, 6) to (N, 4, 8)."""
        h = self.norm(self.stem(x))
        return self.last(F.scaled_dot_product_attention(self.query(h), self.key(h), self.value(h)))


def gauge_net(norm: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """The network with a life of its own in gains and biases, and six inputs; in float64."""
    torch.manual_seed(seed)
    net = GaugeNet(norm).double().eval()
    for parameter in net.parameters():
        if parameter.ndim == 1:
            nn.init.uniform_(parameter, 0.3, 1.7)
    return net, torch.randn(6, 10, dtype=torch.float64)


def factors(count: int, seed: int = 0) -> Tensor:
    """Channel by channel, from 0.01 to 100."""
    return 10 ** (4 * torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 2)


def write(layer: Any, t: Tensor | float) -> None:
    """A layer's outputs times t."""
    layer.weight.mul_(t[:, None] if isinstance(t, Tensor) and layer.weight.ndim > 1 else t)
    if getattr(layer, "bias", None) is not None:
        layer.bias.mul_(t)


def relu_pair(net: Any) -> None:
    """relu(t·h) = t·relu(h)."""
    write(net.first, factors(16))
    net.second.weight.div_(factors(16))


def residual_stream(net: Any) -> None:
    """What writes to the stream times t, what reads it divided by t."""
    for writer, reader in ((net.second, net.up), (net.down, net.mix)):
        write(writer, factors(12))
        reader.weight.div_(factors(12))


def norm_gain(net: Any) -> None:
    """Gain and shift of a normalizer times t, the columns of the map behind the ReLU divided by t."""
    for seed, (norm, reader) in enumerate(((net.norm, net.first), (net.last, net.head))):
        write(norm, factors(16, seed))
        reader.weight.div_(factors(16, seed))


def norm_shift(net: Any) -> None:
    """One row added to all rows whose mean the normalizer takes off."""
    for layer, norm in ((net.stem, net.norm), (net.mix, net.last)):
        rows = layer.weight.view(getattr(norm, "num_groups", 1), -1, layer.weight.shape[1])
        rows.add_(factors(rows.shape[2])[None, None])


def batch_norm_scale(net: Any) -> None:
    """(W_c, b_c, mean_c) × t_c and var_c → t_c²(var_c + ε) − ε."""
    for seed, (layer, norm) in enumerate(((net.stem, net.norm), (net.mix, net.last))):
        t = factors(16, seed)
        write(layer, t)
        norm.running_mean.mul_(t)
        norm.running_var.copy_(t.square() * (norm.running_var + norm.eps) - norm.eps)


def query_key(net: Any) -> None:
    """Queries times t, keys divided by t."""
    write(net.query, 100.0)
    write(net.key, 0.01)


CHANGES: dict[str, tuple[Callable[[Any], None], ...]] = {
    "none": (relu_pair, residual_stream),
    "batch": (relu_pair, residual_stream, norm_gain, batch_norm_scale),
    "layer": (relu_pair, residual_stream, norm_gain, norm_shift),
    "rms": (relu_pair, residual_stream, norm_gain),
    "group": (relu_pair, residual_stream, norm_gain, norm_shift),
}
EVERY = [(norm, change) for norm, changes in CHANGES.items() for change in changes]


def changed(net: nn.Module, change: Callable[[Any], None], x: Tensor) -> nn.Module:
    """A copy in another gauge: the same function to 1e-9.

    Raises:
        AssertionError: where it is another one.
    """
    twin = copy.deepcopy(net)
    with torch.no_grad():
        change(twin)
        before, after = net(x), twin(x)
        if not (after - before).abs().max() < 1e-9 * before.abs().max():
            raise AssertionError(f"{change.__name__} changed the function")
    return twin
